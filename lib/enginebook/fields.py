"""Types that params files are checked by."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

Slug = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_.-]{0,62}$")]
PositiveInt = Annotated[int, Field(strict=True, ge=1)]
NonNegativeInt = Annotated[int, Field(strict=True, ge=0)]
PositiveFloat = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegativeFloat = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
OptionValue = bool | int | float | str | None | list[bool | int | float | str]


def as_list(value: Any) -> Any:
    """Return a value alone as a list of one."""
    return value if isinstance(value, list) else [value]


AsList = BeforeValidator(as_list)


class Frozen(BaseModel):
    """Base of all study objects: immutable, no unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)

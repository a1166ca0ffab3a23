"""Types that params files are checked by."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
)

Slug = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_.-]{0,62}$")]


def _plain_path(text: str) -> str:
    if not text.isprintable():
        raise ValueError("a path holds no control characters")
    if any(len(part.encode()) > LONGEST_PART_BYTES for part in text.split("/")):
        raise ValueError(f"a part of a path has at most {LONGEST_PART_BYTES} bytes")
    return text


def _not_climbing(text: str) -> str:
    if ".." in text:
        raise ValueError("a revision does not hold '..'")
    return text


LONGEST_PART_BYTES = 255
PathText = Annotated[
    str, StringConstraints(min_length=1, max_length=3000), AfterValidator(_plain_path)
]
HubId = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*(/[A-Za-z0-9][A-Za-z0-9_.-]*)?$"),
    StringConstraints(max_length=200),
]
Revision = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_./-]{0,199}$"),
    AfterValidator(_not_climbing),
]
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

"""The register of published claims, and users' own files of claims, read from YAML."""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, Literal

import yaml
from pydantic import Field, ValidationError

from enginebook.claims.model import (
    TITLES,
    Claim,
    Data,
    Evidence,
    Physics,
    Register,
    Setting,
    Source,
    Status,
    Test,
)
from enginebook.errors import InputError
from enginebook.study_file import parse_yaml

_LONGEST_FORM = 5
FILES: Final = (
    "article", "performance", "architecture", "deployment", "code", "metadata", "trends",
    "decisions", "sources",
)  # fmt: skip


class Table(Data):
    """A printed table: one figure an engine (columns) and axis value (rows)."""

    id: str = "{engine}-{row}"
    topic: str = "quoted"
    statement: str = "{name}: {value:g} at {row}"
    zh: str = ""
    needs: str = "any"
    test: Test
    physics: Physics = Physics()
    by: Literal["concurrency", "input_tokens", "output_tokens", "component"]
    engines: tuple[str, ...]
    rows: Mapping[int | str, Sequence[float | None]]
    evidence: Evidence | None = None
    status_of: Mapping[Status, Sequence[str]] = Field(default_factory=dict)
    notes: Mapping[str, str] = Field(default_factory=dict)

    def claims(self, setting: Setting | None) -> Iterator[Claim]:
        """Return the table's figures as claims, column by column."""
        for column, engine in enumerate(self.engines):
            for row, figures in self.rows.items():
                if len(figures) != len(self.engines):
                    raise InputError(f"row {row} of table {self.id} has {len(figures)} figures")
                figure = figures[column]
                if figure is not None:
                    yield self._claim(engine, row, figure, setting)

    def _claim(self, engine: str, row: int | str, figure: float, setting: Setting | None) -> Claim:
        value = int(figure) if figure == int(figure) else figure
        words = {"engine": engine, "row": row, "value": value}
        claim_id = _filled(self.id, words)
        unit = UNITS.get(self.test.metric or "", "")
        where: dict[str, Any] = {"engines": (engine,), "value": figure * self.test.unit_factor}
        where |= {"component": str(row)} if self.by == "component" else {
            "at": {**self.test.at, self.by: (float(row), float(row))}
        }  # fmt: skip
        return Claim(
            id=claim_id,
            topic=self.topic,
            kind="measured-number",
            statement=_filled(self.statement, words | {"name": TITLES.get(engine, engine)}),
            zh=self.zh,
            claimed=f"{figure:,g} {unit}".strip(),
            unit=unit,
            needs=self.needs,
            setting=setting,
            test=self.test.model_copy(update=where),
            physics=self.physics,
            evidence=self._evidence(claim_id),
        )

    def _evidence(self, claim_id: str) -> Evidence | None:
        if self.evidence is None:
            return None
        status = next(
            (s for s, ids in self.status_of.items() if claim_id in ids), self.evidence.status
        )
        note = "; ".join(t for t in (self.evidence.note, self.notes.get(claim_id, "")) if t)
        return self.evidence.model_copy(update={"status": status, "note": note})


UNITS: Final = {
    "output_tokens_per_s": "tokens/s", "input_tokens_per_s": "tokens/s", "requests_per_s": "req/s",
    "ttft_p50_ms": "ms", "ttft_p95_ms": "ms", "ttft_p99_ms": "ms", "ttft_mean_ms": "ms",
    "tpot_p50_ms": "ms", "tpot_mean_ms": "ms", "itl_p50_ms": "ms", "e2e_p50_ms": "ms",
    "memory_bytes": "GB",
}  # fmt: skip


def _filled(template: str, words: Mapping[str, Any]) -> str:
    try:
        _check_fields(template, words)
        return string.Formatter().vformat(template, (), words)
    except (KeyError, ValueError, IndexError, AttributeError) as error:
        raise InputError(
            f"the text {template!r} of a table cannot be filled: {error}",
            "use {engine}, {name}, {row} and {value}",
        ) from error


def _check_fields(template: str, words: Mapping[str, Any]) -> None:
    """Refuse a field of a field, which could show anything, and a width of 10^9, which is 1 GB."""
    for _, field, form, _ in string.Formatter().parse(template):
        style = form or ""
        if field is not None and (field not in words or len(style) > _LONGEST_FORM or "{" in style):
            raise KeyError(field)


class _File(Data):
    """One YAML file: claims, tables, or both."""

    source: Mapping[str, Any] = Field(default_factory=dict)
    setting: Setting | None = None
    claims: tuple[Claim, ...] = ()
    tables: tuple[Table, ...] = ()
    sources: Mapping[str, Source] = Field(default_factory=dict)

    def all_claims(self) -> list[Claim]:
        """Return tables' figures and claims; the file's setting holds where a claim has none."""
        mine = [
            c.model_copy(update={"setting": self.setting}) if c.setting is None else c
            for c in self.claims
        ]
        return [c for table in self.tables for c in table.claims(self.setting)] + mine


def read_claims(text: str, origin: str) -> Register:
    """Return the register that a YAML text holds.

    Raises
    ------
    InputError
        Naming the entry that is wrong, or an id that is given twice.
    """
    try:
        file = _File.model_validate(parse_yaml(text))
    except yaml.YAMLError as error:
        raise InputError(f"{origin} is not YAML: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InputError(
            f"{origin}: {where}: {first['msg']} ({error.error_count()} errors in all)",
            "see docs/method-physics.md for the form of a claims file",
        ) from error
    return _register([file], origin)


def _register(files: Sequence[_File], origin: str) -> Register:
    claims = [c for f in files for c in f.all_claims()]
    ids = [c.id for c in claims]
    twice = sorted({i for i in ids if ids.count(i) > 1})
    if twice:
        raise InputError(f"{origin}: claim ids given twice: {', '.join(twice)}")
    source: dict[str, Any] = {k: v for f in files for k, v in f.source.items()}
    return Register(
        title=str(source.get("title", origin)),
        date=str(source.get("date", "")),
        claims=tuple(claims),
        sources={k: v for f in files for k, v in f.sources.items()},
    )


def read_claims_file(path: Path) -> Register:
    """Return the register of a user's own claims file."""
    if not path.is_file():
        raise InputError(f"no claims file {path}", "give a YAML file; see docs/method-physics.md")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({error})", "give a YAML file") from None
    return read_claims(text, str(path))


def load_register(path: Path | None = None) -> Register:
    """Return the register that comes with the package, or that of a user's file."""
    if path is not None:
        return read_claims_file(path)
    folder = files("enginebook.claims").joinpath("data")
    texts = [folder.joinpath(f"{n}.yaml").read_text(encoding="utf-8") for n in FILES]
    return _register([_File.model_validate(yaml.safe_load(t)) for t in texts], "the register")

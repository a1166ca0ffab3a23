"""Ask advisory services whether a locked package has a known vulnerability.

A service that cannot be reached answers nothing, and some clients then still report success. This
tool asks for one package first, counts what was really answered, and says ``not audited`` where
nothing was. Exit status: 0 nothing known (or, without ``--strict``, nothing answered), 1 a
vulnerability that no exception covers, 2 wrong arguments or exceptions, 3 not audited with
``--strict``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from locked import ROOT, WORKBOOK, Locked, applies_here, read_lock

EXCEPTIONS = ROOT / "tools" / "audit.toml"
SERVICES = ("pypi", "osv")
LIMIT_S = 300
FEW = 5  # packages named in a line
DONE, FOUND, WRONG, NOT_AUDITED = 0, 1, 2, 3


class BadExceptionsError(Exception):
    """An entry of audit.toml lacks something or is no exception at all."""


@dataclass(frozen=True)
class Allowed:
    """A vulnerability that is accepted until a day, for a reason."""

    id: str
    package: str
    until: date
    reason: str


@dataclass(frozen=True)
class Answer:
    """What a service said: packages it knew, and vulnerabilities as (package, version, ids)."""

    known: frozenset[str] = frozenset()
    found: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    trouble: str = ""


@dataclass
class Report:
    """What is printed and decides the exit status."""

    audited: int = 0
    unanswered: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)

    def status(self, strict: bool) -> int:  # noqa: FBT001 - the one switch of the tool
        """Return the exit status."""
        if self.open:
            return FOUND
        return NOT_AUDITED if strict and self.unanswered else DONE


def exceptions(path: Path) -> list[Allowed]:
    """Return the exceptions of a TOML file.

    Raises
    ------
    BadExceptionsError
        When one lacks its id, package, last day or reason.
    """
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("exception", [])
    for entry in entries:
        if set(entry) != {"id", "package", "until", "reason"} or type(entry["until"]) is not date:
            raise BadExceptionsError(f"{path.name}: id, package, until, reason wanted in {entry}")
    return [Allowed(**entry) for entry in entries]


def ask(service: str, entries: Sequence[Locked]) -> Answer:
    """Return what one service knows of locked packages."""
    if not entries:
        return Answer()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pins.txt"
        file.write_text("".join(f"{e.pin}\n" for e in entries), encoding="utf-8")
        argv = [sys.executable, "-m", "pip_audit", "--requirement", str(file), "--no-deps"]
        argv += ["--disable-pip", "--format", "json", "--progress-spinner", "off"]
        argv += ["--vulnerability-service", service, "--timeout", "10"]
        try:
            done = subprocess.run(argv, capture_output=True, timeout=LIMIT_S, check=False)
        except subprocess.TimeoutExpired:
            return Answer(trouble=f"{service}: no answer within {LIMIT_S} s")
    return understood(service, done.stdout, done.stderr.decode(errors="replace"))


def understood(service: str, output: str | bytes, trouble: str) -> Answer:
    """Return an answer from the client's JSON; without JSON there is none, whatever its status."""
    try:
        packages: list[dict[str, Any]] = json.loads(output)["dependencies"]
    except (json.JSONDecodeError, KeyError, TypeError):
        last = [line for line in trouble.splitlines() if line.strip()][-1:]
        kind = last[0].split(":")[0].split("(")[0] if last else "no output"
        return Answer(trouble=f"{service}: {kind}")
    known = [p for p in packages if "skip_reason" not in p]
    return Answer(
        frozenset(p["name"] for p in known),
        tuple(
            (p["name"], p["version"], (v["id"], *v.get("aliases", ())))
            for p in known
            for v in p["vulns"]
        ),
        "" if known else f"{service}: it knew none of {len(packages)} packages",
    )


def first_reachable(entries: Sequence[Locked]) -> tuple[str | None, list[str]]:
    """Return a service that answers for one package, and why others do not."""
    reasons: list[str] = []
    for service in SERVICES:
        answer = ask(service, entries[:1])
        if answer.known:
            return service, reasons
        reasons.append(answer.trouble)
    return None, reasons


def judged(answer: Answer, entries: Sequence[Locked], allowed: list[Allowed], day: date) -> Report:
    """Return a report: what is open, what is accepted, what nobody answered for."""
    report = Report(audited=len(answer.known))
    report.unanswered = sorted(e.pin for e in entries if e.name not in answer.known)
    for name, version, ids in answer.found:
        matching = [a for a in allowed if a.package == name and a.id in ids]
        line = f"{name}=={version}: {', '.join(ids)}"
        current = [a for a in matching if a.until >= day]
        if current:
            report.accepted.append(f"{line} (until {current[0].until}: {current[0].reason})")
        else:
            past = f" (the exception ended on {matching[0].until})" if matching else ""
            report.open.append(line + past)
    return report


def audit(
    here: Sequence[Locked],
    allowed: list[Allowed],
    day: date,
    reachable: tuple[str | None, list[str]],
) -> Report:
    """Return the report on locked packages by the service that answers, if one does."""
    service, reasons = reachable
    if service is None:
        return Report(unanswered=[e.pin for e in here], reasons=reasons)
    answer = ask(service, here)
    report = judged(answer, here, allowed, day)
    report.reasons = [answer.trouble] if answer.trouble else []
    return report


def show(path: Path, report: Report) -> None:
    """Print a report in a few lines."""
    name = path.name
    if report.audited:
        print(f"{name}: {report.audited} packages audited, {len(report.open)} vulnerable")
    if report.unanswered:
        few = ", ".join(report.unanswered[:FEW]) + (", ..." * (len(report.unanswered) > FEW))
        why = "; ".join(report.reasons) or "the service does not know them"
        print(f"{name}: not audited: {len(report.unanswered)} packages ({few}): {why}")
    for line in report.accepted:
        print(f"{name}: accepted: {line}")
    for line in report.open:
        print(f"{name}: VULNERABLE: {line}")


def main(argv: Sequence[str] | None = None) -> int:
    """Audit lock files; return the exit status."""
    parser = argparse.ArgumentParser(description="known vulnerabilities of locked packages")
    parser.add_argument("locks", nargs="*", type=Path, default=[WORKBOOK], help="lock files")
    parser.add_argument("--strict", action="store_true", help="exit 3 where nothing was answered")
    args = parser.parse_args(argv)
    try:
        allowed = exceptions(EXCEPTIONS)
        locks = {p: [e for e in read_lock(p) if applies_here(e)] for p in args.locks}
    except (BadExceptionsError, OSError, tomllib.TOMLDecodeError) as error:
        print(f"audit: {error}", file=sys.stderr)
        return WRONG
    day = datetime.now(tz=UTC).date()
    reachable = first_reachable([e for entries in locks.values() for e in entries])
    statuses = []
    for path, entries in locks.items():
        report = audit(entries, allowed, day, reachable)
        show(path, report)
        statuses.append(report.status(args.strict))
    return FOUND if FOUND in statuses else max(statuses, default=DONE)


if __name__ == "__main__":
    sys.exit(main())

"""Mutation testing of the pure packages: changes of the code that no test notices.

mutmut works in a copy under build/ (the package under src/, where mutmut looks for it), with one
package and its own fast tests, and stops after a time. Survivors are written with their diffs.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from locked import ROOT

PACKAGES = ("metrics", "stats", "physics")
SLOW = {"stats": ("test_stats_coverage.py",)}  # simulations of minutes
# Polars' threads do not survive a fork: workers come from a process that only imported it.
PRELOAD = "numpy\npolars\nscipy.stats\npydantic\nhypothesis\n"
CONFIG = """[mutmut]
source_paths=src
only_mutate=
{only}
process_isolation=forkserver
forkserver_warmup=import
preload_modules_file=preload.txt
also_copy=
    preload.txt
    params
    notebooks
    docs
pytest_add_cli_args=
    -p
    no:cacheprovider
    -q
pytest_add_cli_args_test_selection=
{tests}
"""


def prepare(package: str, build: Path) -> Path:
    """Return a fresh copy of the project laid out for mutmut."""
    work = build / package
    shutil.rmtree(work, ignore_errors=True)
    unseen = shutil.ignore_patterns("__pycache__")
    for name in ("params", "notebooks", "docs", "tests/unit", "tests/conftest.py"):
        target = work / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target, ignore=unseen)
        else:
            shutil.copy(ROOT / name, target)
    shutil.copy(ROOT / "pyproject.toml", work)
    shutil.copytree(ROOT / "lib" / "enginebook", work / "src" / "enginebook", ignore=unseen)
    slow = SLOW.get(package, ())
    tests = [t for t in (work / "tests/unit" / package).glob("test_*.py") if t.name not in slow]
    modules = sorted((work / "src/enginebook" / package).glob("*.py"))
    text = CONFIG.format(
        only="\n".join(f"    {m.relative_to(work)}" for m in modules if m.name != "__init__.py"),
        tests="\n".join(f"    {t.relative_to(work)}" for t in sorted(tests)),
    )
    (work / "preload.txt").write_text(PRELOAD, encoding="utf-8")
    (work / "setup.cfg").write_text(text, encoding="utf-8")
    return work


def mutmut(work: Path, *words: str, limit_s: float) -> tuple[int, str]:
    """Return mutmut's exit status (124 after its time) and what it wrote."""
    with (work / "mutmut.log").open("w+", encoding="utf-8") as log:
        argv = [str(Path(sys.executable).with_name("mutmut")), *words]
        process = subprocess.Popen(
            argv, cwd=work, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            status = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # its workers with it
            status = 124
        log.seek(0)
        return status, log.read()


def statuses(work: Path) -> dict[str, str]:
    """Return the verdict on every mutant."""
    _, text = mutmut(work, "results", "--all", "true", limit_s=120)
    lines = [line.strip().split(": ", 1) for line in text.splitlines() if "__mutmut_" in line]
    return {line[0]: line[-1] for line in lines}


def survivors(work: Path, found: dict[str, str]) -> str:
    """Return the diffs of mutants that no test noticed."""
    names = sorted(n for n, verdict in found.items() if verdict in {"survived", "no tests"})
    return "\n".join(mutmut(work, "show", name, limit_s=60)[1] for name in names)


def main(argv: Sequence[str] | None = None) -> int:
    """Run mutation tests of one or more packages; exit 0 even with survivors: people read them."""
    parser = argparse.ArgumentParser(description="mutation tests of metrics, stats and physics")
    parser.add_argument("packages", nargs="*", default=PACKAGES)
    parser.add_argument("--seconds", type=float, default=420, help="for one package")
    parser.add_argument("--sample", type=int, help="so many mutants of a package, drawn by --seed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--children", type=int, default=2)
    args = parser.parse_args(argv)
    for package in args.packages:
        work = prepare(package, ROOT / "build" / "mutants")
        children = ("--max-children", str(args.children))
        names: list[str] = []
        if args.sample:
            mutmut(work, "run", *children, "nothing", limit_s=args.seconds)
            every = sorted(statuses(work))
            names = random.Random(args.seed).sample(every, min(args.sample, len(every)))  # noqa: S311
        status, text = mutmut(work, "run", *children, *names, limit_s=args.seconds)
        found = statuses(work)
        (work / "survivors.diff").write_text(survivors(work, found), encoding="utf-8")
        print(f"{package}: {dict(Counter(found.values()))} (mutmut ended with {status})")
        if not found:
            print(text[-2000:])
    return 0


if __name__ == "__main__":
    sys.exit(main())

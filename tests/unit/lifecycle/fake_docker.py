"""A stand-in for docker: a daemon-like runtime whose containers outlive their client.

Understands info, image inspect, pull, run, inspect and rm; keeps its state in FAKE_DOCKER_STATE.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

STATE = Path(os.environ["FAKE_DOCKER_STATE"])


def note(text: str) -> None:
    with (STATE / "calls").open("a") as file:
        file.write(text + "\n")


def parse_run(words: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    flags: dict[str, list[str]] = {}
    rest = list(words)
    while rest and rest[0].startswith("--"):
        name = rest.pop(0)
        takes_value = name not in {"--rm", "--init"}
        flags.setdefault(name, []).append(rest.pop(0) if takes_value else "")
    return flags, rest


def run(words: list[str]) -> int:
    flags, (_, *arguments) = parse_run(words)
    argv = [flags["--entrypoint"][0], *arguments]
    # A container gets the variables that were named, and no others.
    names = [n for n in flags.get("--env", []) if "=" not in n]
    env = {n: os.environ[n] for n in names} | {"PATH": os.environ["PATH"]}
    if "--name" not in flags:
        return subprocess.run(argv, env=env, check=False).returncode
    # The engine belongs to the daemon: killing this client leaves it.
    engine = subprocess.Popen(["setsid", *argv], env=env)
    (STATE / flags["--name"][0]).write_text(str(engine.pid))
    signal.signal(signal.SIGTERM, lambda *_: None if "deaf" in words else engine.terminate())
    return engine.wait()


def remove(name: str) -> int:
    path = STATE / name
    if path.exists():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(path.read_text()), signal.SIGKILL)
        path.unlink()
    return 0


def image(_: list[str]) -> int:
    print(12345)
    return 0 if (STATE / "image").exists() else 1


def pull(_: list[str]) -> int:
    if (STATE / "no-network").exists():
        print("dial tcp: lookup registry: no such host")
        return 1
    time.sleep(0.05)
    (STATE / "image").touch()
    return 0


def inspect(words: list[str]) -> int:
    print((STATE / words[-1]).read_text())
    return 0


COMMANDS = {
    "info": lambda _: 0 if (STATE / "service").exists() else 1,
    "image": image,
    "pull": pull,
    "run": run,
    "inspect": inspect,
    "rm": lambda words: remove(words[-1]),
}


if __name__ == "__main__":
    note(" ".join(sys.argv[1:]))
    sys.exit(COMMANDS[sys.argv[1]](sys.argv[2:]))

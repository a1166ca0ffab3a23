"""What an owner asks of a guard. Standard library only (part of the guard)."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

NOT_STARTED = 127


class Order:
    """What the owner asks for.

    Attributes
    ----------
    argv, directory, log, status, lease
        Command line, working folder, log file, status file, lease file ("" for none).
    owner, owner_identity
        The pid that must live, and its start time.
    grace_s, orphan_grace_s
        Seconds between TERM and KILL, when stopped in order and when the owner is gone.
    keep_warm_s
        Seconds for which the engine outlives its last owner.
    socket
        Unix socket by which others attach; "" for none.
    cleanup
        Command to run when all is ended, such as the removal of a container.
    about
        JSON that is copied to the lease: port, engine, model ...
    """

    def __init__(self, given: dict[str, Any]) -> None:
        self.argv: list[str] = given["argv"]
        self.directory = Path(given["directory"])
        self.log = Path(given["log"])
        self.status = Path(given["status"])
        self.lease = Path(given["lease"]) if given.get("lease") else None
        self.owner: int = given["owner"]
        self.owner_identity: str = given["owner_identity"]
        self.grace_s: float = given["grace_s"]
        self.orphan_grace_s: float = given["orphan_grace_s"]
        self.keep_warm_s: float = given.get("keep_warm_s", 0.0)
        self.socket = Path(given["socket"]) if given.get("socket") else None
        self.cleanup: list[str] = given.get("cleanup", [])
        self.about: dict[str, Any] = given.get("about", {})

    @classmethod
    def from_stdin(cls) -> Order:
        """Read the first line of stdin, and not a byte more."""
        line = b""
        while not line.endswith(b"\n"):
            byte = os.read(0, 1)
            if not byte:
                sys.exit(NOT_STARTED)
            line += byte
        return cls(json.loads(line))

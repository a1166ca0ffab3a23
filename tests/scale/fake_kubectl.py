"""A stand-in for kubectl that checks manifests and runs their pods as processes of this machine.

State lies in the folder that FAKE_KUBECTL names: one JSON file a job. A pod's environment is what
its manifest says and nothing of the caller's but PATH and the test's own variables.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(os.environ["FAKE_KUBECTL"])
SUPERVISE = """\
import json, os, pathlib, subprocess, sys
file, argv = pathlib.Path(sys.argv[1]), sys.argv[2:]
code = subprocess.call(argv)
kind = "Complete" if code == 0 else "Failed"
job = json.loads(file.read_text())
job["status"] = {"conditions": [{"type": kind, "status": "True"}]}
part = file.with_suffix(".part")
part.write_text(json.dumps(job))
part.replace(file)
"""


def create(manifest: dict[str, Any]) -> None:
    import kubernetes_validate  # noqa: PLC0415 - the other orders do not need it

    version = kubernetes_validate.latest_version()
    kubernetes_validate.validate(manifest, version, strict=True)
    name = manifest["metadata"]["name"]
    pod = manifest["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    env = {n: v for n, v in os.environ.items() if n.startswith(("PATH", "TEST_", "SLEEP", "FAIL"))}
    fields = {"spec.nodeName": "node-of-test", "metadata.name": f"{name}-pod"}
    for row in container["env"]:
        source = row.get("valueFrom", {})
        value = row.get("value") or fields.get(source.get("fieldRef", {}).get("fieldPath"))
        if value:
            env[row["name"]] = value
    file = FOLDER / f"{name}.json"
    file.write_text(json.dumps({**manifest, "status": {}}))
    with (FOLDER / f"{name}.log").open("w") as log:
        pid = subprocess.Popen(
            [sys.executable, "-c", SUPERVISE, str(file), *container["command"]],
            cwd=container["workingDir"], env=env, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            start_new_session=True,
        ).pid  # fmt: skip
    (FOLDER / f"{name}.pid").write_text(str(pid))
    print(f"job.batch/{name} created")


def delete(name: str) -> None:
    """End a pod and forget its job."""
    (FOLDER / f"{name}.json").unlink(missing_ok=True)
    with contextlib.suppress(OSError, ValueError):
        os.killpg(int((FOLDER / f"{name}.pid").read_text()), signal.SIGTERM)


def main(words: list[str]) -> int:
    with (FOLDER / "calls.log").open("a") as log:
        log.write(" ".join(words) + "\n")
    assert words[:2] == ["--namespace", "default"], words
    order, *rest = words[2:]
    if order == "create":
        create(json.loads(sys.stdin.read()))
    elif order == "get":
        file = FOLDER / f"{rest[1]}.json"
        sys.stdout.write(file.read_text() if file.is_file() else "")
    elif order == "delete":
        label, _, value = rest[1].removeprefix("--selector=").partition("=")
        for file in FOLDER.glob("*.json"):
            if json.loads(file.read_text())["metadata"]["labels"].get(label) == value:
                delete(file.stem)
    else:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

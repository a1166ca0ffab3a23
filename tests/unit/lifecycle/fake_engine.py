"""A small server with the faults of real engines, for tests of the lifecycle.

It speaks /health, /v1/models, /version and streaming /v1/completions on 127.0.0.1.
"""

from __future__ import annotations

import argparse
import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time

SLEEPER = [sys.executable, "-S", "-c", "import signal, time, sys\n{}\ntime.sleep(300)"]
DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--model", default="fake")
    parser.add_argument("--load-s", type=float, default=0.0, help="sleep before listening")
    parser.add_argument("--busy-s", type=float, default=0.0, help="503 for so long after listening")
    parser.add_argument("--fault", default="", help="a comma-separated list")
    return parser.parse_args()


def sleeper(*, deaf: bool, session: bool) -> subprocess.Popen:
    argv = [*SLEEPER[:3], SLEEPER[3].format(DEAF if deaf else "")]
    return subprocess.Popen(argv, start_new_session=session)


def double_fork() -> None:
    """Leave a daemon: a grandchild in a session of its own whose parent is gone."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.environ.pop("ENGINEBOOK_SERVER", None)
            os.execve(sys.executable, [*SLEEPER[:3], SLEEPER[3].format(DEAF)], dict(os.environ))
        os._exit(0)
    os.wait()


def start_children(faults: set[str]) -> None:
    if "fork" in faults:
        sleeper(deaf=False, session=False)
    if "deaf-child" in faults:
        sleeper(deaf=True, session=False)
    if "setsid" in faults:
        sleeper(deaf=True, session=True)
    if "double-fork" in faults:
        double_fork()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model = "fake"
    ready_at = 0.0

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        answers = {
            "/health": {"status": "ok"},
            "/version": {"version": "9.9"},
            "/v1/models": {"data": [{"id": self.model}]},
        }
        body = answers.get(self.path)
        self._send(200 if body else 404, json.dumps(body or {}).encode())

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if time.monotonic() < self.ready_at:
            self._send(503, b"loading")
        elif asked["model"] != self.model:
            self._send(404, b"no such model")
        else:
            chunk = {"choices": [{"index": 0, "text": " there", "finish_reason": "length"}]}
            self._send(200, f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode())

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main() -> None:
    args = arguments()
    faults = set(filter(None, args.fault.split(",")))
    print("fake engine: loading", flush=True)
    if "ignore-term" in faults:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    start_children(faults)
    if "crash-at-start" in faults:
        print("RuntimeError: CUDA out of memory. Tried to allocate 20 GiB", flush=True)
        sys.exit(3)
    if "die-by-signal" in faults:
        os.kill(os.getpid(), signal.SIGKILL)
    if "hang" in faults:
        time.sleep(300)
    time.sleep(args.load_s)
    Handler.model = args.model
    Handler.ready_at = time.monotonic() + args.busy_s
    server = http.server.ThreadingHTTPServer(("127.0.0.1", args.port), Handler)
    server.daemon_threads = True
    print(f"fake engine: listening on {server.server_port}", flush=True)
    if "crash-later" in faults:
        threading.Timer(1.0, os._exit, [4]).start()
    server.serve_forever()


if __name__ == "__main__":
    main()

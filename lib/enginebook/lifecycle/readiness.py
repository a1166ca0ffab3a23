"""When an engine is ready: alive, itself the one that answers, and answering a request."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import orjson

from enginebook.errors import EngineError
from enginebook.inquiry import Place, asking, lines_of, whole_of
from enginebook.lifecycle import ports
from enginebook.lifecycle.failures import ending, recognise
from enginebook.lifecycle.logpump import tail
from enginebook.lifecycle.owned import OwnedProcess

TAIL_LINES = 20
MOST_SAID = 400  # characters of a server's answer that a message quotes
MOST_MODELS = 1000
JSON_HEADERS = {"Content-Type": "application/json"}
FAST_POLL_S, SLOW_POLL_S = 0.02, 0.1
FAST_POLL_UNTIL_S = 10.0
EVENT_EVERY_S = 1.0
HTTP_OK, HTTP_NOT_FOUND, HTTP_BAD, HTTP_BUSY = 200, 404, 400, 500


@dataclass(frozen=True)
class Address:
    """Where a server listens, and under which name it should serve its model."""

    host: str
    port: int
    prefix: str = ""

    @classmethod
    def of(cls, base_url: str) -> Address:
        """Return the address in a base URL; a trailing ``/v1`` is dropped."""
        if "@" in base_url:
            raise EngineError(
                "the address of a server holds a user name or a password",
                "give it without: what stands in a study is written to every record",
            )
        try:
            parts = urlsplit(base_url)
            host, port = parts.hostname, parts.port or 80
        except ValueError:
            parts, host, port = urlsplit(""), None, 0
        if parts.scheme != "http" or host is None:
            raise EngineError(f"{base_url} is not an http:// address", "give http://host:port")
        path = parts.path.rstrip("/").removesuffix("/v1")
        return cls(host, port, path)

    def get(self, path: str, timeout_s: float = 5.0) -> tuple[int, bytes]:
        """Return status and body of a GET; the connection goes straight, past any proxy."""
        with asking(self.place, "GET", self.prefix + path, timeout_s) as response:
            return response.status, whole_of(response)

    @property
    def place(self) -> Place:
        """Return where it is asked."""
        return Place(self.host, self.port)

    def post(self, path: str, fields: Mapping[str, Any], timeout_s: float) -> tuple[int, bytes]:
        """Return status and body of the answer to a question of JSON."""
        body = json.dumps(fields).encode()
        with asking(
            self.place, "POST", self.prefix + path, timeout_s, body=body, headers=JSON_HEADERS
        ) as response:
            return response.status, whole_of(response)

    def first_token(self, model_id: str, timeout_s: float) -> float:
        """Ask for one token as a stream; return the monotonic time at which it came.

        Raises
        ------
        EngineError
            When the server refuses the request or ends the stream without a token.
        Busy
            When it says that it is not ready (HTTP 5xx).
        """
        asked = {"model": model_id, "prompt": "Hello", "max_tokens": 1, "temperature": 0}
        body = json.dumps({**asked, "stream": True}).encode()
        path = f"{self.prefix}/v1/completions"
        with asking(
            self.place, "POST", path, timeout_s, body=body, headers=JSON_HEADERS
        ) as response:
            return _time_of_token(response)


class Busy(Exception):  # noqa: N818 - a state, not an error
    """The server answers, but not yet with tokens."""


def _time_of_token(response: http.client.HTTPResponse) -> float:
    if response.status >= HTTP_BUSY:
        raise Busy(response.read(400).decode(errors="replace"))
    if response.status >= HTTP_BAD:
        body = response.read(400).decode(errors="replace")
        raise EngineError(
            f"the engine refuses a request for one token: HTTP {response.status}: {body}",
            "see the engine's log",
        )
    for raw in lines_of(response):
        line = raw.strip()
        if line.startswith(b"data:") and b"[DONE]" not in line:
            moment = time.monotonic()
            message = orjson.loads(line[5:])
            if not isinstance(message, dict):
                continue
            if message.get("choices"):
                return moment
            if "error" in message:
                said = line[5:].decode(errors="replace").strip()
                raise EngineError(f"the engine answers an error: {said[:MOST_SAID]}")
    raise EngineError("the engine ended the stream without a token", "see the engine's log")


@dataclass(frozen=True)
class Ready:
    """When the engine was ready and when its first token came; seconds since process start."""

    ready_s: float
    first_token_s: float


class Waiter:
    """Waits for one engine of ours. Every wait ends by success, death, or the time limit."""

    def __init__(
        self,
        process: OwnedProcess,
        address: Address,
        *,
        ready_path: str,
        model_id: str,
        timeout_s: float,
        on_event: Callable[[str], None],
    ) -> None:
        self.process = process
        self.address = address
        self.ready_path = ready_path
        self.model_id = model_id
        self.timeout_s = timeout_s
        self.on_event = on_event
        self._told_s = 0.0

    def wait(self) -> Ready:
        """Return when the first token has come.

        Raises
        ------
        EngineError
            When the engine dies, hangs, or another process answers in its place.
        """
        for _ in self._polls("listens"):
            if self._listens_and_is_ours():
                break
        for _ in self._polls("is ready"):
            if self._says_ready() and self._serves_model():
                break
        ready_s = self.process.elapsed_s()
        for _ in self._polls("answers a request"):
            with suppress(OSError, http.client.HTTPException, Busy, ValueError):
                left_s = max(1.0, self.timeout_s - self.process.elapsed_s())
                moment = self.address.first_token(self.model_id, left_s)
                return Ready(ready_s, moment - self.process.started)
        raise AssertionError("the polls ended")  # _polls() raises instead

    def _polls(self, goal: str) -> Iterator[None]:
        while True:
            yield
            elapsed_s = self.process.elapsed_s()
            if not self.process.alive():
                raise self.death()
            if elapsed_s > self.timeout_s:
                raise self._trouble(
                    f"the engine did not get so far that it {goal} within {self.timeout_s:g} s",
                    "see its log; a slow start needs a longer time limit",
                )
            self._tell(elapsed_s)
            time.sleep(FAST_POLL_S if elapsed_s < FAST_POLL_UNTIL_S else SLOW_POLL_S)

    def _tell(self, elapsed_s: float) -> None:
        if elapsed_s - self._told_s >= EVENT_EVERY_S:
            self._told_s = elapsed_s
            # Indented lines continue another one and mean little alone.
            lines = [x for x in tail(self.process.log, 8) if not x[0].isspace()]
            self.on_event(f"{elapsed_s:.0f} s: {(lines or ['no output yet'])[-1][:120]}")

    def _listens_and_is_ours(self) -> bool:
        if ports.listeners(self.address.port, self.process.pids()):
            return True
        if self._answers("/") is None:
            return False
        if self._is_ours_now():
            return True
        raise self._trouble(
            f"port {self.address.port} is answered by {ports.holder(self.address.port)}, "
            "which is not the engine that was started",
            "end that process, or set port: 0 to have a free one chosen",
        )

    def _is_ours_now(self) -> bool:
        """Look once more: the engine may have begun to listen between the two looks.

        A container's processes may be another user's, whose sockets are not shown; as the port
        was free before, and the model's name is checked next, its answer counts as ours.
        """
        if self.process.in_container and ports.holder(self.address.port).pid is None:
            return True
        return bool(ports.listeners(self.address.port, self.process.pids()))

    def _says_ready(self) -> bool:
        """Ask the ready page; a version that has none is judged by its models and first token."""
        with suppress(OSError, http.client.HTTPException):
            return self.address.get(self.ready_path)[0] in {HTTP_OK, HTTP_NOT_FOUND}
        return False

    def _answers(self, path: str) -> bytes | None:
        with suppress(OSError, http.client.HTTPException):
            status, body = self.address.get(path)
            if status == HTTP_OK or path == "/":
                return body
        return None

    def _serves_model(self) -> bool:
        body = self._answers("/v1/models")
        if body is None:
            return False
        names = model_ids(body)
        if self.model_id not in names:
            raise self._trouble(
                f"the server on port {self.address.port} serves {', '.join(names) or 'no model'}, "
                f"not {self.model_id}",
                "this is not the engine that was started, or it ignores its served name",
            )
        return True

    def death(self) -> EngineError:
        """Return the error that tells how the engine died."""
        report = self.process.wait_report(timeout_s=20.0)
        return self._trouble(
            f"the engine died {self.process.elapsed_s():.1f} s after its start "
            f"({ending(report.get('exit_code'))})",
            f"see {self.process.log}",
        )

    def _trouble(self, message: str, remedy: str) -> EngineError:
        lines = tail(self.process.log, TAIL_LINES)
        known = recognise(tail(self.process.log, 400))
        if known is not None:
            message, remedy = f"{message}: {known.meaning}", known.remedy
        shown = "\n".join(f"    {line}" for line in lines) or "    (it said nothing)"
        return EngineError(
            f"{message}; its log ends:\n{shown}", f"{remedy} (log: {self.process.log})"
        )


def model_ids(body: bytes) -> list[str]:
    """Return the ids in an answer of /v1/models; empty when it is not one."""
    with suppress(ValueError, TypeError, KeyError):
        answer: Any = orjson.loads(body)
        return [str(entry["id"]) for entry in answer["data"]][:MOST_MODELS]
    return []

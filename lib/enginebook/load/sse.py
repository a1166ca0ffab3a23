"""Server-sent events out of a finished body: payloads, and where in the body each one ended.

Follows the WHATWG standard (comments, CR, LF and CRLF, fields without a space, several data lines,
byte order mark) with one leniency: an event at the very end counts without its blank line, because
some servers close right after ``data: [DONE]``.
"""

from __future__ import annotations

import re
from itertools import accumulate

_LINE = re.compile(rb"([^\r\n]*)(\r\n|\n|\r|$)")
_BOM = b"\xef\xbb\xbf"
_PLAIN = b"data: "
_PLAIN_LENGTH = len(_PLAIN)


class Events:
    """The events of one body.

    Attributes
    ----------
    payloads
        The data of each event.
    starts, ends
        Byte offsets in the body: of the event's first byte, and past the end of its last data line.
        The event is complete for a reader when the byte before ``ends`` is there.
    names
        Event types other than the default, by position.
    """

    __slots__ = ("ends", "names", "payloads", "starts")

    def __init__(
        self,
        payloads: list[bytes],
        starts: list[int],
        ends: list[int],
        names: dict[int, bytes] | None = None,
    ) -> None:
        self.payloads = payloads
        self.starts = starts
        self.ends = ends
        self.names = names or {}


def read_events(body: bytes) -> Events:
    """Return the events of a body."""
    return _read_plain(body) or _read_any(body)


def _read_plain(body: bytes) -> Events | None:
    """Read the form that nearly every server sends: ``data: X``, blank line, again."""
    if b"\r" in body or not body.endswith(b"\n\n"):
        return None
    parts = body.split(b"\n\n")
    parts.pop()
    if body.count(b"\n") != 2 * len(parts):
        return None
    for part in parts:
        if not part.startswith(_PLAIN):
            return None
    past = list(accumulate(len(part) + 2 for part in parts))
    starts = [0, *past[:-1]]
    return Events([part[_PLAIN_LENGTH:] for part in parts], starts, [end - 1 for end in past])


def _read_any(body: bytes) -> Events:
    events = Events([], [], [])
    data: list[bytes] = []
    name = b""
    start, end = -1, 0
    for line, begin, past in _lines(body):
        if not line:
            _dispatch(events, data, name, start, end)
            data, name, start = [], b"", -1
            continue
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
            start, end = (begin if start < 0 else start), past
        elif field == b"event":
            name = value
    _dispatch(events, data, name, start, end)
    return events


def _dispatch(events: Events, data: list[bytes], name: bytes, start: int, end: int) -> None:
    if not data:
        return
    if name not in {b"", b"message"}:
        events.names[len(events.payloads)] = name
    events.payloads.append(b"\n".join(data))
    events.starts.append(start)
    events.ends.append(end)


def _lines(body: bytes) -> list[tuple[bytes, int, int]]:
    """Return (line, offset of its first byte, offset past its end mark)."""
    skip = len(_BOM) if body.startswith(_BOM) else 0
    found = [(m.group(1), m.start(), m.end()) for m in _LINE.finditer(body, skip)]
    return [line for line in found if line[2] > line[1]]

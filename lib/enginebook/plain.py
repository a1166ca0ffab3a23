"""Foreign text (logs, answers, names) as plain text: it can restyle no terminal and no page.

Standard library only: the guard of engines and the errors' module use it, too.
"""

from __future__ import annotations

import re

# ESC sequences (CSI, OSC and its kin, two-character) as terminals read them
_TERMINAL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor moves
    r"|\x1b[]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC, DCS, SOS, PM, APC: titles, links, ...
    r"|\x1b[@-_]?"  # anything else that begins with ESC
)
# Control characters but tab and newline; direction marks and overrides; what is invisible and
# makes two different names look the same. The joiners U+200C and U+200D stay: scripts need them.
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)
MORE = " ... "


def neutral(text: object) -> str:
    """Return text without terminal escapes, control characters and direction overrides."""
    plain = _TERMINAL.sub("", str(text)).replace("\r\n", "\n")
    # a carriage return redraws a line on a terminal: keep what a reader would have seen last
    if "\r" in plain:
        plain = "\n".join(line.rstrip("\r").rsplit("\r", 1)[-1] for line in plain.split("\n"))
    return _CONTROL.sub("", plain)


def shortened(text: str, most: int) -> str:
    """Return a text of at most so many characters: its beginning and its end."""
    if len(text) <= most:
        return text
    kept = most - len(MORE)
    return text[: kept - kept // 3] + MORE + text[-(kept // 3) :]

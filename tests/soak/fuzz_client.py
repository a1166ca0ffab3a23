"""Fuzzes the client by coverage: bytes of a server straight at framing and decoder, until told.

Needs atheris, which is no dependency of Enginebook (wheels exist for CPython 3.11 to 3.13):

    pip install atheris
    python tests/soak/fuzz_client.py -max_total_time=3600 -rss_limit_mb=2048 -timeout=10

The first byte says how the rest is cut. A crash, a hang of 10 s, or 2 GB of memory ends it with the
input in a file; any corpus folder may be given as a further argument.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[1] / "faults"))
with atheris.instrument_imports(include=["enginebook"]):
    import hostile_support

    from enginebook.load.decode import Decoder
    from enginebook.load.records import Records, frames_of
    from enginebook.metrics import summarise


@atheris.instrument_func
def one(data: bytes) -> None:
    """Let the client read an answer, and all that follows read the client's record."""
    if not data:
        return
    pieces = hostile_support.pieces_of(data[1:], random.Random(data[0]))
    decoder = Decoder(0, None)
    decoder.add(hostile_support.answered(pieces))
    json.dumps(summarise(Records(*frames_of(decoder.columns), {})), allow_nan=False)


def main() -> None:
    """Start from the usual answers, so that the fuzzer need not find HTTP by itself."""
    if not any(not word.startswith("-") for word in sys.argv[1:]):
        corpus = Path(tempfile.mkdtemp(prefix="enginebook-fuzz-"))
        for number, answer in enumerate(hostile_support.USUAL_ANSWERS):
            (corpus / f"usual-{number}").write_bytes(b"\x00" + answer)
        sys.argv.append(str(corpus))
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()

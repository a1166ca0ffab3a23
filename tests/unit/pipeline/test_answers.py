"""What engines are asked: both forms of log-probabilities, refusals, right words, and the gate."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import polars as pl
import pytest

from enginebook.errors import EngineError
from enginebook.pipeline.steps.answers import (
    PROMPTS,
    answered,
    greedy_texts,
    is_right,
    questions,
    told_tokens,
)
from enginebook.pipeline.steps.compare import without_trust

COMPLETIONS = {
    "tokens": [" Paris"],
    "token_logprobs": [-0.5],
    "top_logprobs": [{" Paris": -0.5, " the": -1.5}],
}
BEST = [
    {"id": 7, "token": " Paris", "logprob": -0.5},
    {"id": 8, "token": " the", "logprob": -1.5},
]
CHAT = {"content": [{**BEST[0], "top_logprobs": BEST}]}
TOLD = [{"token": " Paris", "logprob": -0.5, "top": [[" Paris", -0.5], [" the", -1.5]]}]


@contextmanager
def serving(answer: Any) -> Iterator[str]:
    """Serve completions.

    ``answer`` takes the request's body, and returns a choice, a status, or a body as it is.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            found = answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            known = self.path == "/v1/completions"
            self.send_response(found if isinstance(found, int) else 200 if known else 404)
            if isinstance(found, bytes):
                self.send_header("Content-Length", "100")
            self.end_headers()
            whole = isinstance(found, bytes)
            self.wfile.write(found if whole else json.dumps({"choices": [found]}).encode())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.parametrize("logprobs", [COMPLETIONS, CHAT])
def test_both_forms_of_log_probabilities_are_read(logprobs: Any) -> None:
    assert told_tokens(logprobs) == TOLD


@pytest.mark.parametrize(
    "logprobs",
    [
        None,
        3,
        {},
        {"tokens": ["a"], "token_logprobs": [None], "top_logprobs": [None]},
        {"tokens": ["a", "b"], "token_logprobs": [-1.0], "top_logprobs": [{}]},
        {"content": [{"id": 1}]},
    ],
)
def test_other_forms_are_no_tokens(logprobs: Any) -> None:
    assert told_tokens(logprobs) == []


def test_an_engine_that_refuses_log_probabilities_is_asked_without() -> None:
    asked: list[bool] = []

    def answer(body: Any) -> Any:
        asked.append("logprobs" in body)
        return 400 if "logprobs" in body else {"text": " Paris"}

    with serving(answer) as url:
        found = greedy_texts(url, "m")
    assert asked == [True, False] * len(PROMPTS)
    assert found[0] == {"prompt": PROMPTS[0], "text": " Paris", "tokens": []}


@pytest.mark.parametrize("answer", [503, {"no": "text"}])
def test_no_answer_is_an_error(answer: Any) -> None:
    with serving(lambda _: answer) as url, pytest.raises(EngineError, match="no greedy completion"):
        answered(url, "m")


@pytest.mark.parametrize(
    "body",
    [
        b"[1, 2]", b'"text"', b"null", b"{}", b'{"choices": 3}', b'{"choices": []}',
        b'{"choices": ["text"]}', b'{"choices": [{"text": null}]}', b'{"choices": [{"te',
        b"<h1>\x1b[31mBad gateway</h1>",
    ],
)  # fmt: skip
def test_an_answer_of_another_form_is_quoted(body: bytes) -> None:
    with serving(lambda _: body.ljust(100)) as url, pytest.raises(EngineError) as told:
        greedy_texts(url, "m")
    assert str(told.value).startswith(f"no greedy completion from {url}")
    assert body.decode().replace("\x1b[31m", "") in str(told.value)


@pytest.mark.parametrize("size", [0, 50])
def test_an_answer_that_breaks_off_is_an_error(size: int) -> None:
    with serving(lambda _: b" " * size) as url, pytest.raises(EngineError, match="no greedy"):
        greedy_texts(url, "m")


def test_a_long_answer_is_quoted_in_part() -> None:
    with serving(lambda _: {"no": "text" * 10_000}) as url, pytest.raises(EngineError) as told:
        greedy_texts(url, "m")
    assert len(str(told.value)) < 700


def test_a_base_url_may_end_in_v1() -> None:
    with serving(lambda _: {"text": " Paris"}) as url:
        assert greedy_texts(f"{url}/v1", "m")[0]["text"] == " Paris"


def test_questions_are_counted_in_their_order() -> None:
    def answer(body: Any) -> Any:
        return {"text": " Paris, of course" if "France" in body["prompt"] else " nonsense"}

    with serving(answer) as url:
        found = answered(url, "m")
    assert [q["prompt"] for q in found] == [q["prompt"] for q in questions()]
    assert [q["prompt"] for q in found if q["right"]] == [
        q["prompt"] for q in questions() if "Paris" in q["answers"]
    ]


@pytest.mark.parametrize(
    ("text", "right"),
    [
        (" Paris.", True),
        ("\n**paris**", True),
        (" Parish", False),
        (" in Paris", False),
        ("", False),
    ],
)
def test_an_answer_is_a_whole_word_at_the_beginning(text: str, right: bool) -> None:
    assert is_right(text, ["Paris"]) is right


def test_every_question_has_one_prompt_and_answers_that_it_does_not_give_away() -> None:
    prompts = [q["prompt"] for q in questions()]
    assert len(set(prompts)) == len(prompts) >= 40
    for question in questions():
        assert question["answers"]
        assert all(isinstance(a, str) and a for a in question["answers"])
        last = question["prompt"].split()[-1].strip("`:,").casefold()
        assert last not in {a.casefold() for a in question["answers"]}


def test_cells_of_an_engine_that_answers_wrongly_fail_the_gate() -> None:
    cells = pl.DataFrame(
        {"engine": ["a", "b"], "gate_ok": [True, True], "flags": [[], ["host"]]},
        schema_overrides={"flags": pl.List(pl.String)},
    )
    found = without_trust(cells, ["b"])
    assert found["gate_ok"].to_list() == [True, False]
    assert found["flags"].to_list() == [[], ["host", "wrong_answers"]]
    assert without_trust(cells, []).equals(cells)

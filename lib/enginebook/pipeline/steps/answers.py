"""What every engine is asked to see that it computes its model: greedy texts and short questions.

`enginebook.metrics.correctness` judges the answers; here they are asked for and collected.
"""

from __future__ import annotations

import functools
import http.client
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import orjson

from enginebook.engines.recipes import recipe_for
from enginebook.errors import EngineError, InputError
from enginebook.lifecycle.readiness import MOST_SAID, Address
from enginebook.metrics.correctness import Peer, accuracy, agreement
from enginebook.pipeline.book import Book
from enginebook.pipeline.steps.physics import precision_of
from enginebook.plain import neutral, shortened
from enginebook.study import EngineSpec
from enginebook.study_file import read_yaml

PROMPTS = (
    "The capital of France is",
    "Water boils at a temperature of",
    "Once upon a time, in a small village,",
    "def add(a, b):\n    return",
)
OUTPUT_TOKENS = 16
QUESTION_TOKENS = 4
TOLD_TOKENS = 5  # best tokens at each place that an engine is asked to tell
ASKED_AT_ONCE = 4
TIMEOUT_S = 120.0
MOST_QUOTED = 4096  # bytes of an answer of which a message shows a part
REFUSED = (400, 422, 500, 501)  # an engine may not offer log-probabilities
BITS = {"fp32": 32, "bf16": 16, "fp8": 8, "int8": 8, "fp4": 8}

Json = dict[str, Any]


def greedy_texts(base_url: str, model: str) -> list[Json]:
    """Return ``prompt``, ``text`` and ``tokens`` of each of `PROMPTS`, from a running server.

    ``tokens`` holds ``token``, ``logprob`` and ``top`` (token and log-probability of the best) at
    each place; it is empty where the engine does not tell them.

    Raises
    ------
    EngineError
        When the server refuses or does not answer a completion.
    """
    return [
        {"prompt": p} | _complete(base_url, model, p, OUTPUT_TOKENS, told=TOLD_TOKENS)
        for p in PROMPTS
    ]


@functools.cache
def questions() -> tuple[Json, ...]:
    """Return the questions, each with ``prompt`` and ``answers``."""
    return tuple(read_yaml(Path(__file__).with_name("questions.yaml"))["questions"])


def answered(base_url: str, model: str) -> list[Json]:
    """Return ``prompt``, ``text`` and ``right`` of each question, greedily answered.

    Raises
    ------
    EngineError
        When the server refuses or does not answer a completion.
    """

    def one(question: Json) -> Json:
        found = _complete(base_url, model, question["prompt"], QUESTION_TOKENS, told=0)
        text = found["text"]
        return {
            "prompt": question["prompt"], "text": text, "right": is_right(text, question["answers"])
        }  # fmt: skip

    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        return list(pool.map(one, questions()))


def is_right(text: str, answers: list[str]) -> bool:
    """Return whether a text begins with one of the answers as a whole word, whatever its case."""
    said = text.strip(" \t\n\"'`*_").casefold()
    return any(
        said.startswith(a.casefold()) and not said[len(a) : len(a) + 1].isalnum() for a in answers
    )


def _complete(base_url: str, model: str, prompt: str, tokens: int, *, told: int) -> Json:
    body: Json = {
        "model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "top_p": 1,
        "seed": 0, "stream": False,
    }  # fmt: skip
    asked = body | ({"logprobs": told} if told else {})
    said = b""
    try:
        status, said = Address.of(base_url).post("/v1/completions", asked, TIMEOUT_S)
        if told and status in REFUSED:
            return _complete(base_url, model, prompt, tokens, told=0)
        choice = _choice(status, said)
    except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError) as error:
        raise _unanswered(base_url, error, said) from error
    return {"text": choice["text"], "tokens": told_tokens(choice.get("logprobs"))}


def _choice(status: int, said: bytes) -> Json:
    """Return the first choice of an answer, whose text is one."""
    if status != http.client.OK:
        raise http.client.HTTPException(f"HTTP {status}")
    choice = orjson.loads(said)["choices"][0]
    if not isinstance(choice, dict) or not isinstance(choice["text"], str):
        raise TypeError("its first choice is not an object with a text")
    return choice


def _unanswered(base_url: str, error: Exception, said: bytes) -> EngineError:
    message = f"no greedy completion from {base_url}: {error or type(error).__name__}"
    if said:
        quoted = neutral(said[:MOST_QUOTED].decode("utf-8", "replace")).strip()
        message += f"; it answered: {shortened(quoted, MOST_SAID)}"
    return EngineError(message, "look at the engine's log")


def told_tokens(logprobs: Any) -> list[Json]:
    """Return tokens and their log-probabilities from either form in which engines tell them.

    The completions form has lists side by side (vLLM, SGLang), the chat form one object a token
    (llama.cpp). Anything else is no tokens.
    """
    if not isinstance(logprobs, Mapping):
        return []
    try:
        if logprobs.get("content"):
            return [_chat_token(item) for item in logprobs["content"]]
        lists = (logprobs.get(k) or [] for k in ("tokens", "token_logprobs", "top_logprobs"))
        return [
            {"token": t, "logprob": float(lp), "top": [[k, float(v)] for k, v in top.items()]}
            for t, lp, top in zip(*lists, strict=True)
        ]
    except (TypeError, ValueError, LookupError, AttributeError):
        return []


def _chat_token(item: Mapping[str, Any]) -> Json:
    top = [[t["token"], float(t["logprob"])] for t in item["top_logprobs"]]
    return {"token": item["token"], "logprob": float(item["logprob"]), "top": top}


def judged(book: Book, launches: Mapping[str, Json]) -> tuple[list[Json], list[Json]]:
    """Return what `agreement` and `accuracy` say of the engines whose launch is stored."""
    peers = [_peer(book, engine) for engine in book.study.engines]
    texts = {v["engine"]: v["greedy"] for v in launches.values()}
    right = {v["engine"]: v["answered"] for v in launches.values() if v.get("answered")}
    found = accuracy(right, peers)
    return agreement(texts, peers, {row["engine"]: row["right"] for row in found}), found


def has_real_weights(book: Book, engine: EngineSpec) -> bool:
    """Return whether an engine's answers mean anything: invented weights answer at random."""
    simulated = "simulated" in recipe_for(engine).labels
    return book.study.model_of(engine).dummy is None and not simulated


def _peer(book: Book, engine: EngineSpec) -> Peer:
    try:
        bits = BITS[precision_of(book, engine).compute]
    except (InputError, KeyError):  # not known: held to the stricter of the usual two
        bits = 32
    weights = book.study.model_of(engine).label
    return Peer(engine.name, weights, bits, comparable=has_real_weights(book, engine))

"""What every engine is asked to see that it computes its model: greedy texts and short questions.

`enginebook.metrics.correctness` judges the answers; here they are asked for and collected.
"""

from __future__ import annotations

import functools
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from enginebook.engines.recipes import recipe_for
from enginebook.errors import EngineError, InputError
from enginebook.metrics.correctness import Peer, accuracy, agreement
from enginebook.pipeline.book import Book
from enginebook.pipeline.steps.physics import precision_of
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
    try:
        choice = _ask(base_url, body | ({"logprobs": told} if told else {}))
    except urllib.error.HTTPError as error:
        if not told or error.code not in REFUSED:
            raise _unanswered(base_url, error) from error
        return _complete(base_url, model, prompt, tokens, told=0)
    except (OSError, ValueError, LookupError) as error:
        raise _unanswered(base_url, error) from error
    return {"text": str(choice["text"]), "tokens": told_tokens(choice.get("logprobs"))}


def _ask(base_url: str, body: Json) -> Json:
    request = urllib.request.Request(  # noqa: S310 (our own server's http URL)
        f"{base_url.rstrip('/')}/v1/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=TIMEOUT_S) as response:
        choice = json.load(response)["choices"][0]
        choice["text"]
        return dict(choice)


def _unanswered(base_url: str, error: Exception) -> EngineError:
    return EngineError(f"no greedy completion from {base_url}: {error}", "look at the engine's log")


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
    return agreement(texts, peers), accuracy(right, peers)


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

"""Speculative decoding as one option of all engines, and the words each of them has for it."""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import model_validator

from enginebook.study import Frozen, PositiveInt

Method = Literal["ngram", "draft", "eagle", "eagle3", "mtp"]
LOOKUP = 4
NEEDS_MODEL = frozenset({"draft", "eagle", "eagle3"})


class Speculative(Frozen):
    """What proposes tokens that the model then checks in one step.

    Attributes
    ----------
    method
        ``ngram`` looks the last tokens up in the text so far; ``draft`` asks a smaller model,
        ``eagle`` and ``eagle3`` a head trained for it, ``mtp`` the model's own further heads.
    tokens
        Proposed in a step.
    model
        Path or hub id of the draft model or head.
    lookup
        Length of the n-gram that is looked up, at the most.
    """

    method: Method
    tokens: PositiveInt = 4
    model: str | None = None
    lookup: PositiveInt | None = None

    @model_validator(mode="after")
    def _whole(self) -> Speculative:
        if self.method in NEEDS_MODEL and self.model is None:
            raise ValueError(f"method {self.method} needs a model")
        if self.method == "ngram" and self.model is not None:
            raise ValueError("method ngram has no model")
        if self.method != "ngram" and self.lookup is not None:
            raise ValueError("lookup belongs to method ngram")
        return self

    @property
    def window(self) -> int:
        """Return the length of the n-gram that is looked up."""
        return self.lookup or LOOKUP


def vllm(s: Speculative) -> list[str]:
    """Return vLLM's ``--speculative-config``."""
    named = {"draft": "draft_model"}.get(s.method, s.method)
    config: dict[str, Any] = {"method": named, "num_speculative_tokens": s.tokens}
    if s.method == "ngram":
        config["prompt_lookup_max"] = s.window
    if s.model is not None:
        config["model"] = s.model
    return ["--speculative-config", json.dumps(config, sort_keys=True)]


def sglang(s: Speculative) -> list[str]:
    """Return SGLang's flags.

    It counts the tokens that a step checks, the one that is sure among them. A chain is asked for
    (one proposal a position), as in the other engines; by default it proposes a tree.
    """
    named = {"draft": "STANDALONE", "mtp": "NEXTN"}.get(s.method, s.method.upper())
    argv = ["--speculative-algorithm", named]
    argv += ["--speculative-num-draft-tokens", str(s.tokens + 1)]
    if s.method == "ngram":
        return [*argv, "--speculative-ngram-max-bfs-breadth", "1"]
    argv += ["--speculative-num-steps", str(s.tokens), "--speculative-eagle-topk", "1"]
    return argv + (["--speculative-draft-model-path", s.model] if s.model is not None else [])


def llamacpp(s: Speculative) -> list[str]:
    """Return the launcher's flag; llama.cpp's draft models and heads are GGUF files."""
    return ["--speculative", json.dumps({**s.model_dump(), "lookup": s.window}, sort_keys=True)]


def tensorrt_llm(s: Speculative) -> dict[str, Any]:
    """Return TensorRT-LLM's ``speculative_config``.

    Raises
    ------
    ValueError
        For a draft model, whose configuration goes by another name in each of its versions.
    """
    if s.method == "ngram":
        return {
            "decoding_type": "NGram",
            "max_draft_len": s.tokens,
            "max_matching_ngram_size": s.window,
        }
    if s.method == "mtp":
        return {"decoding_type": "MTP", "num_nextn_predict_layers": s.tokens}
    if s.method in {"eagle", "eagle3"}:
        return {
            "decoding_type": "Eagle",
            "max_draft_len": s.tokens,
            "speculative_model_dir": s.model,
        }
    raise ValueError("speculative method draft is not offered for TensorRT-LLM")


def lmdeploy(s: Speculative) -> list[str]:
    """Return LMDeploy's flags.

    Raises
    ------
    ValueError
        For methods that it does not have.
    """
    if s.method not in {"eagle", "eagle3"}:
        raise ValueError(f"speculative method {s.method} is not offered by LMDeploy for all models")
    argv = ["--speculative-algorithm", s.method, "--speculative-draft-model", str(s.model)]
    return [*argv, "--speculative-num-draft-tokens", str(s.tokens)]

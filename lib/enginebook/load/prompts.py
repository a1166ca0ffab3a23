"""Prompts of exact length that share nothing unless they are meant to.

Prompt k opens with the k-th id of a seeded permutation of ordinary tokens. Any two prompts of one
run, warm-up included, therefore differ at their first token, and no prefix cache of any page size
can answer for one with the other, up to as many prompts as there are ordinary tokens; beyond that
the second token tells them apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from enginebook.errors import InputError, LoadError
from enginebook.load.constraints import task_text
from enginebook.load.corpus import corpus_text
from enginebook.load.tokens import Tokens, corpus_ids, ordinary_ids
from enginebook.load.workload import Workload

Ids = npt.NDArray[np.int64]
SOURCE_FILE = "prompts.npz"
_CORPUS_CHARACTERS = 400_000
_MOST_CORRECTIONS = 60
_OPENING = 2  # ids that tell prompts apart


@dataclass(frozen=True)
class PromptSource:
    """Cuts prompts from a tokenised corpus.

    Attributes
    ----------
    corpus
        Token ids, shape (n,).
    ordinary
        Distinct ids that may open a prompt, shape (v,), in the seed's own order.
    tail
        Ids that end every prompt (the task, where there is one), shape (t,).
    """

    corpus: Ids
    ordinary: Ids
    seed: int
    random: bool = False
    shared_tokens: int = 0
    shared_share: float = 1.0
    shared_groups: int = 1
    tail: Ids = field(default_factory=lambda: np.empty(0, np.int64))

    def group_of(self, index: int) -> int | None:
        """Return which shared prefix a request begins with, or None."""
        if self.shared_tokens == 0:
            return None
        rng = np.random.default_rng([self.seed, 21, index % 2**32])
        if rng.random() >= self.shared_share:
            return None
        return int(rng.integers(self.shared_groups))

    def ids(self, index: int, length: int) -> Ids:
        """Return exactly ``length`` ids for request ``index`` (warm-up requests count from -1)."""
        tail = self.tail_of(length)
        return np.concatenate([self._head(index, length - len(tail)), tail])

    def tail_of(self, length: int) -> Ids:
        """Return the end of a prompt; a prompt too short for it keeps its last part."""
        room = max(0, length - _OPENING)
        return self.tail[max(0, len(self.tail) - room) :]

    def _head(self, index: int, length: int) -> Ids:
        group = self.group_of(index)
        if group is None:
            return self._own(index, length)
        prefix = self._own(group + 1, self.shared_tokens, stream=22)
        own = self._own(index, max(1, length - self.shared_tokens))
        return np.concatenate([prefix, own])[:length] if length > len(prefix) else prefix[:length]

    def _own(self, index: int, length: int, stream: int = 20) -> Ids:
        rng = np.random.default_rng([self.seed, stream, index % 2**32])
        size = len(self.ordinary)
        second = (index // size + int(rng.integers(size))) % size
        opening = self.ordinary[np.array([index % size, second])]
        if self.random:
            rest = self.ordinary[rng.integers(size, size=max(0, length - _OPENING))]
        else:
            start = int(rng.integers(len(self.corpus)))
            rest = self.slice(start, max(0, length - _OPENING))
        return np.concatenate([opening, rest])[:length]

    def blocks(self, keys: Sequence[int], length: int, block: int) -> Ids:
        """Return a prompt made of blocks of ids, one for each key: equal keys, equal blocks."""
        parts = [self._own(key + 1, block, stream=23) for key in keys]
        ids = np.concatenate(parts) if parts else np.empty(0, np.int64)
        if len(ids) < length:
            ids = np.concatenate([ids, self.slice(int(ids[-1]) if len(ids) else 0, length)])
        return ids[:length]

    def slice(self, start: int, length: int) -> Ids:
        """Return ``length`` ids of the corpus from ``start`` on, going round at its end."""
        return np.take(self.corpus, np.arange(start, start + length), mode="wrap")


def prompt_source(workload: Workload, tokens: Tokens) -> PromptSource:
    """Tokenise the corpus of a workload once."""
    kind, file = workload.prompts, workload.prompt_file
    text = corpus_text("text" if kind == "random" else kind, file, _CORPUS_CHARACTERS, seed=0)
    corpus = corpus_ids(text, tokens) if file is None else np.asarray(tokens.encode(text), np.int64)
    if len(corpus) == 0:
        raise InputError(f"the prompt file {file} is empty", "give a text file with prose")
    ordinary = ordinary_ids(corpus)
    rng = np.random.default_rng([workload.words_seed, 24])
    task = task_text(workload.answer_format, workload.schema_name) if kind == "json" else ""
    tail = np.asarray(tokens.encode(task) if task else [], np.int64)
    return _source(workload, corpus, rng.permutation(ordinary), tail)


def _source(workload: Workload, corpus: Ids, ordinary: Ids, tail: Ids) -> PromptSource:
    return PromptSource(
        corpus=corpus,
        ordinary=ordinary,
        seed=workload.words_seed,
        random=workload.prompts == "random",
        shared_tokens=workload.shared_prefix_tokens,
        shared_share=workload.shared_prefix_share,
        shared_groups=workload.shared_prefix_groups,
        tail=tail,
    )


def exact_text(tokens: Tokens, ids: Ids, length: int, tail: Ids | None = None) -> str:
    """Return a text that the tokenizer counts as exactly ``length`` tokens.

    Decoding ids and encoding the text again may merge tokens, so the text is cut or filled up
    until the count is right.

    Parameters
    ----------
    tail
        Ids of a text that stands whole at the end; ``ids`` are those before it.

    Raises
    ------
    LoadError
        When no such text is found.
    """
    last = tokens.decode([int(i) for i in tail]) if tail is not None and len(tail) else ""
    room = max(1, length - (len(tail) if tail is not None else 0))
    use = [int(i) for i in ids[:room]]
    spare = [int(i) for i in np.resize(ids[1:] if len(ids) > 1 else ids, room + _MOST_CORRECTIONS)]
    for attempt in range(_MOST_CORRECTIONS):
        text = tokens.decode(use) + last
        count = len(tokens.encode(text))
        if count == length:
            return text
        if count > length:
            use = use[: len(use) - (count - length)] or use[:1]
        else:
            missing = length - count
            use = use + spare[attempt : attempt + missing]
    raise LoadError(
        f"no text of exactly {length} tokens was found",
        "send token ids (--api completions), or another prompt length",
    )


def save_source(source: PromptSource, path: Path) -> None:
    """Write a prompt source for the worker processes."""
    np.savez(path, corpus=source.corpus, ordinary=source.ordinary, tail=source.tail)


def load_source(path: Path, workload: Workload) -> PromptSource:
    """Read what ``save_source`` wrote."""
    with np.load(path) as data:
        return _source(workload, data["corpus"], data["ordinary"], data["tail"])

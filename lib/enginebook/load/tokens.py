"""Text to token ids and back: by the model's own tokenizer.json, or by asking the server."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from enginebook.errors import InputError
from enginebook.load.answers import whole
from enginebook.load.question import NoAnswerError, post_json
from enginebook.load.target import Target

_TOKENIZE_TIMEOUT_S = 30.0
_FEWEST_ORDINARY = 16
_CORPUS_TOKENS = 100_000


class Tokens(Protocol):
    """What prompts and checks need of a tokenizer."""

    source: str

    def encode(self, text: str) -> list[int]:
        """Return ids without special tokens."""

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids."""


class LocalTokens:
    """The tokenizer of a model folder.

    Raises
    ------
    InputError
        When the folder holds no readable tokenizer.json.
    """

    source = "tokenizer"

    def __init__(self, folder: Path) -> None:
        # only here: a client that asks the server, or sends made-up ids, needs no tokenizer library
        from tokenizers import Tokenizer  # noqa: PLC0415

        path = folder / "tokenizer.json" if folder.is_dir() else folder
        try:
            self._hf = Tokenizer.from_file(str(path))
        except Exception as error:  # the binding raises bare Exception
            raise InputError(
                f"no usable tokenizer at {path}: {error}",
                "give the model folder that holds tokenizer.json",
            ) from error

    def encode(self, text: str) -> list[int]:
        """Return ids without special tokens."""
        return list(self._hf.encode(text, add_special_tokens=False).ids)

    def ends(self, text: str) -> list[int]:
        """Return for each token of a text the character offset at which it ends."""
        return [end for _, end in self._hf.encode(text, add_special_tokens=False).offsets]

    def words(self) -> np.ndarray:
        """Return the ids of the vocabulary that are no special tokens, shape (v,), ascending."""
        special = {*self._hf.get_added_tokens_decoder()}
        unknown = {self._hf.token_to_id(t) for t in ("<unk>", "[UNK]", "<|unk|>")}
        ids = set(self._hf.get_vocab(with_added_tokens=False).values()) - special - unknown
        return np.array(sorted(ids), dtype=np.int64)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids."""
        return str(self._hf.decode(list(ids), skip_special_tokens=False))


class ServerTokens:
    """The server's own ``/tokenize`` and ``/detokenize`` (vLLM, SGLang and llama.cpp have them)."""

    source = "server"

    def __init__(self, target: Target) -> None:
        self._target = target
        address = target.address
        self._prefix = address.prefix.removesuffix("/v1")
        self._root = f"{address.authority}{self._prefix}"

    def _post(self, path: str, fields: dict[str, Any]) -> Any:
        try:
            return post_json(self._target, self._prefix + path, fields, _TOKENIZE_TIMEOUT_S)
        except NoAnswerError as error:
            raise InputError(
                f"no tokenizer is given and {self._root}{path} does not serve one ({error})",
                "give --tokenizer DIR, the folder with the model's tokenizer.json",
            ) from error

    def encode(self, text: str) -> list[int]:
        """Return ids without special tokens."""
        fields = {"model": self._target.model, "prompt": text, "content": text}
        reply = self._post("/tokenize", {**fields, "add_special_tokens": False})
        ids = reply.get("tokens") if isinstance(reply, dict) else None
        if not isinstance(ids, list) or any(whole(i) is None for i in ids):
            raise InputError(
                f"{self._root}/tokenize answers without a list of token ids",
                "give --tokenizer DIR, the folder with the model's tokenizer.json",
            )
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids."""
        reply = self._post("/detokenize", {"model": self._target.model, "tokens": list(ids)})
        said = reply if isinstance(reply, dict) else {}
        return str(said.get("prompt", said.get("content", said.get("text", ""))))


def tokens_for(target: Target) -> LocalTokens | ServerTokens:
    """Return the tokenizer of a target: the given folder's, else the server's."""
    if target.tokenizer is not None:
        return LocalTokens(Path(target.tokenizer))
    return ServerTokens(target)


def corpus_ids(text: str, tokens: Tokens) -> np.ndarray:
    """Return a text as token ids, shape (n,).

    The made-up tokenizer of a dummy model knows no words of any text: then words of its own
    vocabulary stand in, drawn at random. Such a model has nothing to say about them either.
    """
    ids = np.asarray(tokens.encode(text), dtype=np.int64)
    if isinstance(tokens, LocalTokens) and 0 < len(np.unique(ids)) < _FEWEST_ORDINARY:
        words = tokens.words()
        if len(words) >= _FEWEST_ORDINARY:
            return np.random.default_rng(0).choice(words, _CORPUS_TOKENS)
    return ids


def ordinary_ids(corpus_ids: np.ndarray) -> np.ndarray:
    """Return the distinct ids of a corpus, the ones that are safe to begin a prompt with.

    Ids that a tokenizer gives for ordinary text are never special tokens, so no prompt opens with
    an end-of-sequence mark by accident.

    Raises
    ------
    InputError
        When there are too few to tell prompts apart.
    """
    ids = np.unique(corpus_ids)
    if len(ids) < _FEWEST_ORDINARY:
        raise InputError(
            f"the corpus has {len(ids)} distinct tokens; prompts could not be told apart",
            "give a longer or more varied prompt file",
        )
    return ids

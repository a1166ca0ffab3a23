"""Models without weights: a config of a real shape and a tokenizer of one word a token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers

from enginebook.lifecycle.models_hf import write

# Without a template some servers refuse chat requests.
TEMPLATE = "{% for m in messages %}{{ m['content'] }} {% endfor %}"


def word(token: int) -> str:
    """Return the text of a token id."""
    return f"t{token}"


def word_tokenizer(vocabulary: int) -> Tokenizer:
    """Return a tokenizer whose ids are t0, t1 ... separated by spaces, so lengths are exact."""
    words = {word(i): i for i in range(vocabulary)}
    made = Tokenizer(models.WordLevel(words, unk_token=word(0)))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return made


def write_shape(config: dict[str, Any], folder: Path) -> None:
    """Write config.json, the tokenizer and its settings for one shape."""
    write(folder / "config.json", config)
    word_tokenizer(config["vocab_size"]).save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": word(config["bos_token_id"]),
        "eos_token": word(config["eos_token_id"]),
        "unk_token": word(0),
        "model_max_length": config["max_position_embeddings"],
        "clean_up_tokenization_spaces": False,
        "chat_template": TEMPLATE,
    }
    write(folder / "tokenizer_config.json", settings)

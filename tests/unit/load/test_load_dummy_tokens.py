"""Prompts for a dummy model, whose made-up tokenizer knows no word of any text."""

from __future__ import annotations

import numpy as np
import pytest

from enginebook.lifecycle.models import prepare_model
from enginebook.load import Workload
from enginebook.load.prompts import exact_text, prompt_source
from enginebook.load.tokens import LocalTokens
from enginebook.study import ModelSpec


@pytest.fixture(scope="module")
def tokens() -> LocalTokens:
    return LocalTokens(prepare_model(ModelSpec(dummy="smollm2-135m"), "hf").tokenizer_dir)


def test_prompts_are_words_of_the_vocabulary_and_differ_at_once(tokens: LocalTokens) -> None:
    source = prompt_source(Workload(concurrency=1, requests=4), tokens)
    words = set(tokens.words().tolist())
    prompts = [source.ids(i, 64) for i in range(50)]
    assert all(set(p.tolist()) <= words for p in prompts)
    assert len({int(p[0]) for p in prompts}) == 50
    assert len(np.unique(np.concatenate(prompts))) > 500


def test_text_prompts_have_their_exact_length(tokens: LocalTokens) -> None:
    source = prompt_source(Workload(concurrency=1, requests=4), tokens)
    text = exact_text(tokens, source.ids(3, 40), 40)
    assert len(tokens.encode(text)) == 40


def test_no_special_token_is_a_word(tokens: LocalTokens) -> None:
    assert not set(tokens.words().tolist()) & set(tokens._hf.get_added_tokens_decoder())

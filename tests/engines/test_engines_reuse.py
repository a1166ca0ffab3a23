"""Reuse of prefixes can be switched off: by request and at start."""

import pytest
from support import MODEL, complete, one_at_a_time

from enginebook.lifecycle.server import serve
from enginebook.study import EngineSpec

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]
PROMPT = "The history of the lighthouse is long. " * 40


@pytest.fixture
def llamacpp(request, tmp_path):
    """llama.cpp, which starts in two seconds; for the others see test_engine_environments.py."""
    spec = EngineSpec(name="llamacpp", recipe="llamacpp-cpu", options=request.param)
    with one_at_a_time(), serve(spec, MODEL, directory=tmp_path) as running:
        running.recipe_name = "llamacpp-cpu"
        yield running


def cached(server, **more):
    usage = complete(server, 2, prompt=PROMPT, **more)["usage"]
    return usage["prompt_tokens_details"]["cached_tokens"]


@pytest.mark.parametrize("llamacpp", [{}], indirect=True)
def test_off_for_one_request(llamacpp):
    assert cached(llamacpp) == 0
    assert cached(llamacpp, prefix_cache=False) == 0
    assert cached(llamacpp) >= 256


@pytest.mark.parametrize("llamacpp", [{"prefix_cache": False}], indirect=True)
def test_off_at_start(llamacpp):
    assert [cached(llamacpp), cached(llamacpp)] == [0, 0]

"""Options that change what a server does, on llama.cpp, which starts in two seconds.

That the other engines take them is seen by their parsers, in test_engine_environments.py.
"""

import pytest
from support import MODEL, complete, one_at_a_time

from enginebook.lifecycle.models import prepare_model
from enginebook.lifecycle.models_weights import weight_bits
from enginebook.lifecycle.server import serve
from enginebook.study import EngineSpec, ModelSpec

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]
PROMPT = "The history of the lighthouse is long. " * 40
PARAMETERS = 134_515_008


@pytest.fixture
def llamacpp(request, tmp_path):
    options, model = request.param if isinstance(request.param, tuple) else (request.param, MODEL)
    spec = EngineSpec(name="llamacpp", recipe="llamacpp-cpu", options=options)
    with one_at_a_time(), serve(spec, model, directory=tmp_path) as running:
        running.recipe_name = "llamacpp-cpu"
        yield running


def started(*params):
    return pytest.mark.parametrize("llamacpp", params, indirect=True)


def cached(server, **more):
    usage = complete(server, 2, prompt=PROMPT, **more)["usage"]
    return usage["prompt_tokens_details"]["cached_tokens"]


@started({})
def test_reuse_off_for_one_request(llamacpp):
    assert cached(llamacpp) == 0
    assert cached(llamacpp, prefix_cache=False) == 0
    assert cached(llamacpp) >= 256


@started({"prefix_cache": False})
def test_reuse_off_at_start(llamacpp):
    assert [cached(llamacpp), cached(llamacpp)] == [0, 0]
    assert llamacpp.settled()["prefix_cache"] is False


@started({"speculative": {"method": "ngram", "tokens": 4, "lookup": 2}})
def test_tokens_are_proposed_and_change_no_text(llamacpp):
    answer = complete(llamacpp, 8, prompt="The capital of France is")
    assert answer["choices"][0]["text"].strip().startswith("Paris")
    found = {f.name: f for f in llamacpp.features()}
    assert found["speculative_decoding"].ok, found["speculative_decoding"].value


@started(({}, ModelSpec(name="smollm2-135m-instruct-q8")))
def test_weights_take_the_bits_of_their_type(llamacpp):
    parts = {p.component: p.bytes for p in llamacpp.memory()}
    bits = weight_bits(prepare_model(ModelSpec(name="smollm2-135m-instruct-q8"), "gguf"))
    assert bits == pytest.approx(8.5, rel=0.01)
    assert parts["weights"] == pytest.approx(PARAMETERS * bits / 8, rel=0.02)
    assert complete(llamacpp, 4)["usage"]["completion_tokens"] == 4

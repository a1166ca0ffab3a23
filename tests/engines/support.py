"""What the tests of real engines share: the model, requests, and the lock."""

import fcntl
import http.client
import json
from contextlib import contextmanager

from enginebook import paths
from enginebook.engines.recipes import load_recipe
from enginebook.engines.registry import adapter
from enginebook.study import ModelSpec

MODEL = ModelSpec(name="smollm2-135m-instruct")
ANSWER = "The capital of France is Paris."
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
RECIPES = ["llamacpp-cpu", "vllm-cpu", "sglang-cpu"]


@contextmanager
def one_at_a_time():
    with (paths.cache_dir() / "engine-tests.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def call(server, path, body=None):
    host, port = server.base_url.removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=120)
    try:
        if body is None:
            connection.request("GET", path)
        else:
            headers = {"Content-Type": "application/json"}
            connection.request("POST", path, json.dumps(body), headers)
        response = connection.getresponse()
        assert response.status == 200, response.read()
        return response.read()
    finally:
        connection.close()


def complete(server, output_tokens, *, prompt="Once upon a time", prefix_cache=True):
    recipe = load_recipe(server.recipe_name)
    fields = adapter(recipe.engine).sampling_fields(output_tokens, prefix_cache=prefix_cache)
    body = {"model": server.model_id, "prompt": prompt, "max_tokens": output_tokens}
    return json.loads(call(server, "/v1/completions", {**body, "temperature": 0, **fields}))

"""Reuse of prefixes can be switched off, and SIGTERM ends every process of an engine."""

import os
import signal
import time
from pathlib import Path

import pytest
from support import MODEL, RECIPES, complete, one_at_a_time

from enginebook.lifecycle.server import serve
from enginebook.study import EngineSpec

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(900)]
PROMPT = "The history of the lighthouse is long. " * 40


@pytest.mark.parametrize("name", ["llamacpp-cpu"])
def test_request_without_reuse(name, tmp_path):
    """llama.cpp decides reuse by request: the field must work."""
    with one_at_a_time(), serve(EngineSpec(name=name, recipe=name), MODEL, directory=tmp_path) as s:
        s.recipe_name = name
        complete(s, 2, prompt=PROMPT)
        again = complete(s, 2, prompt=PROMPT, prefix_cache=False)
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


@pytest.mark.parametrize("name", RECIPES)
def test_prefix_cache_off_and_sigterm(name, tmp_path):
    """Reuse off at start means no cached tokens; SIGTERM ends every process of the engine."""
    spec = EngineSpec(name=name, recipe=name, options={"prefix_cache": False})
    with one_at_a_time(), serve(spec, MODEL, directory=tmp_path) as s:
        s.recipe_name = name
        complete(s, 2, prompt=PROMPT)
        details = complete(s, 2, prompt=PROMPT)["usage"].get("prompt_tokens_details") or {}
        assert not details.get("cached_tokens")
        pids = s.processes()
        assert pids
        os.kill(s.pid, signal.SIGTERM)
        deadline = time.monotonic() + 20
        while s.alive() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not s.alive()
    for pid in pids:
        assert not Path(f"/proc/{pid}").exists()

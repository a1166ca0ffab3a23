"""Features found out by short requests: on the simulated engine, and on servers that lack them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from enginebook.engines.registry import adapter
from enginebook.lifecycle import live_features
from enginebook.lifecycle.live_features import Feature
from enginebook.lifecycle.server import serve
from enginebook.study import EngineSpec, ModelSpec

MODEL = ModelSpec(dummy="tiny-4-layers")


def features(tmp_path: Path, **options: Any) -> dict[str, Feature]:
    spec = EngineSpec(name="sim", recipe="simulated", options={"load_seconds": 0, **options})
    with serve(spec, MODEL, directory=tmp_path) as server:
        return {f.name: f for f in server.features()}


def test_the_simulated_engine_does_what_its_table_says(tmp_path: Path) -> None:
    found = features(tmp_path)
    assert list(found) == list(live_features.PROBES)
    assert not [f for f in found.values() if f.surprising]
    # It does not speculate, and exports nothing of it.
    assert [name for name, f in found.items() if not f.ok] == ["speculative_decoding"]
    assert json.loads(found["structured_output"].value).keys() == {"city", "old"}


def test_a_cache_that_is_off_is_seen(tmp_path: Path) -> None:
    found = features(tmp_path, prefix_cache=False)["prefix_cache"]
    assert found.ok is False
    assert found.surprising
    assert found.value.startswith("0 of")


def test_a_server_that_shortens_answers_is_seen(tmp_path: Path) -> None:
    found = features(tmp_path, fault="short", fault_every=1)
    assert found["force_length"].value == "2 of 5 tokens"
    assert found["force_length"].surprising


class Odd(BaseHTTPRequestHandler):
    """Answers every completion with the same usage, chat with a text, and metrics as given."""

    usage: ClassVar[dict[str, Any]] = {"prompt_tokens": 9, "completion_tokens": 5}
    page = ""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "messages" in asked:
            message = {"message": {"content": '{"city": "Ulm", "old": "yes"}'}}
            self._send(json.dumps({"choices": [message]}))
        elif isinstance(asked["prompt"], list):
            self.send_error(400)
        else:
            self._send(json.dumps({"choices": [{"text": "a"}], "usage": self.usage}))

    def do_GET(self) -> None:
        self._send(self.page)

    def _send(self, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def odd() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Odd)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_poor_server_gets_its_answers(odd: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Odd, "page", "vllm:num_requests_running 0\n")
    found = {f.name: f for f in live_features.look(odd, "m", adapter("vllm"))}
    assert {n: f.ok for n, f in found.items()} == {
        "prefix_cache": None,
        "cached_tokens": False,
        "structured_output": False,  # "yes" is no boolean
        "speculative_decoding": None,
        "metrics": True,
        "force_length": True,
        "stream_usage": False,
        "token_prompts": False,
    }
    assert "1 of 11 figures; not: waiting" in found["metrics"].value
    assert "HTTP 400" in found["token_prompts"].value
    assert [n for n, f in found.items() if f.surprising] == ["structured_output"]


@pytest.mark.parametrize(
    ("page", "ok"),
    [
        ('vllm:spec_decode_num_draft_tokens_total{engine="0"} 12.0\n', True),
        ("llamacpp:spec_decode_num_drafts_total 0\n", False),
        ("# HELP sglang:spec_accept_length Accepted.\nsglang:spec_accept_length 1.5\n", True),
        ("other 1\n", None),
    ],
)  # fmt: skip
def test_proposed_tokens_are_told_by_metrics(
    odd: str, monkeypatch: pytest.MonkeyPatch, page: str, ok: bool | None
) -> None:
    monkeypatch.setattr(Odd, "page", page)
    ask = live_features.Asker(odd, "m", adapter("vllm"))
    assert live_features.speculative_decoding(ask)[0] is ok


def test_a_server_that_is_gone_gives_no_feature() -> None:
    found = live_features.look("http://127.0.0.1:9", "m", adapter("llamacpp"))
    assert {f.ok for f in found} == {False}
    assert all("ConnectionRefused" in f.value for f in found)

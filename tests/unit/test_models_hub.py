"""Config and tokenizer from a hub, against a small HTTP server on the loopback."""

import http.server
import threading

import pytest

from enginebook.errors import InstallError
from enginebook.lifecycle.models import prepare_model
from enginebook.study import ModelSpec

FILES = {"config.json": b"{}", "tokenizer.json": b'{"version": "1.0"}'}


class Hub(http.server.BaseHTTPRequestHandler):
    """Serves org/model at two revisions; org/gated refuses."""

    def do_GET(self):
        self.server.asked.append(self.path)
        *_, owner, name, _, revision, file = self.path.split("/")
        self.server.authorised |= "authorization" in {k.lower() for k in self.headers}
        if name == "gated":
            self.send_error(401)
        elif (owner, name) == ("org", "model") and revision in {"main", "v2"} and file in FILES:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(FILES[file])
        else:
            self.send_error(404)

    def log_message(self, *_):
        pass


@pytest.fixture
def hub(monkeypatch, tmp_path):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.asked, server.authorised = [], False
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("ENGINEBOOK_CACHE", str(tmp_path / "cache"))
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_tokenizer_is_fetched_and_the_id_passed_on(hub):
    found = prepare_model(ModelSpec(hub="org/model"), "hf")
    assert str(found.path) == "org/model"
    assert (found.tokenizer_dir / "tokenizer.json").read_bytes() == FILES["tokenizer.json"]
    assert not (found.tokenizer_dir / "chat_template.jinja").exists()
    assert found.revision is None
    assert not hub.authorised, "no secret leaves this process"


def test_it_is_fetched_once(hub):
    prepare_model(ModelSpec(hub="org/model"), "hf")
    asked = len(hub.asked)
    prepare_model(ModelSpec(hub="org/model"), "hf")
    assert len(hub.asked) == asked


def test_a_revision_is_kept(hub):
    found = prepare_model(ModelSpec(hub="org/model", revision="v2"), "hf")
    assert found.revision == "v2"
    assert "/org/model/resolve/v2/config.json" in hub.asked
    other = prepare_model(ModelSpec(hub="org/model"), "hf")
    assert other.tokenizer_dir != found.tokenizer_dir


@pytest.mark.parametrize(
    ("name", "problem"), [("org/gated", "status 401"), ("org/none", "status 404")]
)
def test_what_cannot_be_had_is_said(hub, name, problem):
    with pytest.raises(InstallError, match=problem) as caught:
        prepare_model(ModelSpec(hub=name), "hf")
    assert "local folder" in caught.value.remedy
    assert "hf_secret" not in str(caught.value)


def test_no_hub_at_all(hub, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(InstallError, match="could not be fetched"):
        prepare_model(ModelSpec(hub="org/model"), "hf")
    monkeypatch.setenv("HF_ENDPOINT", "file:///etc")
    with pytest.raises(InstallError, match="no web address"):
        prepare_model(ModelSpec(hub="org/model"), "hf")

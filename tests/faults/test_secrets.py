"""A key in the environment reaches the server that it is for, and nothing that is written."""

from __future__ import annotations

import json
import subprocess
import sys
from html import escape
from pathlib import Path
from urllib.parse import quote

import pytest
from hostile_support import (
    CANARIES,
    KEY,
    PASSWORD,
    SECRETS,
    TOKEN,
    Watch,
    files_with,
    secret_environment,
)
from load_support import CLOSE, DONE, END, STREAM_HEAD, http, serve_script, sse, text, usage

from enginebook.errors import EnginebookError, EngineError, InputError
from enginebook.lifecycle import owned
from enginebook.lifecycle.logged import Log
from enginebook.lifecycle.readiness import Address, Waiter
from enginebook.load.target import Target
from enginebook.masking import Mask, environment_mask, is_secret_name, secrets_in
from enginebook.store import write_json, write_text
from enginebook.study_file import study_from_parameters

__all__ = ["serve_script"]
CLI = [sys.executable, "-m", "enginebook.cli"]


def none_of(said: str) -> bool:
    return not any(c in said for c in CANARIES)


@pytest.fixture
def secrets(monkeypatch):
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)


# -- the mask


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("HF_TOKEN", True), ("HUGGING_FACE_HUB_TOKEN", True), ("OPENAI_API_KEY", True),
        ("apikey", True), ("AWS_SECRET_ACCESS_KEY", True), ("MY_PASSWORD", True),
        ("SSH_PRIVATE_KEY", True), ("GOOGLE_APPLICATION_CREDENTIALS", True),
        ("max_total_tokens", False), ("TOKENIZERS_PARALLELISM", False), ("PATH", False),
        ("tokenizer", False), ("VLLM_MAX_TOKEN_COUNT", False),
    ],
)  # fmt: skip
def test_names_tell_what_is_secret(name, secret):
    assert is_secret_name(name) is secret


def test_secrets_are_found_by_name_and_in_addresses(tmp_path):
    environ = {
        **SECRETS, "A_TOKEN": "short", "B_TOKEN": "123456789", "C_TOKEN_PATH": str(tmp_path),
        "D_PASSWORD": "opensesame", "PLAIN": "https://host/simple", "E_SECRET": "",
    }  # fmt: skip
    assert sorted(set(secrets_in(environ))) == sorted(CANARIES)


@pytest.mark.parametrize("secret", [KEY, 'quo"te\\back/slash', "ümlaut&<angle>", "with space 1"])
def test_a_secret_is_hidden_as_it_looks_in_json_html_and_addresses(secret):
    mask = Mask([secret])
    shown = [secret, json.dumps(secret), escape(secret), quote(secret, safe=""), repr(secret)]
    for form in shown[:-1]:
        assert secret not in mask.text(f"a {form} b")
        assert "***" in mask.text(f"a {form} b")
    data = f"a {secret} b".encode()
    assert len(mask.data(data)) == len(data)
    assert secret.encode() not in mask.data(data)
    assert json.loads(mask.text(json.dumps({"k": secret, "n": [1, secret]})))["n"][0] == 1


def test_without_secrets_nothing_changes():
    mask = environment_mask({"PATH": "/usr/bin", "HF_TOKEN": ""})
    assert not mask
    assert mask.text("as it is") == "as it is"
    assert mask.data(b"as it is") == b"as it is"


def test_what_is_stored_and_what_is_raised_passes_the_mask(secrets, tmp_path):
    write_json(tmp_path / "a.json", {"env": SECRETS, "list": [KEY]})
    write_text(tmp_path / "a.html", f"<p title='{KEY}'>{TOKEN}</p>")
    assert files_with(tmp_path, CANARIES) == []
    assert json.loads((tmp_path / "a.json").read_text())["list"] == ["***"]
    error = EnginebookError(f"refused {KEY}", f"use not {TOKEN}")
    assert none_of(str(error) + repr(error) + error.message + error.remedy + str(error.args))


# -- a load on a server that repeats the key wherever it can


def echoing() -> list[list[object]]:
    """Return the answers of such a server, each with the key in another place."""
    said = f"the key {KEY} is wrong, and so is {TOKEN}"
    stream = STREAM_HEAD + sse(text(f"your key is {KEY}")) + sse(text("b", '"stop"'))
    quoted = json.dumps({"error": {"message": said, "headers": {"authorization": f"Bearer {KEY}"}}})
    model = f'{{"model":"{KEY}","choices":[{{"text":"a","finish_reason":"{KEY}"}}]}}'
    return [
        [0.6, stream + sse(usage(2)) + DONE + END],  # long enough for a look at the processes
        [http(quoted.encode(), "401 Unauthorized", more=f"Retry-After: {KEY}\r\n")],
        [http(said.encode(), "500 Oops", kind="text/plain")],
        [http(f"<html>{KEY}</html>".encode(), kind="text/html")],
        [STREAM_HEAD + sse(f'{{"error":{{"message":"{KEY}"}}}}') + END],
        [STREAM_HEAD + sse(f'{{"broken {KEY}') + DONE + END],
        [f"HTTP/1.1 200 {KEY}\r\nX: {KEY}\r\nContent-Length: x{KEY}\r\n\r\n".encode(), CLOSE],
        [STREAM_HEAD + sse(model) + DONE + END],
    ]


def load(server, folder: Path, *words: str) -> tuple[subprocess.CompletedProcess[str], Watch]:
    scratch = folder / "tmp"
    scratch.mkdir()
    environ = secret_environment(
        TMPDIR=str(scratch), HOME=str(folder), ENGINEBOOK_CACHE=str(folder / "cache")
    )
    argv = [*CLI, "--debug", "load", "--base-url", server.url, "--model", "m", *words]
    argv += ["--concurrency", "1", "--input-tokens", "8", "--output-tokens", "4"]
    argv += ["--raw", str(folder / "raw"), "--json", str(folder / "out.json")]
    with Watch() as watch:
        done = subprocess.run(
            argv, env=environ, cwd=folder, capture_output=True, text=True, timeout=100, check=False
        )
    return done, watch


def test_a_load_writes_no_key_although_the_server_repeats_it(serve_script, tmp_path):
    answers = echoing()
    tokens = http(json.dumps({"tokens": list(range(100, 500))}).encode())
    server = serve_script([tokens], *answers)
    done, watch = load(server, tmp_path, "--requests", str(len(answers)))
    assert done.returncode == 1, done.stdout + done.stderr
    assert all(b"\r\nAuthorization: Bearer " + KEY.encode() in r for r in server.requests)
    assert none_of(done.stdout + done.stderr)
    assert files_with(tmp_path, CANARIES) == []
    assert watch.leaked == set()
    assert watch.looks > 5
    assert (tmp_path / "out.json").is_file(), done.stderr
    summary = json.loads((tmp_path / "out.json").read_text())
    assert summary["requests"]["completed"] == 2
    kinds = {e["kind"] for e in summary["errors"]}
    assert kinds == {"http_status", "protocol", "server_error"}
    assert "***" in json.dumps(summary["errors"])


def test_a_load_that_cannot_begin_tells_no_key(serve_script, tmp_path):
    said = f"key {KEY} of {TOKEN} is unknown here"
    server = serve_script([http(said.encode(), "403 Forbidden")])
    done, watch = load(server, tmp_path, "--requests", "2")
    assert done.returncode == 1, "--debug lets the traceback through"
    assert "403" in done.stderr
    assert "Traceback" in done.stderr
    assert none_of(done.stdout + done.stderr)
    assert files_with(tmp_path, CANARIES) == []
    assert watch.leaked == set()


def test_a_target_shows_no_key():
    target = Target("http://127.0.0.1:1", "m", api_key=KEY, headers={"X-Auth": TOKEN})
    assert none_of(repr(target) + str(target) + json.dumps(target.public()))
    assert none_of(target.mask().text(f"{KEY} {TOKEN}"))


@pytest.mark.parametrize("url", [f"http://user:{PASSWORD}@127.0.0.1:1", f"http://{KEY}@h/v1"])
def test_a_key_in_an_address_is_refused_without_being_repeated(url):
    with pytest.raises(InputError, match="ENGINEBOOK_API_KEY") as told:
        Target(url, "m")
    assert none_of(str(told.value))
    with pytest.raises(EngineError, match="password") as seen:
        Address.of(url)
    assert none_of(str(seen.value))


# -- engines that print what they know

BLABBING = """
import os, sys
print(dict(os.environ))
print("Authorization: Bearer " + os.environ["HF_TOKEN"], file=sys.stderr, flush=True)
print("x" * 70000 + os.environ["HF_TOKEN"])
sys.exit("fatal: token " + os.environ["HF_TOKEN"] + " was refused")
"""


def test_a_failing_launch_shows_the_engines_words_without_the_token(secrets, tmp_path):
    process = owned.start(
        [sys.executable, "-c", BLABBING],
        env={**secret_environment(), "PYTHONUNBUFFERED": "1"},
        directory=tmp_path / "engine",
    )
    try:
        waiter = Waiter(
            process, Address("127.0.0.1", 9), ready_path="/", model_id="m", timeout_s=20,
            on_event=lambda _: None,
        )  # fmt: skip
        with pytest.raises(EngineError) as died:
            waiter.wait()
    finally:
        process.stop()
    assert "was refused" in str(died.value)
    assert none_of(str(died.value))
    assert files_with(tmp_path, CANARIES) == []
    assert b"was refused" in (tmp_path / "engine" / "engine.log").read_bytes()


def test_an_installer_that_prints_its_index_leaves_no_password(secrets, tmp_path):
    told: list[str] = []
    log = Log(tmp_path / "install.log", told.append)
    code = "import os; print('Looking in indexes:', os.environ['PIP_EXTRA_INDEX_URL']); exit(3)"
    status = log.run("install", [sys.executable, "-c", code], env=secret_environment())
    error = log.failure("it could not be installed", "look")
    assert status == 3
    assert "Looking in indexes: https://reader:" in "".join(told)
    assert none_of("".join(told) + str(error))
    assert files_with(tmp_path, CANARIES) == []


# -- where secrets have no place


@pytest.mark.parametrize(
    ("changed", "key"),
    [
        ({"engines": [{"name": "a", "recipe": "simulated", "environment": {"HF_TOKEN": TOKEN}}]},
         "engines.0.environment.HF_TOKEN"),
        ({"engines": [{"name": "a", "recipe": "simulated", "options": {"api_key": KEY}}]},
         "engines.0.options.api_key"),
        ({"hub_token": TOKEN}, "hub_token"),
    ],
)  # fmt: skip
def test_a_secret_among_parameters_is_refused_without_being_repeated(changed, key):
    study = {
        "study": "x", "question": "?", "model": "m", "engines": ["simulated"],
        "scenarios": [{"name": "s", "concurrency": 1}], **changed,
    }  # fmt: skip
    with pytest.raises(InputError, match="looks like a secret") as told:
        study_from_parameters(study)
    assert key in str(told.value)
    assert none_of(str(told.value))

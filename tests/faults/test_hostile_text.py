"""Foreign text on a terminal: words, and nothing that moves a cursor or hides a letter."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from hostile_support import (
    EVIL,
    FORBIDDEN_CHARACTERS,
    HTML,
    LONG,
    TERMINAL,
    UNSEEN,
    is_quiet,
    secret_environment,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from load_support import CLOSE, DONE, END, STREAM_HEAD, http, serve_script, sse, text, usage
from rich.console import Console

from enginebook import cli
from enginebook.commands.load import text_of
from enginebook.errors import BAD_INPUT, EnginebookError, InputError
from enginebook.errors import DONE as GOOD
from enginebook.lifecycle import leases
from enginebook.lifecycle.logged import Log
from enginebook.lifecycle.logpump import LogPump, read_log, tail
from enginebook.pipeline.progress import Progress
from enginebook.pipeline.runner import _tell_failure
from enginebook.pipeline.stage import _failure
from enginebook.pipeline.state import StageState, stage_state
from enginebook.pipeline.watch import Watch
from enginebook.plain import neutral, shortened
from enginebook.store import write_json

__all__ = ["serve_script"]
CLI = [sys.executable, "-m", "enginebook.cli"]
HOSTILE = (*TERMINAL, *UNSEEN, EVIL)


# -- the rule


@given(st.text() | st.text(FORBIDDEN_CHARACTERS + "\r\n[]m;0123ABCPX\\ \t", max_size=60))
@settings(max_examples=400)
def test_any_text_becomes_quiet_and_stays_so(text):
    shown = neutral(text)
    assert is_quiet(shown)
    assert neutral(shown) == shown
    assert shown.count("\n") <= text.count("\n") + text.count("\r")
    shown.encode("utf-8")


@given(st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]), max_size=80))
def test_words_of_any_script_stay_as_they_are(text):
    assert neutral(text) == text


def test_scripts_that_need_joiners_keep_them():
    for word in ("می‌خواهم", "👩‍🔬", "क्‍ष", "中文标题", "עברית"):
        assert neutral(word) == word


def test_a_long_line_costs_little():
    begun = time.monotonic()
    for hostile in ("\x1b]" * 500_000, "\x1b[" * 500_000, "\r" * 1_000_000, LONG, "\x1bP" + LONG):
        assert is_quiet(neutral(hostile))
    assert time.monotonic() - begun < 20, "no step is quadratic"


@given(st.text(max_size=300), st.integers(20, 100))
def test_a_shortened_text_has_its_beginning_and_its_end(text, most):
    shown = shortened(text, most)
    assert len(shown) <= max(most, 0)
    assert shown == text or (text.startswith(shown[:5]) and text.endswith(shown[-5:]))


# -- logs of engines


@pytest.mark.parametrize("hostile", HOSTILE)
def test_what_is_quoted_of_a_log_is_quiet(tmp_path, hostile):
    pump = LogPump(tmp_path / "engine.log", time.monotonic())
    pump.feed(f"before\n{hostile} after\n".encode("utf-8", "replace"))
    pump.close()
    lines = tail(tmp_path / "engine.log", 10)
    assert lines[0] == "before"
    assert all(is_quiet(line) and "\n" not in line for line in lines)
    failure = _failure(tmp_path, RuntimeError(hostile))
    assert failure["engine_log"] == lines, "without the stamps"
    assert is_quiet("".join([*failure["engine_log"], failure["error"], failure["source"]]))


def test_a_line_of_a_megabyte_is_cut_where_it_is_quoted(tmp_path, capsys):
    pump = LogPump(tmp_path / "engine.log", time.monotonic())
    pump.feed(b"start\n" + LONG.encode() + b"\nend of it\n")
    pump.close()
    assert len("".join(line for _, line in read_log(tmp_path / "engine.log"))) > 1_000_000
    assert tail(tmp_path / "engine.log", 5)[-1] == "end of it"
    assert max(map(len, tail(tmp_path / "engine.log", 400))) <= 500
    failure = {"stage": "load", **_failure(tmp_path, RuntimeError(LONG))}
    _tell_failure(failure)
    assert len(capsys.readouterr().err) < 16_000


def test_installers_are_quoted_quietly(tmp_path):
    told: list[str] = []
    log = Log(tmp_path / "i.log", told.append)
    shown = [*TERMINAL, "x" * 200_000, "end"]
    code = "import sys, json; [print(w) for w in json.loads(sys.argv[1])]; raise SystemExit(1)"
    log.run("x", [sys.executable, "-c", code, json.dumps([w for w in shown if w != "x" * 200_000])])
    log.run("y", [sys.executable, "-c", "print('x' * 200_000)"])
    assert all(is_quiet(line) and len(line) <= 500 for line in told)
    assert "end" in told
    failure = str(log.failure("it failed", "look"))
    assert is_quiet(failure)
    assert len(failure) < 25 * 510


# -- messages


@pytest.mark.parametrize("hostile", HOSTILE)
def test_errors_are_quiet(hostile):
    for kind in (EnginebookError, InputError):
        error = kind(f"no file {hostile}", f"give {hostile}")
        assert is_quiet(str(error))
        assert is_quiet(error.args[0])


WORD = "".join(w for w in (*TERMINAL, *UNSEEN) if "\x00" not in w)


@pytest.mark.parametrize(
    "argv",
    [
        ["run", "WORD"], ["run", "params/smoke.yaml", "WORD"], ["report", "WORD"],
        ["compare", "WORD", "WORD"], ["claims", "--file", "WORD"], ["claims", "--id", "WORD"],
        ["bundle", "WORD"], ["WORD"], ["run", "--executor", "WORD", "x"],
        ["load", "--base-url", "http://WORD", "--model", "m", "--concurrency", "1"],
    ],
    ids=lambda argv: " ".join(argv)[:24],
)  # fmt: skip
def test_words_of_a_command_line_are_answered_quietly(tmp_path, monkeypatch, capsys, argv):
    monkeypatch.setenv("ENGINEBOOK_CACHE", str(tmp_path))
    try:
        status = cli.main([w.replace("WORD", WORD) for w in argv])
    except SystemExit as end:
        status = end.code
    said = capsys.readouterr()
    assert status == BAD_INPUT
    assert said.err
    assert is_quiet(said.err + said.out)


def test_files_with_hostile_names_are_told_quietly(tmp_path, capsys):
    folder = tmp_path / "\x1b[31mred\u202e"
    folder.mkdir()
    name = os.fsencode(folder / "\x1b]0;x\x07") + b"\xff.yaml"  # no text in any encoding
    for there in (False, True):
        if there:
            Path(os.fsdecode(name)).write_text("study: [")
        assert cli.main(["run", os.fsdecode(name), "--dry-run"]) == BAD_INPUT
        assert is_quiet(capsys.readouterr().err)


def test_claims_of_others_are_shown_quietly(tmp_path, capsys):
    claim = {
        "id": "X-1", "topic": f"t{EVIL}", "statement": f"says {EVIL}", "claimed": EVIL, "zh": EVIL,
        "test": {"metric": "output_tokens_per_s", "value": 5},
        "evidence": {"status": "unverifiable", "note": EVIL, "sources": ["s"]},
    }  # fmt: skip
    source = {"what": EVIL, "where": EVIL, "trust": EVIL}
    about = {"source": {"title": EVIL}, "sources": {"s": source}}
    file = tmp_path / "c.yaml"
    file.write_text(json.dumps({**about, "claims": [claim]}), encoding="utf-8")
    for words in ([], ["--id", "X-1"]):
        assert cli.main(["claims", "--file", str(file), *words]) == GOOD
        said = capsys.readouterr()
        assert "vllm" in said.out
        assert is_quiet(said.out + said.err)


def test_servers_of_notes_are_listed_quietly(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ENGINEBOOK_CACHE", str(tmp_path))
    write_json(
        leases.lease_path("t"), {"engine": EVIL, "model": EVIL, "port": 1, "directory": EVIL}
    )
    assert cli.main(["servers"]) == GOOD
    assert is_quiet(capsys.readouterr().out)
    assert is_quiet(leases.Running(tmp_path, {"engine": EVIL}).label)


# -- progress


@pytest.mark.parametrize("hostile", HOSTILE)
def test_progress_is_quiet(tmp_path, monkeypatch, hostile):
    monkeypatch.setenv("ENGINEBOOK_PROGRESS", str(tmp_path / "progress.json"))
    progress = Progress(f"loading {hostile}", 3)
    progress.update(done=1)
    bundle = progress._repr_mimebundle_()
    assert is_quiet(str(progress))
    assert "\n" not in str(progress)
    assert is_quiet(bundle["text/html"] + bundle["text/plain"])
    assert "<script" not in bundle["text/html"]
    assert "<img" not in bundle["text/html"]


class _Stage:
    name, folder, marker, digest = "load", ".", "stage.json", "x"


@pytest.mark.parametrize("terminal", [True, False])
def test_the_table_of_stages_is_quiet(tmp_path, monkeypatch, terminal):
    write_json(tmp_path / "progress.json", {"label": EVIL + "\n" + LONG, "done": 1, "total": 2})
    now = {"pid": os.getpid(), "started_unix": time.time()}
    write_json(tmp_path / "running.json", now)
    state: StageState = stage_state(_Stage, tmp_path)  # type: ignore[arg-type]
    assert state.state == "running"
    assert is_quiet(state.progress)
    assert len(state.progress) < 400
    assert "\n" not in state.progress
    out = io.StringIO()
    watch = Watch(None, tmp_path, Console(file=out, force_terminal=terminal, width=100))  # type: ignore[arg-type]
    watch.note(EVIL)
    watch._tell(state)
    shown = out.getvalue()
    assert shown
    assert is_quiet(neutral(shown) if terminal else shown)
    assert "\x1b]" not in shown
    assert "\x1b[2J" not in shown


# -- answers of servers


def test_a_load_tells_a_servers_words_quietly(serve_script, tmp_path):
    said = json.dumps({"error": {"message": EVIL + LONG}})
    evil = json.dumps(EVIL)[1:-1]
    tokens = http(json.dumps({"tokens": list(range(100, 500))}).encode())
    stream = STREAM_HEAD + sse(text(evil)) + sse(text("b", '"stop"')) + sse(usage(2)) + DONE + END
    replies = [
        [stream], [http(said.encode(), "400 Bad")], [http(EVIL.encode(), "500 Oops")],
        [STREAM_HEAD + sse(said) + END], [http(EVIL.encode(), kind="text/html")],
        [b"HTTP/1.1 \x1b[31m\r\n\r\n", CLOSE],
    ]  # fmt: skip
    server = serve_script([tokens], *replies)
    argv = [*CLI, "load", "--base-url", server.url, "--model", "m", "--concurrency", "1"]
    argv += ["--requests", str(len(replies)), "--input-tokens", "8", "--output-tokens", "2"]
    argv += ["--json", str(tmp_path / "out.json")]
    environ = secret_environment(ENGINEBOOK_CACHE=str(tmp_path / "c"))
    done = subprocess.run(argv, capture_output=True, text=True, env=environ, check=False)
    assert is_quiet(done.stdout + done.stderr)
    assert len(done.stdout) < 6000
    summary = json.loads((tmp_path / "out.json").read_text())
    assert (summary["requests"]["completed"], summary["requests"]["failed"]) == (1, 5)
    assert is_quiet(json.dumps(summary["errors"], ensure_ascii=False))
    assert is_quiet(text_of(summary))


def test_html_is_only_a_word_on_a_terminal(capsys, tmp_path):
    for word in HTML:
        file = tmp_path / "x.yaml"
        file.write_text(yaml.safe_dump({"study": word}))
        assert cli.main(["run", str(file), "--dry-run"]) == BAD_INPUT
        assert is_quiet(capsys.readouterr().err)

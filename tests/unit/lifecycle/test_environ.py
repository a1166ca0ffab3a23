"""What an engine inherits, what is set for it, and what readers see of that."""

from __future__ import annotations

import pytest

from enginebook.lifecycle import environ


def test_the_workbooks_own_variables_stay_here(monkeypatch):
    ours = (
        "PYTHONPATH",
        "VIRTUAL_ENV",
        "MPLBACKEND",
        "JPY_PARENT_PID",
        "UV_INDEX",
        "PIP_INDEX_URL",
    )
    for name in ours:
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    kept = environ.inherited()
    assert not set(ours) & set(kept)
    assert kept["CUDA_VISIBLE_DEVICES"] == "1"


def test_loopback_joins_the_users_exceptions(monkeypatch):
    monkeypatch.setenv("no_proxy", "intranet,localhost")
    assert environ.inherited()["no_proxy"] == "intranet,localhost,127.0.0.1,::1"
    assert environ.inherited()["NO_PROXY"] == environ.inherited()["no_proxy"]


def test_later_layers_win_and_offline_is_a_choice():
    added = environ.additions({"A": "1", "B": "1"}, {"B": "2"}, offline=True)
    assert (added["A"], added["B"], added["HF_HUB_OFFLINE"]) == ("1", "2", "1")
    assert "HF_HUB_OFFLINE" not in environ.additions(offline=False)
    assert environ.additions({"DO_NOT_TRACK": "0"}, offline=False)["DO_NOT_TRACK"] == "0"


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "API_KEY",
        "OPENAI_APIKEY",
        "DB_PASSWORD",
        "AWS_SECRET_ACCESS_KEY",
        "X_CREDENTIALS",
    ],
)
def test_secret_names_are_hidden(name):
    assert environ.masked_env({name: "s"}) == {name: "***"}


@pytest.mark.parametrize(
    "name", ["MAX_TOKENS", "TOKENIZERS_PARALLELISM", "VLLM_CPU_KVCACHE_SPACE", "PATH"]
)
def test_other_names_are_shown(name):
    assert environ.masked_env({name: "4"}) == {name: "4"}


def test_secret_options_are_hidden_in_both_forms():
    argv = ["serve", "--api-key", "s3", "--hf-token=s4", "--max-num-batched-tokens", "2048"]
    shown = environ.masked_argv([*argv, "--tokenizer", "dir"])
    assert shown == (
        "serve", "--api-key", "***", "--hf-token=***", "--max-num-batched-tokens", "2048",
        "--tokenizer", "dir",
    )  # fmt: skip

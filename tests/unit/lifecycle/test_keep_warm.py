"""keep_warm: a server outlives its kernel, is found again by its configuration, and ends."""

from __future__ import annotations

import os
import stat
import time

import pytest

from enginebook.lifecycle import leases
from enginebook.lifecycle.server import serve


@pytest.fixture(autouse=True)
def end_all():
    yield
    for running in leases.all_noted():
        leases.end(running)


def test_leaving_the_block_keeps_it_and_the_next_takes_it_over(fake, model, tmp_path):
    with serve(fake(), model, directory=tmp_path / "a", keep_warm_s=60) as first:
        pid = first.pid
    assert first.alive()
    said: list[str] = []
    with serve(
        fake(), model, directory=tmp_path / "b", keep_warm_s=60, on_event=said.append
    ) as second:
        assert second.attached
        assert second.pid == pid
        assert second.base_url == first.base_url
        assert second.start_up == first.start_up
        assert second.log == first.log
        assert any("taking over" in text for text in said)
        assert {p.component for p in second.memory()} == {"weights", "total"}
        report = second.stop()
    assert (report.reason, report.killed, report.left) == ("stopped", 0, ())
    assert not first.alive()
    assert leases.all_noted() == []


def test_another_configuration_is_started_anew(fake, model, tmp_path):
    with serve(fake(), model, directory=tmp_path / "a", keep_warm_s=60) as first:
        pass
    with serve(fake(busy_s=0.1), model, directory=tmp_path / "b", keep_warm_s=60) as second:
        assert not second.attached
        assert second.pid != first.pid


def test_without_keep_warm_nothing_is_taken_over(fake, model, tmp_path):
    with serve(fake(), model, directory=tmp_path / "a", keep_warm_s=60) as first:
        pass
    with serve(fake(), model, directory=tmp_path / "b") as second:
        assert not second.attached
    assert not second.alive()
    assert first.alive()


def test_it_ends_after_its_time(fake, model, tmp_path):
    with serve(fake(), model, directory=tmp_path / "a", keep_warm_s=1.0) as server:
        time.sleep(1.5)
        assert server.alive()
    deadline = time.monotonic() + 6
    while server.alive() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not server.alive()


def test_an_attached_owner_counts_as_owner(fake, model, tmp_path):
    with serve(fake(), model, directory=tmp_path / "a", keep_warm_s=1.5):
        pass
    with serve(fake(), model, directory=tmp_path / "b", keep_warm_s=1.5) as server:
        assert server.attached
        time.sleep(3)
        assert server.alive()


def test_exception_in_the_block_keeps_the_model_loaded(fake, model, tmp_path):
    def failing_cell() -> None:
        with serve(fake(), model, directory=tmp_path / "a", keep_warm_s=60) as server:
            servers.append(server)
            raise ZeroDivisionError

    servers: list = []
    with pytest.raises(ZeroDivisionError):
        failing_cell()
    assert servers[0].alive()


def test_the_socket_is_for_the_user_alone(fake, model, tmp_path):
    with serve(fake(), model, directory=tmp_path / "a", keep_warm_s=60):
        (running,) = leases.all_noted()
        path = leases.socket_path(running.facts["token"])
        mode = path.stat()
        assert stat.S_ISSOCK(mode.st_mode)
        assert stat.S_IMODE(mode.st_mode) == 0o600
        assert mode.st_uid == os.getuid()
    leases.end(running)
    assert not path.exists()


def test_a_dead_warm_server_is_not_taken_over(fake, model, tmp_path):
    with serve(fake(), model, directory=tmp_path / "a", keep_warm_s=60) as first:
        os.kill(first.pid, 9)
        first.stop()
    with serve(fake(), model, directory=tmp_path / "b", keep_warm_s=60) as second:
        assert not second.attached


def test_another_configuration_in_the_same_folder_replaces_it(fake, model, tmp_path):
    with serve(fake(), model, directory=tmp_path / "a", keep_warm_s=60) as first:
        pass
    said: list[str] = []
    with serve(
        fake(busy_s=0.1), model, directory=tmp_path / "a", keep_warm_s=60, on_event=said.append
    ) as second:
        assert not first.alive()
        assert second.alive()
        assert any("from the same folder" in text for text in said)
        assert len(leases.all_noted()) == 1
        assert second.stop().reason == "stopped"


def test_a_server_that_is_still_starting_is_not_taken_over(fake, model, tmp_path):
    with serve(fake(), model, directory=tmp_path / "a", keep_warm_s=60) as first:
        (tmp_path / "a" / "server.json").unlink()
    with serve(fake(), model, directory=tmp_path / "b", keep_warm_s=60) as second:
        assert not second.attached
        assert first.alive()

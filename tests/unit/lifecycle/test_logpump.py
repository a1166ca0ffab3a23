"""Log lines carry seconds since start; the first segment is kept, the rest is bounded."""

from __future__ import annotations

import time

from enginebook.lifecycle.logpump import LogPump, read_log, tail


def test_lines_are_stamped_in_order(tmp_path):
    pump = LogPump(tmp_path / "engine.log", time.monotonic() - 5)
    pump.feed(b"one\ntw")
    pump.feed(b"o\nthree")
    pump.close()
    lines = read_log(tmp_path / "engine.log")
    assert [text for _, text in lines] == ["one", "two", "three"]
    assert all(5 <= t < 6 for t, _ in lines)
    assert [t for t, _ in lines] == sorted(t for t, _ in lines)


def test_unfinished_line_waits(tmp_path):
    pump = LogPump(tmp_path / "engine.log", time.monotonic())
    pump.feed(b"not yet")
    assert read_log(tmp_path / "engine.log") == []
    pump.close()
    assert len(read_log(tmp_path / "engine.log")) == 1


def test_progress_bars_and_bad_bytes_do_no_harm(tmp_path):
    pump = LogPump(tmp_path / "engine.log", time.monotonic())
    pump.feed(b"load 10%\rload 20%\r\n\n\xff\xfe broken \xe4\n")
    pump.close()
    texts = [text for _, text in read_log(tmp_path / "engine.log")]
    assert texts[:2] == ["load 10%", "load 20%"]
    assert "broken" in texts[2]


def test_endless_line_is_cut(tmp_path):
    pump = LogPump(tmp_path / "engine.log", time.monotonic())
    for _ in range(5):
        pump.feed(b"x" * 40_000)
    assert len(read_log(tmp_path / "engine.log")) >= 2
    pump.close()


def test_rotation_keeps_the_start_and_the_end(tmp_path):
    path = tmp_path / "engine.log"
    pump = LogPump(path, time.monotonic(), segment_bytes=2000)
    for i in range(1000):
        pump.feed(f"line {i}\n".encode())
    pump.close()
    texts = [text for _, text in read_log(path)]
    assert texts[0] == "line 0"
    assert texts[-1] == "line 999"
    assert len(texts) < 400
    assert sum(p.stat().st_size for p in tmp_path.iterdir()) <= 6500


def test_a_new_start_removes_old_segments(tmp_path):
    path = tmp_path / "engine.log"
    pump = LogPump(path, time.monotonic(), segment_bytes=100)
    for i in range(50):
        pump.feed(f"old {i}\n".encode())
    pump.close()
    pump = LogPump(path, time.monotonic())
    pump.feed(b"new\n")
    pump.close()
    assert [text for _, text in read_log(path)] == ["new"]


def test_tail_is_short_and_unstamped(tmp_path):
    path = tmp_path / "engine.log"
    assert tail(path, 3) == []
    pump = LogPump(path, time.monotonic())
    pump.feed(b"".join(f"line {i}\n".encode() for i in range(5000)))
    pump.close()
    assert tail(path, 3) == ["line 4997", "line 4998", "line 4999"]

"""The host's readings, and the console's lines."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from random import Random

import psutil
import pytest

from monitor.sources.console_lines import MAX_LINES, Console, Lines, displayed_text
from monitor.sources.host import HostSource

from .conftest import State, python, wait_for


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"plain", "plain"),
        (b"\r 10%|#   |\r 20%|##  |", " 20%|##  |"),
        (b" 99%|### |\r100%|####|\r", "100%|####|"),
        (b"\x1b[1;31mred\x1b[0m and \x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "red and link"),
        (b"\x1b]52;c;aGk=\x07safe", "safe"),
        (b"    indented\twith a tab", "    indented    with a tab"),
        (b"caf\xc3\xa9 \xff", "café \ufffd"),
        (b"a\x00b\x08c\xe2\x80\xaed", "a b c d"),
        (b"\x1b[2K\x1b[A", ""),
    ],
)
def test_a_line_as_a_terminal_would_leave_it(line: bytes, expected: str) -> None:
    assert displayed_text(line) == expected


def test_lines_in_pieces() -> None:
    whole, pieces = Lines(), Lines()
    data = "".join(f"line {i}\n" for i in range(1000)).encode() + b"not yet en"
    whole.feed(data)
    for at in range(0, len(data), 7):
        pieces.feed(data[at : at + 7])
    assert whole.newest() == pieces.newest()
    newest, seen = whole.newest()
    assert (len(newest), newest[-2:], seen) == (MAX_LINES, ("line 999", "not yet en"), 1001)


def test_an_endless_line_takes_little_memory() -> None:
    lines = Lines()
    for _ in range(100):
        lines.feed(b"x" * 100_000)
    assert len(lines._partial) <= 64 * 1024
    assert lines.newest()[1] == 1


def test_a_console_that_grows(tmp_path: Path) -> None:
    path = tmp_path / "console.log"
    console = Console(path)
    assert console.poll() == ((), 0)
    with open(path, "ab", buffering=0) as out:
        out.write(b"one\ntw")
        assert console.poll() == (("one", "tw"), 2)
        out.write(b"o\n")
        assert console.poll() == (("one", "two"), 2)
        out.write(b"\r1%\r2%")
        assert console.poll() == (("one", "two", "2%"), 3)
    path.write_bytes(b"anew\n")
    assert console.poll() == (("one", "two", "2%anew"), 3), "what was seen stays, as on a terminal"
    path.write_bytes(b"once\n")
    assert console.poll() == (("one", "two", "2%anew", "once"), 4), "a file that is emptied may be as long again"


def test_a_flood_costs_a_look_at_its_end(tmp_path: Path) -> None:
    path = tmp_path / "console.log"
    console = Console(path)
    path.write_bytes(b"first\n")
    console.poll()
    with open(path, "ab") as out:
        for i in range(100):
            out.write(b"%d flood %s\n" % (i, b"x" * 1_000_000))
        out.writelines(b"end %d\n" % i for i in range(3))
    began = time.process_time()
    newest, seen = console.poll()
    assert time.process_time() - began < 1.0
    assert newest[0] == "first"
    assert "MiB of output not shown" in newest[1]
    assert newest[-3:] == ("end 0", "end 1", "end 2")
    assert seen == len(newest)


def test_the_first_reading_has_no_rates(tmp_path: Path) -> None:
    source = HostSource(tmp_path)
    first = source.read([os.getpid()], 100.0)
    assert (first.cpu, first.tree_cpu, first.disk_read, first.net_in) == (None, None, None, None)
    assert first.memory_total and first.disk_free and first.tree_rss and first.tree_processes
    time.sleep(0.1)
    second = source.read([os.getpid()], 101.0)
    assert second.cpu is not None
    assert second.tree_cpu is not None


def test_the_tree_counts_children_and_their_work(tmp_path: Path) -> None:
    """Work of short-lived children counts, too: an executor that starts a process a task is busy, not idle."""
    script = (
        "import subprocess, sys\n"
        "print('up', flush=True)\n"
        "while True: subprocess.run([sys.executable, '-c', 'sum(range(3_000_000))'])\n"
    )
    training = subprocess.Popen(python(script), stdout=subprocess.PIPE)
    try:
        training.stdout.readline()
        source = HostSource(tmp_path)
        source.read([training.pid], time.monotonic())

        def busy() -> bool:
            time.sleep(1.5)
            reading = source.read([training.pid], time.monotonic())
            return reading.tree_cpu is not None and reading.tree_cpu > 20  # the parent alone only waits

        wait_for(busy)
    finally:
        training.kill()
        training.wait()
        for child in psutil.Process().children():
            if child.pid == training.pid:
                child.kill()


def test_processes_that_are_gone_are_unknown_not_zero(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    reading = HostSource(tmp_path).read([gone.pid], 1.0)
    assert (reading.tree_rss, reading.tree_cpu, reading.tree_processes) == (None, None, None)


def test_a_reading_that_fails_costs_only_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise psutil.AccessDenied(1)

    for name in ("virtual_memory", "disk_io_counters", "cpu_percent"):
        monkeypatch.setattr(psutil, name, fail)
    reading = HostSource(tmp_path).read([os.getpid()], 1.0)
    assert (reading.memory_total, reading.disk_read, reading.cpu) == (None, None, None)
    assert reading.cores and reading.tree_rss


@pytest.mark.long
def test_settings_of_the_environment_are_recorded_without_hooks_too(state: State) -> None:
    lines = "for i in $(seq 1 40); do echo step $i/40 loss 2.$i; sleep 0.02; done"
    for threads in ("1", "2"):
        state.environment |= {"OMP_NUM_THREADS": threads}
        assert state.run("bash", "-c", lines, options=("--name", f"threads-{threads}")).returncode == 0
    told = json.loads(state.call("compare", "threads-1", "threads-2", "--json").stdout)
    (row,) = told["comparisons"]
    assert {"name": "environment.OMP_NUM_THREADS", "before": "1", "after": "2"} in row["changed"]


def test_each_line_of_the_console_knows_its_place_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "console.log"
    path.write_bytes(b"")
    console, random = Console(path), Random(7)
    whole = b"".join(b"%d %s\n" % (n, b"x" * random.randrange(90)) for n in range(3000)) + b"unfinished"
    at = 0
    with open(path, "ab", buffering=0) as out:
        while at < len(whole):
            size = random.randrange(3000)
            out.write(whole[at : at + size])
            at += size
            lines, _ = console.poll()
            starts = console.starts()
            assert len(starts) == len(lines)
            pairs = zip(lines, starts, strict=True)
            assert all(whole[start:].startswith(line.rstrip().encode()) for line, start in pairs)
            assert all(start == 0 or whole[start - 1 : start] == b"\n" for start in starts)

"""The readings of real process trees."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from monitor.sources import process_tree
from monitor.sources.host import HostSource, read_pressure
from tests.signals import send_group_signal
from trainhooks.protocol import rundir
from trainhooks.protocol.events import Host


@contextmanager
def training(source: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program that has printed a line; ended with its children at the end."""
    command = [sys.executable, "-u", "-c", source, *words]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert child.stdout is not None and child.stdout.readline()
        yield child
    finally:
        send_group_signal(child.pid, 9)
        child.wait()


def readings(source: HostSource, pid: int, enough: Callable[[Host], bool], seconds: float = 20.0) -> Host:
    """The first reading that has what is waited for; a limit against hanging, no claim about speed."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        reading = source.read([pid], time.monotonic())
        if enough(reading):
            return reading
        time.sleep(0.2)
    raise AssertionError(f"never came: {reading}")


def test_the_busiest_thread_by_name(tmp_path: Path) -> None:
    if not os.path.exists("/proc/self/schedstat"):
        assert readings(HostSource(tmp_path), os.getpid(), lambda r: True).tree_busiest is None
        return
    busy = "import threading, time; threading.Thread(target=time.sleep, args=(99,)).start(); print()\nwhile 1: pass"
    with training(busy) as child:
        reading = readings(HostSource(tmp_path), child.pid, lambda r: bool(r.tree_busiest and r.tree_busiest > 5))
        assert reading.tree_busiest_name is not None and reading.tree_busiest_name.endswith(f" {child.pid}")
        assert reading.tree_waiting is not None and 0 <= reading.tree_waiting < 1


def test_threads_that_wait_for_a_core(tmp_path: Path) -> None:
    """Three threads' worth of work bound to one core: they wait for it most of the time."""
    if not os.path.exists("/proc/self/schedstat") or not hasattr(os, "sched_setaffinity"):
        return
    crowd = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "for _ in range(2):\n    if os.fork() == 0: break\nprint()\nwhile 1: pass"
    )
    with training(crowd) as child:
        reading = readings(HostSource(tmp_path), child.pid, lambda r: (r.tree_waiting or 0) > 0.4)
        assert reading.tree_busiest is not None and reading.tree_busiest < 95


def test_open_files_and_bytes_written(tmp_path: Path) -> None:
    writes = (
        "import os, sys, time\n"
        "files = [open(os.devnull) for _ in range(40)]\nprint()\n"
        "while 1:\n"
        "    with open(sys.argv[1], 'wb') as out: out.write(b'x' * 1_000_000); out.flush(); os.fsync(out.fileno())\n"
        "    time.sleep(.05)\n"
    )
    with training(writes, str(tmp_path / "out")) as child:
        source = HostSource(tmp_path)
        first = source.read([child.pid], time.monotonic())
        assert first.tree_files is not None and first.tree_files >= 40
        assert first.tree_write is None
        if os.path.exists(f"/proc/{child.pid}/io"):
            reading = readings(source, child.pid, lambda r: bool(r.tree_write))
            assert reading.tree_write is not None and reading.tree_write > 100_000


def test_workers_and_executors_of_a_process_that_reports(tmp_path: Path) -> None:
    """As the tree of a trainer with two forked workers and a program that it runs."""
    family = (
        "import os, subprocess, time\n"
        "for _ in range(2):\n    if os.fork() == 0: time.sleep(99)\n"
        "subprocess.Popen(['sleep', '99'])\nprint()\ntime.sleep(99)\n"
    )
    with training(family) as child:
        (tmp_path / "rank-0-abc.lock").write_text(json.dumps({"pid": child.pid}))
        source = HostSource(tmp_path)
        reading = readings(source, child.pid, lambda r: (r.tree_workers, r.tree_executors) == (2, 1))
        assert reading.tree_processes == 4
        assert child.pid in source.members and len(source.members) == 4


def test_the_machine_around_it(tmp_path: Path) -> None:
    source = HostSource(tmp_path)
    reading = source.read([os.getpid()], 1.0)
    assert reading.work_free and reading.runnable
    stolen = source.read([os.getpid()], 2.0).cpu_stolen
    assert stolen is None or stolen >= 0.0
    if os.path.isdir("/dev/shm"):
        assert reading.shm_total and reading.shm_used is not None and reading.shm_used <= reading.shm_total


@pytest.mark.parametrize("resource", ["cpu", "io", "memory", "nonsense"])
def test_pressure_is_a_percentage_or_unknown(resource: str) -> None:
    found = read_pressure(resource)
    if os.path.exists(f"/proc/pressure/{resource}"):
        assert found is not None and 0 <= found <= 100
    else:
        assert found is None


def test_stopped_processes_and_what_is_printed(tmp_path: Path) -> None:
    (tmp_path / rundir.CONSOLE).write_bytes(b"")
    with training("import time\nprint()\ntime.sleep(99)") as child:
        source = HostSource(tmp_path)
        assert readings(source, child.pid, lambda r: r.output == 0.0).tree_stopped is None
        child.send_signal(signal.SIGSTOP)
        (tmp_path / rundir.CONSOLE).write_bytes(b"x" * 1000)
        assert (source.read([child.pid], time.monotonic()).output or 0.0) > 0.0
        readings(source, child.pid, lambda r: r.tree_stopped == 1)
        child.send_signal(signal.SIGCONT)
        readings(source, child.pid, lambda r: r.tree_stopped is None)


@pytest.mark.parametrize(("end", "told"), [("os._exit(3)", "exit code 3"), ("os.kill(os.getpid(), 9)", "SIGKILL")])
def test_a_process_that_nothing_has_waited_for_is_told_with_how_it_ended(tmp_path: Path, end: str, told: str) -> None:
    code = f"import os, time\nif os.fork() == 0: {end}\nprint()\ntime.sleep(99)"
    with training(code) as child:
        source = HostSource(tmp_path)
        reading = readings(source, child.pid, lambda r: r.tree_ended == 1)
        assert reading.tree_ended_by == told


FORKED = """
import os, time
held = bytearray(os.urandom(1 << 20) * 256)
done, has_copied = os.pipe()
for _ in range(3):
    if not os.fork():
        kept = bytes(held) if os.environ.get("COPIES") else None
        os.write(has_copied, b"1")
        time.sleep(99)
for _ in range(3):
    os.read(done, 1)
print(); time.sleep(99)
"""


@pytest.mark.skipif(not process_tree._counts_shared(), reason="the kernel stops calls for memory meanwhile")
@pytest.mark.parametrize("copies", [0, 3])
def test_memory_that_processes_share_is_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copies: int
) -> None:
    monkeypatch.setenv("COPIES", "1" * (copies > 0))
    with training(FORKED) as child:
        reading = readings(HostSource(tmp_path), child.pid, lambda r: r.tree_processes == 4)
    assert reading.tree_rss is not None and (copies + 1) * 256 <= reading.tree_rss >> 20 < (copies + 1) * 256 + 128


def test_the_busiest_process_beside_the_training(tmp_path: Path) -> None:
    busy = "print()\nwhile 1: pass"
    with training("print(); import time; time.sleep(99)") as child, training(busy), training(busy), training(busy):
        source = HostSource(tmp_path)
        if (os.cpu_count() or 1) > 4:
            return  # three busy processes are no busy host there
        reading = readings(source, child.pid, lambda r: r.others_busiest_name is not None)
    assert reading.others_busiest is not None and reading.others_busiest > 5.0
    assert reading.others_busiest_name is not None and reading.others_busiest_name != f"python {child.pid}"

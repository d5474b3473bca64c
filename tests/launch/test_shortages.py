"""Trainings short of descriptors, threads or address space, with a viewer that attaches: as without trainmon."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from monitor.running import room
from monitor.sources.host import Cgroup

from .conftest import ROOT, TRAINMON, State, wait_for

# Arguments: directory, what is short, when: `early` (as the hooks open the run), `late` (once they record) or `bare`.
TRAINING = """
import os, resource, sys, time
place, what, moment = sys.argv[1:]

def shorten():
    if what == 'descriptors':
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
        try:
            while True: taken.append(os.open('/dev/null', os.O_RDONLY))
        except OSError: pass
        if moment == 'early':  # the hooks' own, and what a context takes
            for number in taken[-9:]: os.close(number)
    elif what == 'threads':
        if os.getuid() == 0:  # of whom threads are not counted
            import ctypes
            directory = rundir.socket_dir()
            rundir.socket_dir = lambda: directory  # which is named after the user
            os.setresuid(61234, 0, 0)
            header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
            assert ctypes.CDLL(None).capget(header, sets) == 0
            sets[0] &= ~(1 << 24 | 1 << 21)  # CAP_SYS_RESOURCE and CAP_SYS_ADMIN exempt from the limit
            assert ctypes.CDLL(None).capset(header, sets) == 0
        resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
    else:  # less than the stacks of two threads take
        used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (12 << 20), used + (12 << 20)))

taken, steps = [], iter
if moment != 'bare':
    from trainhooks.recording import background_writer
    from trainhooks.protocol import rundir
    from trainhooks import steps
if moment == 'early':
    begin = background_writer.BackgroundWriter.open
    background_writer.BackgroundWriter.open = lambda self, group: (shorten(), begin(self, group))
for i in steps(range(100_000)):
    time.sleep(0.005)
    if moment == 'late' and i == 40: shorten()
    if i == 100: os.mkdir(place + '/ready')
    if i > 100 and os.path.isdir(place + '/go'): break
print('trained', i > 100)
sys.exit(3)
"""


CASES = [("descriptors", "early"), ("descriptors", "late"), ("threads", "early"), ("memory", "early")]


def ended(process: subprocess.Popen[bytes], place: Path) -> tuple[int, bytes, bytes]:
    """Let a training end: how it did, and what it printed."""
    (place / "go").mkdir()
    out, err = process.communicate(timeout=60)
    shutil.rmtree(place / "ready")
    shutil.rmtree(place / "go")
    return process.returncode, out, err


@pytest.mark.long
@pytest.mark.parametrize(("what", "moment"), CASES)
def test_a_training_that_is_short_of_something_goes_on(state: State, tmp_path: Path, what: str, moment: str) -> None:
    words = [sys.executable, "-c", TRAINING, str(tmp_path), what]
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    bare = subprocess.Popen([*words, "bare"], **pipes)
    wait_for((tmp_path / "ready").exists)
    expected = ended(bare, tmp_path)
    assert expected == (3, b"trained True\n", b"")

    front = state.start(*words, moment)
    wait_for(lambda: (tmp_path / "ready").exists() or front.poll() is not None)
    follow = [sys.executable, "-m", "monitor", "attach", "--json"]
    viewer = subprocess.Popen(follow, env=state.environment, cwd=ROOT, **pipes)
    try:
        assert viewer.stdout is not None
        for _ in range(3):
            viewer.stdout.readline()
        code, out, err = ended(front, tmp_path)
    finally:
        viewer.kill()
        viewer.communicate()
    assert (code, out) == expected[:2], err
    assert b"Traceback" not in err and b"libzmq" not in err
    if moment == "late":
        report = state.call("report")
        assert report.returncode == 0 and b"steps" in report.stdout


def limited_group(limits: dict[str, int]) -> Path:
    """A control group of version 1 or 2 with one of these limits, by the name of the file; skips where none is made."""
    for name, limit in limits.items():
        for place in (Path("/sys/fs/cgroup", name.partition(".")[0]), Path("/sys/fs/cgroup")):
            made = place / f"trainmon-test-{os.getpid()}"
            with contextlib.suppress(OSError):
                made.mkdir()
                if (made / name).exists():
                    (made / name).write_text(str(limit))
                    return made
                made.rmdir()
    pytest.skip("nobody here may make a control group")


def within(group: Path, *words: str) -> list[str]:
    return ["sh", "-c", 'echo $$ > "$0"/cgroup.procs && exec "$@"', str(group), *words]


def test_a_container_for_few_tasks_is_the_program_s(state: State) -> None:
    group = limited_group({"pids.max": 34})
    threads = "import threading, time; all = [threading.Thread(target=time.sleep, args=(3,)) for _ in range(29)]\n"
    threads += "for one in all: one.start()\nprint(len(all) + 1)"
    words = within(group, *TRAINMON, "run", "--no-tui", "--", sys.executable, "-c", threads)
    try:
        done = subprocess.run(words, env=state.environment, cwd=ROOT, capture_output=True, timeout=60)
        assert (done.returncode, done.stdout) == (0, b"30\n"), done.stderr
    finally:
        wait_for(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()
    journal = next(state.only.glob("node-*.jsonl")).read_text()
    assert '"code":"little-room"' in journal and '"kind":"host"' not in journal
    assert state.ended(state.only) is not None
    assert b"tasks left" in state.call("report").stdout


# It takes what its control group has left while it is recorded, and as many bytes more as it is told.
GROWING = """
import glob, mmap, os, signal, sys, time
from monitor.sources.host import Cgroup
from trainhooks.protocol import rundir
journals = os.path.join(os.environ[rundir.RUN_VARIABLE], "node-*.jsonl")
while not any('"kind":"host"' in open(path).read() for path in glob.glob(journals)):
    time.sleep(0.1)  # until the recorder is there
time.sleep(2.0)
size = Cgroup().room(open('/proc/self/cgroup').read())[0] + (int(sys.argv[1]) << 20)
block, parent = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), os.getppid()
for place in range(0, len(block), 4096):
    block[place] = 1
    near = len(block) - place < 200 << 20  # the recorder needs a moment there, on a busy machine more than one
    if place % ((1 if near else 8) << 20) == 0: time.sleep(0.02)
for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT): os.kill(parent, number)
time.sleep(0.5)
print('same parent', os.getppid() == parent)
"""


@pytest.mark.long
@pytest.mark.parametrize(("more", "code"), [(8, 0), (60, 137)])
def test_the_recorder_leaves_before_memory_is_full(state: State, more: int, code: int) -> None:
    group = limited_group(dict.fromkeys(("memory.limit_in_bytes", "memory.max"), 700 << 20))
    program = ["setpriv", "--pdeathsig", "KILL", sys.executable, "-c", GROWING, str(more)]
    words = within(group, *TRAINMON, "run", "--no-tui", "--", *program)
    try:
        done = subprocess.run(words, env=state.environment, cwd=ROOT, capture_output=True, timeout=60)
        assert (done.returncode, done.stdout) == (code, b"same parent True\n" * (code == 0)), done.stderr
    finally:
        wait_for(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()
    report = state.call("report").stdout.decode()
    assert "recording ended, memory is near its limit: this container has" in report
    assert ("killed by the kernel's OOM killer" in report) == (code == 137)


def test_how_near_the_limit_of_memory_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cgroup.controllers").touch()
    (tmp_path / "memory.max").write_text(str(1 << 30))
    (tmp_path / "meminfo").write_text(f"MemAvailable: {8 << 20} kB\nSwapFree: 0 kB\n")
    monkeypatch.setattr(room, "MEMORY", str(tmp_path / "meminfo"))

    def looked(left: int) -> tuple[str | None, float]:
        (tmp_path / "memory.current").write_text(str((1 << 30) - (left << 20)))
        return room.near_limit(os.getpid(), Cgroup(tmp_path))

    assert looked(1000) == (None, pytest.approx(936 / 1024))
    assert looked(65) == (None, room.MIN_LOOK_SECONDS)
    ends = "recording ended, memory is near its limit: "
    assert looked(63) == (f"{ends}this container has 63 MiB of memory left", room.MIN_LOOK_SECONDS)
    (tmp_path / "meminfo").write_text("MemAvailable: 8192 kB\nSwapFree: 1024 kB\n")
    short = room.shortage(cgroup=Cgroup(tmp_path))
    assert (short, looked(1000)[0]) == ("this machine has 9 MiB of memory left", f"{ends}{short}")
    (tmp_path / "meminfo").unlink()
    assert looked(1000)[0] is None and room.shortage(cgroup=Cgroup(tmp_path)) is None
    (tmp_path / "memory.max").write_text("max")
    assert looked(0) == (None, room.MAX_LOOK_SECONDS)

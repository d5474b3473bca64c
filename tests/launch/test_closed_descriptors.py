"""A program closes a descriptor: whoever is at its other end learns it at once, beside a bare run of the program."""

from __future__ import annotations

import os
import select
import subprocess
import time
from pathlib import Path

import pytest

from .conftest import ROOT, TRAINMON, State, python, wait_for

GONE = 20.0  # seconds that the program goes on after the close; the end must show long before
SOON = 10.0  # on a busy machine

WAYS = ["bare", "trainmon"]


def started(state: State, way: str, *command: str, **more: object) -> subprocess.Popen[bytes]:
    words = list(command) if way == "bare" else [*TRAINMON, "run", "--no-tui", "--", *command]
    given: dict[str, object] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(words, env=state.environment, cwd=ROOT, **{**given, **more})  # type: ignore[call-overload,no-any-return]


def read_to_end(handle: int, seconds: float) -> bytes:
    """What can be read until the end, which must come within `seconds`."""
    until, found = time.monotonic() + seconds, b""
    while select.select([handle], [], [], max(0.0, until - time.monotonic()))[0]:
        data = os.read(handle, 65536)
        if not data:
            return found
        found += data
    raise AssertionError(f"no end after {found[-100:]!r}")


def finish(process: subprocess.Popen[bytes]) -> None:
    assert process.poll() is None, "the program still runs"
    process.terminate()
    process.wait(30)


CLOSES = [
    ("sh", "-c", f"echo out; exec >&-; sleep {GONE}"),
    ("sh", "-c", f"head -c 3000000 /dev/zero; exec >&-; sleep {GONE}"),
    tuple(python(f"import os, time; print('out'); os.close(1); time.sleep({GONE})")),
]


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("command", CLOSES, ids=["shell", "flood", "python"])
def test_the_reader_of_stdout_sees_its_end(state: State, way: str, command: tuple[str, ...]) -> None:
    process = started(state, way, *command)
    assert process.stdout is not None
    seen = read_to_end(process.stdout.fileno(), SOON + GONE / 4)
    assert seen in (b"out\n", b"\0" * 3_000_000)
    finish(process)


@pytest.mark.parametrize("way", WAYS)
def test_a_child_that_still_writes_keeps_stdout_open(state: State, way: str) -> None:
    script = "(sleep 2; echo late) & exec >&-; sleep 60"
    process = started(state, way, "sh", "-c", script)
    assert process.stdout is not None
    assert read_to_end(process.stdout.fileno(), SOON) == b"late\n"
    finish(process)


def test_stderr_stays_for_the_report(state: State) -> None:
    ended = state.run("sh", "-c", "echo out; exec >&- 2>&-; sleep 1; exit 4")
    assert (ended.returncode, ended.stdout) == (4, b"out\n")
    assert ended.stderr.startswith(b"trainmon: sh failed")


@pytest.mark.parametrize("way", WAYS)
def test_the_writer_of_stdin_gets_a_broken_pipe(state: State, way: str) -> None:
    reading, writing = os.pipe()
    process = started(state, way, "sh", "-c", f"exec <&-; sleep {GONE}", stdin=reading)
    os.close(reading)
    os.set_blocking(writing, False)

    def is_broken() -> bool:
        try:
            os.write(writing, b"y\n")
        except BrokenPipeError:
            return True
        except BlockingIOError:
            pass
        return False

    try:
        wait_for(is_broken, SOON)
    finally:
        os.close(writing)
    finish(process)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("number", [3, 7])
def test_the_reader_of_another_descriptor_sees_its_end(state: State, way: str, number: int) -> None:
    reading, writing = os.pipe()

    def place() -> None:
        os.dup2(writing, number, inheritable=True)
        if writing != number:
            os.close(writing)

    script = f"echo through >&{number}; exec {number}>&-; sleep {GONE}"
    process = started(state, way, "sh", "-c", script, close_fds=False, preexec_fn=place)
    os.close(writing)
    try:
        assert read_to_end(reading, SOON) == b"through\n"
    finally:
        os.close(reading)
    finish(process)


def test_no_process_of_trainmon_holds_what_the_program_was_given(state: State, tmp_path: Path) -> None:
    """Seen in /proc: neither the front nor the supervisor."""
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    front = started(state, "trainmon", "sleep", "30", close_fds=False)
    os.close(writing)
    wait_for(lambda: state.runs() and state.pid(state.only) and state.supervisor(state.only))
    pipe = os.stat(reading).st_ino

    def holds(pid: int) -> bool:
        names = [os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir() if entry.is_symlink()]
        return f"pipe:[{pipe}]" in names

    try:
        assert holds(state.pid(state.only))
        wait_for(lambda: not holds(front.pid) and not holds(state.supervisor(state.only)), SOON)
    finally:
        os.close(reading)
    finish(front)

"""What a terminal would get line by line comes line by line under trainmon, and is there when the program is killed."""

from __future__ import annotations

import os
import pty
import select
import signal
import sys
import time

import pytest

from tests.signals import send_group_signal, send_signal

from .conftest import TRAINMON, State, wait_for

# Prints without a flush, as most programs do, and then does nothing for a while.
PRINTS = "import os, sys, time\nfor n in range(40): print('line', n)\n{then}time.sleep(600)"


@pytest.fixture(autouse=True)
def plain_login(state: State) -> None:
    """A test machine may have set what makes every Python print at once."""
    state.environment.pop("PYTHONUNBUFFERED", None)


def on_terminal(state: State, *command: str) -> tuple[int, int]:
    """`trainmon run --no-tui` on a terminal of its own: its pid and the terminal's other end."""
    pid, terminal = pty.fork()
    if pid == 0:
        words = [*TRAINMON, "run", "--no-tui", "--", *command]
        os.execve(words[0], words, state.environment)
    return pid, terminal


def read_until(terminal: int, text: bytes, seconds: float = 60.0) -> bytes:
    seen, until = b"", time.monotonic() + seconds
    while text not in seen and time.monotonic() < until:
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                seen += os.read(terminal, 1 << 16)
            except OSError:
                break
    return seen


def test_a_killed_program_has_shown_every_line_that_it_printed(state: State) -> None:
    pid, terminal = on_terminal(state, sys.executable, "-c", PRINTS.format(then=""))
    assert b"line 39" in read_until(terminal, b"line 39")
    send_signal(state.pid(state.only), signal.SIGKILL)
    read_until(terminal, b"more:")
    os.waitpid(pid, 0)
    assert (state.only / "console.log").read_bytes().count(b"line") == 40
    os.close(terminal)


def test_a_worker_of_the_program_prints_line_by_line_too(state: State) -> None:
    then = (
        "import subprocess; subprocess.run([sys.executable, '-c', \"print('worker'); import time; time.sleep(600)\"])\n"
    )
    pid, terminal = on_terminal(state, sys.executable, "-c", PRINTS.format(then=then))
    assert b"worker" in read_until(terminal, b"worker")
    send_group_signal(state.pid(state.only), signal.SIGKILL)
    read_until(terminal, b"more:")
    os.waitpid(pid, 0)
    os.close(terminal)


@pytest.mark.long
def test_into_a_pipe_the_program_buffers_as_without_trainmon(state: State) -> None:
    """Without a reader the buffering is the program's own: line by line costs a write a line."""
    code = "import sys; print(sys.stdout.line_buffering)"
    done = state.run(sys.executable, "-c", code)
    assert done.stdout == b"False\n"
    pid, terminal = on_terminal(state, sys.executable, "-c", code)
    assert b"True" in read_until(terminal, b"more:")
    os.waitpid(pid, 0)
    pid, terminal = on_terminal(state, "sh", "-c", f"{sys.executable} -c '{code}' | cat")
    assert b"False" in read_until(terminal, b"more:")
    os.waitpid(pid, 0)
    wait_for(lambda: len(state.runs()) == 3)

"""Commands on terminals of their own, for the benchmarks: what reaches one is what a connection has to carry."""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fcntl import ioctl
from pathlib import Path

TRAINMON = [sys.executable, "-m", "monitor"]
COLUMNS, LINES = 160, 45


@contextmanager
def state_dir() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="trainmon-bench-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def screen(command: list[str], state: Path, **environment: str) -> Iterator[tuple[int, int]]:
    """A command on a terminal of its own; gives its pid and the terminal's other end."""
    pid, master = pty.fork()
    if pid == 0:
        os.environ.update(TRAINMON_DIR=str(state), TERM="xterm-256color", COLORTERM="truecolor", **environment)
        os.execvp(command[0], command)
    ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    try:
        yield pid, master
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(master)


def read(master: int, seconds: float) -> bytes:
    """What comes within so many seconds, as soon as something does."""
    ready, _, _ = select.select([master], [], [], seconds)
    try:
        return os.read(master, 1 << 16) if ready else b""
    except OSError:  # the other end is closed
        return b""


def drain(master: int, seconds: float, seen: Callable[[bytes], None] | None = None) -> int:
    """Read for so many seconds. Returns the number of bytes that came; `seen` is given each piece."""
    until, count = time.perf_counter() + seconds, 0
    while time.perf_counter() < until:
        data = read(master, 0.05)
        count += len(data)
        if data and seen is not None:
            seen(data)
    return count

"""A program whose stdin is a terminal: it may ask for its size, and finds the end of input."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import sys
import termios
from pathlib import Path

import pytest

from tests.launch.conftest import ROOT, TRAINMON, State

READS = """
import os, sys
print("terminal", sys.stdin.isatty())
print("size", os.popen("stty size").read().strip())
if sys.argv[1:]:
    import readline  # it puts the terminal into a mode of its own
for read in (lambda: input("name? "), sys.stdin.read, sys.stdin.readline):
    try:
        print(repr(read()))
    except EOFError:
        print("end of input")
"""


def _in_terminal(state: State, *words: str) -> str:
    """Run trainmon in a terminal of 33 rows and 97 columns; return what it shows."""
    pid, terminal = pty.fork()
    if pid == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 97, 0, 0))
        os.chdir(ROOT)
        os.execve(TRAINMON[0], [*TRAINMON, *words], state.environment)
    shown = b""
    while True:
        try:
            read = os.read(terminal, 4096)
        except OSError:  # the last writer has closed it
            break
        if not read:
            break
        shown += read
    os.waitpid(pid, 0)
    os.close(terminal)
    return shown.decode()


@pytest.mark.parametrize("options", [(), ("--pty",)], ids=["file", "pty"])
@pytest.mark.parametrize("readline", [(), ("readline",)], ids=["plain", "readline"])
def test_a_terminal_tells_its_size_and_has_nothing_to_read(
    state: State, tmp_path: Path, options: tuple[str, ...], readline: tuple[str, ...]
) -> None:
    script = tmp_path / "asks.py"
    script.write_text(READS)
    shown = _in_terminal(state, "run", "--no-tui", *options, "--", sys.executable, str(script), *readline)
    assert "terminal True\r\nsize 33 97\r\n" in shown
    assert "end of input\r\n''\r\n''\r\n" in shown

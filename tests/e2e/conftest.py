"""The real command on a real terminal: a pty, with a terminal emulator that keeps the screen."""

from __future__ import annotations

import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from fcntl import ioctl
from pathlib import Path

import psutil
import pyte
import pytest

from trainhooks.protocol import rundir

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60.0  # seconds; a limit against hanging on a busy box, no claim about speed


class Terminal:
    """A command on a terminal of its own, and what stands on that terminal's screen."""

    def __init__(self, command: list[str], environment: dict[str, str], columns: int, lines: int) -> None:
        self.screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self.pid, self._master = pty.fork()
        if self.pid == 0:
            os.chdir(ROOT)
            os.execve(command[0], command, environment)
        ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def read(self, seconds: float = 0.1) -> None:
        if self._master < 0:  # closed, but its end may still be waited for
            time.sleep(seconds)
            return
        ready, _, _ = select.select([self._master], [], [], seconds)
        if ready:
            with suppress(OSError):
                data = os.read(self._master, 1 << 16)
                self.raw += data
                self._stream.feed(data)

    @property
    def master(self) -> int:
        """The end at which its output arrives, for who reads that without the emulator."""
        return self._master

    @property
    def text(self) -> str:
        return "\n".join(self.screen.display)

    def wait_for(self, what: str | Callable[[str], bool]) -> str:
        """The screen's text once it holds `what`."""
        until = time.monotonic() + PATIENCE
        while True:
            self.read()
            text = self.text
            if what(text) if callable(what) else what in text:
                return text
            assert time.monotonic() < until, f"never came: {what}\n{text}"

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def close(self) -> None:
        """The terminal goes away, as when a connection drops."""
        if self._master >= 0:
            os.close(self._master)
            self._master = -1

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)

    def exit_code(self) -> int:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            self.read(0.05)
            done, status = os.waitpid(self.pid, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
        raise AssertionError(f"it does not end\n{self.text}")


class Box:
    """A state directory, terminals on it, and the processes that a test must not leave behind."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("TRAINMON") and k != "NO_COLOR"}
        self.environment[rundir.STATE_VARIABLE] = str(path)
        self.environment.update(TERM="xterm-256color", COLORTERM="truecolor", PYTHONPATH=str(ROOT))
        self.terminals: list[Terminal] = []

    def trainmon(self, *words: str, columns: int = 160, lines: int = 45, within: Sequence[str] = ()) -> Terminal:
        command = [*within, sys.executable, "-m", "monitor", *words]
        terminal = Terminal(command, self.environment, columns, lines)
        self.terminals.append(terminal)
        return terminal

    def run(self) -> Path:
        """The one run there is."""
        found = list((self.path / "runs").iterdir())
        assert len(found) == 1
        return found[0]

    def clear(self) -> None:
        for terminal in self.terminals:
            terminal.kill()
            terminal.close()
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get(rundir.STATE_VARIABLE) == str(self.path):
                    process.kill()


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    box = Box(tmp_path)
    yield box
    box.clear()

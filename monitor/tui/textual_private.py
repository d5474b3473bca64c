"""All uses of Textual's private names, each with its reason.

Checked with Textual 8.2.8. No other file in monitor/tui uses a name of Textual's that begins with an underscore;
tests/tui/test_textual_private.py checks this, and that each name still exists in the installed version.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import IO, Any

from rich.color import ColorSystem
from rich.console import Console
from textual._compositor import ChopsUpdate, Compositor, LayoutUpdate
from textual.app import App
from textual.driver import Driver
from textual.drivers import linux_driver
from textual.drivers.linux_driver import LinuxDriver
from textual.filter import LineFilter
from textual.screen import Screen

__all__ = [
    "ChopsUpdate",
    "Compositor",
    "CountingDriver",
    "LayoutUpdate",
    "OwnCompositorScreen",
    "add_filter",
    "answers_questions",
    "color_system",
    "driver_of",
    "report_mouse",
    "set_color_system",
]


def color_system(console: Console) -> ColorSystem | None:
    """Return the color system of the terminal; None without colors.

    `Console.color_system` gives the name only, and rich has no public way from the name to the enumeration.
    """
    return console._color_system


def set_color_system(console: Console, system: ColorSystem) -> None:
    """Set the color system, which has no public setter; Textual makes the console itself."""
    console._color_system = system


def add_filter(app: App[Any], line_filter: LineFilter) -> None:
    """Pass everything that is drawn through a filter. Textual has no public call that adds one."""
    app._filters.append(line_filter)


def answers_questions(app: App[Any]) -> bool:
    """Return whether the terminal has answered the mode query that Textual sends at the start."""
    return app._sync_available


def driver_of(app: App[Any]) -> Driver | None:
    """Return the driver, which writes to the terminal. Bytes written past it may land in a control sequence."""
    return app._driver


def report_mouse(app: App[Any], wanted: bool) -> None:
    """Have the terminal send what the mouse does, or keep it for selecting text.

    The driver's own calls are private, and also set how positions are sent: in pixels, where the terminal can do that.
    """
    if (driver := app._driver) is not None:
        driver.write("\x1b[?1000h\x1b[?1003h" if wanted else "\x1b[?1003l\x1b[?1000l")
        driver.flush()


# Textual decodes what is typed, and ends with a traceback at a byte that is no UTF-8: a key with Alt, an old encoding.
vars(linux_driver)["getincrementaldecoder"] = lambda encoding: partial(getincrementaldecoder(encoding), "ignore")


class OwnCompositorScreen(Screen[None]):
    """A screen with a compositor of ours; Textual makes its own in `Screen.__init__`."""

    def __init__(self, compositor: Compositor, id: str | None = None) -> None:
        super().__init__(id=id)
        self._compositor = compositor


class _CountedFile:
    """A file that counts the writes that have ended. Errors of a terminal that is gone are ignored."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self.written = 0
        self.written_at = 0.0  # monotonic seconds

    def write(self, text: str) -> None:
        with suppress(OSError):  # an error would end the writing thread, for which Textual waits
            self._file.write(text)
            self._file.flush()
        self.written_at = monotonic()
        self.written += 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class CountingDriver(LinuxDriver):
    """Textual's driver, which also says what the terminal's buffers have not taken yet.

    A thread of Textual's writes to `LinuxDriver._file`, and waits there while they are full; `write` only queues.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._given = 0  # writes
        self._counted = _CountedFile(self._file)
        self._file: Any = self._counted

    def write(self, data: str) -> None:
        self._given += 1
        super().write(data)

    @property
    def waiting(self) -> int:
        """Return the number of writes that have not ended."""
        return self._given - self._counted.written

    @property
    def written_at(self) -> float:
        """Return when the last write ended, in monotonic seconds."""
        return self._counted.written_at

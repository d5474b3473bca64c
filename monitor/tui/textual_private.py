"""All uses of Textual's private names, each with its reason.

Checked with Textual 8.2.8. No other file in monitor/tui uses a name of Textual's that begins with an underscore;
tests/tui/test_textual_private.py checks this, and that each name still exists in the installed version.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from contextlib import suppress
from functools import partial
from threading import Lock
from time import monotonic
from typing import IO, Any, TypeVar

from rich.color import ColorSystem
from rich.console import Console
from textual._compositor import ChopsUpdate, Compositor, LayoutUpdate
from textual.app import App
from textual.driver import Driver
from textual.drivers import _writer_thread, linux_driver
from textual.drivers.linux_driver import LinuxDriver
from textual.filter import LineFilter
from textual.screen import Screen

__all__ = [
    "ChopsUpdate",
    "Compositor",
    "CountingDriver",
    "LayoutUpdate",
    "OwnCompositorScreen",
    "PatientScreen",
    "add_filter",
    "answers_questions",
    "color_system",
    "driver_of",
    "report_mouse",
    "set_color_system",
]

Result = TypeVar("Result")
HELD_SECONDS = 0.02  # until a picture that waits for the terminal is tried again: about a frame of Textual's


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


# The queue of writes has no end, or the dashboard would wait for the terminal. Pictures wait before they are made.
vars(_writer_thread)["MAX_QUEUED_WRITES"] = 0


class PatientScreen(Screen[Result]):
    """A screen that is painted once the terminal has taken what was painted before.

    Until then the compositor collects what changes. So any number of key presses leave one picture on its way and the
    newest behind it. Textual would queue one for each.
    """

    _tries_again = False

    def _compositor_refresh(self) -> None:
        driver = self.app._driver
        if isinstance(driver, CountingDriver):
            driver.holds = self is self.app.screen and driver.waiting > 0
            if driver.holds:
                self.note_hold()
                self._dirty_widgets.clear()  # the compositor knows their regions
                if not self._tries_again:
                    self._tries_again = True
                    self.set_timer(HELD_SECONDS, self._try_again)
                return
        super()._compositor_refresh()

    def note_hold(self) -> None:
        """Called each time a picture is held back."""

    def note_cleared(self) -> None:
        """Called when the terminal has been cleared."""

    def _try_again(self) -> None:
        self._tries_again = False
        self._compositor_refresh()


class OwnCompositorScreen(PatientScreen[None]):
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

    holds = False  # whether a picture is held back until the terminal has taken the last one

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._given = 0  # writes
        self._counting = Lock()  # the thread that reads keys writes, too: to terminals that tell their size
        self._counted = _CountedFile(self._file)
        self._file: Any = self._counted

    def write(self, data: str) -> None:
        with self._counting:
            self._given += 1
        super().write(data)

    def _sigcont_application(self, *_: Any) -> None:
        """Start again after a stop. SIGSTOP comes unannounced: what runs ends first, or two threads would read keys."""
        if self._must_signal_resume:
            super()._sigcont_application()
        else:  # not here: the signal may have interrupted a write
            self._loop.call_soon_threadsafe(self._start_again)

    def resume_application_mode(self) -> None:
        super().resume_application_mode()
        screen = self._app.screen
        if isinstance(screen, PatientScreen):
            screen.note_cleared()
        screen.refresh()

    def _start_again(self) -> None:
        if self._auto_restart and self._writer_thread is not None and self._writer_thread.is_alive():
            self.suspend_application_mode()
            self.resume_application_mode()

    @property
    def waiting(self) -> int:
        """Return the number of writes that have not ended."""
        return self._given - self._counted.written

    @property
    def written_at(self) -> float:
        """Return when the last write ended, in monotonic seconds."""
        return self._counted.written_at

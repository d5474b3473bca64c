"""Write to the terminal only what has changed, and no sooner than its connection can take it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence
from functools import lru_cache
from time import monotonic

from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style
from textual.driver import Driver
from textual.geometry import Region
from textual.strip import Strip

from monitor.tui.textual_private import (
    ChopsUpdate,
    Compositor,
    CountingDriver,
    LayoutUpdate,
    OwnCompositorScreen,
    color_system,
)

# Only changed cells, and only the color codes that are not already set.
#
# Textual's partial update writes each dirty row of a widget from the widget's left edge, however little of it changed,
# and each piece with all of its colors. On a slow link that is most of the traffic. The updates made here are cropped
# at both ends, and drawn with one pen that remembers the colors that are set.

Codes = tuple[frozenset[str], tuple[str, ...], tuple[str, ...]]  # attributes, text color, background

Rows = Sequence[Iterable[Strip]]

MAX_REPAINT_GAP = 0.05  # seconds; within them nobody else writes to the terminal or clears it
PLAIN: Codes = (frozenset(), (), ())
RESET = "\x1b[0m"
_ATTRIBUTES = (
    ("bold", "1"), ("dim", "2"), ("italic", "3"), ("underline", "4"), ("blink", "5"), ("reverse", "7"), ("strike", "9"),
)  # fmt: skip
_SHOW_ON_SPACES = frozenset(("4", "7", "9"))


@lru_cache(maxsize=4096)
def codes(style: Style, system: ColorSystem) -> Codes:
    """Return the codes of a style for a terminal with this color system."""
    front = style.color.downgrade(system).get_ansi_codes(True) if style.color is not None else ()
    back = style.bgcolor.downgrade(system).get_ansi_codes(False) if style.bgcolor is not None else ()
    return frozenset(code for name, code in _ATTRIBUTES if getattr(style, name)), tuple(front), tuple(back)


class Pen:
    """Collect pieces of text as terminal output; track the cursor and the colors that are set."""

    def __init__(self, system: ColorSystem | None) -> None:
        self._system = system
        self._now = PLAIN
        self._place: tuple[int, int] | None = None
        self._parts: list[str] = []

    def write(self, x: int, y: int, strip: Strip) -> None:
        """Write a piece of a row at cell (x, y); move the cursor only if it is elsewhere."""
        if self._place != (x, y):
            self._parts.append(f"\x1b[{y + 1};{x + 1}H")
        for text, style, control in strip:
            if not control and text:
                if self._system is not None:
                    self._change(codes(style, self._system) if style is not None else PLAIN, text.isspace())
                self._parts.append(text)
        self._place = (x + strip.cell_length, y)

    def _change(self, wanted: Codes, blank: bool) -> None:
        now, (attributes, front, back) = self._now, wanted
        if blank and not _SHOW_ON_SPACES & (attributes | now[0]):
            attributes, front = now[0], now[1]  # the text color of a space is invisible
        if (attributes, front, back) == now:
            return
        if now[0] - attributes or (now[1] and not front) or (now[2] and not back):
            new = ["0", *sorted(attributes), *front, *back]
        else:
            new = sorted(attributes - now[0])
            new += front if front != now[1] else ()
            new += back if back != now[2] else ()
        self._now = (attributes, front, back)
        self._parts.append(f"\x1b[{';'.join(new)}m")

    def finish(self) -> str:
        """Return all that was written, followed by a reset of the colors if any is set."""
        return "".join([*self._parts, RESET] if self._now != PLAIN else self._parts)


class CroppedUpdate(ChopsUpdate):
    """A partial update, cropped to the cells that changed."""

    def render_segments(self, console: Console) -> str:
        pen = Pen(color_system(console))
        for y, first, last in self.spans:
            for end, (x, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
                if strip is None or x >= last or end <= first:
                    continue
                begin = max(x, first)
                pen.write(begin, y, strip if x >= first and end <= last else strip.crop(begin - x, min(end, last) - x))
        return pen.finish()


class WholeUpdate(LayoutUpdate):
    """A full update without the rows that the terminal already shows (`shown`)."""

    def __init__(self, rows: Rows, region: Region, shown: Rows = ()) -> None:
        super().__init__(list(rows), region)
        self._shown = shown or [()] * len(rows)

    def render_segments(self, console: Console) -> str:
        pen = Pen(color_system(console))
        for y, (row, shown) in enumerate(zip(self.strips, self._shown, strict=True), self.region.y):
            if row == shown:
                continue
            x = self.region.x
            for strip in row:
                pen.write(x, y, strip)
                x += strip.cell_length
        return pen.finish()


class CroppingCompositor(Compositor):
    _painted: tuple[float, Region, Rows] | None = None  # the last full update, and when (monotonic seconds)

    def render_full_update(self, simplify: bool = False) -> LayoutUpdate:
        """Return a full update; right after another one of the same region, only the rows that differ.

        Textual paints a new layout twice in a row.
        """
        update = super().render_full_update(simplify)
        if simplify:  # a screenshot for a file
            return update
        rows, now = [list(strips) for strips in update.strips], monotonic()
        shown: Rows = ()
        if self._painted is not None:
            when, region, before = self._painted
            shown = before if now - when < MAX_REPAINT_GAP and region == update.region else shown
        self._painted = now, update.region, rows
        return WholeUpdate(rows, update.region, shown)

    def forget(self) -> None:
        """Note that something else was painted over the last full update."""
        self._painted = None

    def render_partial_update(self) -> ChopsUpdate | None:
        self.forget()
        update = super().render_partial_update()
        return None if update is None else CroppedUpdate(update.chops, update.spans, update.chop_ends)


class LeanScreen(OwnCompositorScreen):
    """A screen that sends only the cells that changed."""

    def __init__(self, id: str | None = None) -> None:
        self.compositor = CroppingCompositor()
        super().__init__(self.compositor, id)

    def on_screen_suspend(self) -> None:
        self.compositor.forget()


# When the next view may be drawn: at once, unless the connection to the terminal is slow.
#
# A connection counts as slow if the terminal leaves bytes unread, if its answer to a query sent after a frame is late,
# or if `--low-bandwidth` was given. A terminal that never answers queries counts as fast; only unread bytes delay its
# views. The response to keys is never delayed.

SLOW_LINE_RATE = 5_600.0  # bytes a second on a slow line: at most 6 kB/s including cursor and synchronization codes
LOW_BANDWIDTH_RATE = 1_350.0  # with --low-bandwidth: at most 1.5 kB/s
SAVED_SECONDS = 2.0  # of the budget; the most that idle time saves up
# Seconds of the budget. With the age of a view and its transfer, the screen is then at most one second old.
MAX_DEBT_SECONDS = 0.75
PANELS_DEBT_SECONDS = 4.0  # with --low-bandwidth: panels below the header wait longer, the header's clock keeps going
SLOW_ANSWER = 0.25  # seconds: round trip of a fast line to another continent, without the transfer
QUICK_RATE = 50_000.0  # bytes a second; a line that carries more is fast
SLOW_FOR = 10.0  # seconds that a line counts as slow after a late answer: one fast answer proves nothing
RETRY_SECONDS = 0.05  # until a busy line is checked again
MAX_ANSWER_SECONDS = 10.0  # on a slow line; a later answer counts as lost
MAX_PROMPT_ANSWER_SECONDS = 1.0  # the same on a fast line
MIN_WAIT = 0.001  # seconds; a timer would not be more precise
QUESTION = "\x1b[?2026$p"  # query for synchronized output; answers come in order, so each shows what has arrived


class Budget:
    """A rate limit in bytes a second with bounded savings and debt. Pure: times are passed in (seconds)."""

    def __init__(self, bytes_per_second: float, now: float) -> None:
        self._rate = bytes_per_second
        self._left = bytes_per_second * SAVED_SECONDS
        self._at = now
        self._counted = 0

    def wait(self, now: float, sent: int) -> float:
        """Return the seconds until another frame is within the budget, at most `PANELS_DEBT_SECONDS`.

        Args:
            sent: bytes sent so far, in all.
        """
        earned = min(self._left + (now - self._at) * self._rate, self._rate * SAVED_SECONDS)
        self._left = max(earned - (sent - self._counted), -self._rate * PANELS_DEBT_SECONDS)
        self._at, self._counted = now, sent
        wait = -self._left / self._rate
        return wait if wait > MIN_WAIT else 0.0


class Line:
    """Estimate whether the connection is slow. Pure: times are passed in (seconds)."""

    def __init__(self) -> None:
        self._asked: deque[tuple[float, int]] = deque()  # unanswered queries: time, bytes sent before
        self._arrived = 0  # bytes known to have arrived
        self._waiting_since: float | None = None  # since when the terminal has left bytes unread
        self._slow_until = 0.0

    def ask(self, now: float, sent: int) -> None:
        """Note that a query was sent after `sent` bytes in all."""
        self._asked.append((now, sent))

    def answered(self, now: float) -> None:
        """Note that an answer came, if one was due."""
        if self._asked:
            asked, sent = self._asked.popleft()
            self._judge(now, asked, sent - self._arrived)
            self._arrived = sent

    def is_behind(self, now: float, waiting: int) -> bool:
        """Return whether sent bytes are still in transit, as far as known.

        Args:
            waiting: bytes that the terminal has not read.
        """
        patience = MAX_ANSWER_SECONDS if self.is_slow(now) else MAX_PROMPT_ANSWER_SECONDS
        while self._asked and now - self._asked[0][0] > patience:  # lost among typed keys, or sent to another terminal
            self._arrived = self._asked.popleft()[1]
        if not waiting:
            self._waiting_since = None
        elif self._waiting_since is None:
            self._waiting_since = now
        else:
            self._judge(now, self._waiting_since, waiting)
        return waiting > 0 or bool(self._asked)

    def is_slow(self, now: float) -> bool:
        return now < self._slow_until

    def _judge(self, now: float, since: float, carried: int) -> None:
        """Mark the line as slow if `carried` bytes took longer than on a fast line."""
        if now - since > SLOW_ANSWER + carried / QUICK_RATE:
            self._slow_until = now + SLOW_FOR


class Pacer:
    """Decide when the next view may be drawn; at once for a driver that does not count its bytes."""

    def __init__(self, low_bandwidth: bool) -> None:
        self._low_bandwidth = low_bandwidth
        self._line = Line()
        self._budget: Budget | None = None
        self._sent_at = 0.0  # of the last frame, monotonic seconds

    def wait(self, driver: Driver | None) -> float:
        """Return the seconds until the header may be drawn, or this may be asked again; 0 for now."""
        if not isinstance(driver, CountingDriver):
            return 0.0
        now = time.monotonic()
        owed = self._owed(now, driver)
        behind = self._line.is_behind(now, driver.waiting)
        is_slow = self._low_bandwidth or self._line.is_slow(now)
        owed = max(0.0, min(owed, self._sent_at + MAX_DEBT_SECONDS - now))
        return max(owed if is_slow else 0.0, RETRY_SECONDS if behind else 0.0)

    def panels_wait(self, driver: Driver | None) -> float:
        """Return the seconds until the panels below the header may be drawn; above 0 only with --low-bandwidth."""
        if not self._low_bandwidth or not isinstance(driver, CountingDriver):
            return 0.0
        return self._owed(time.monotonic(), driver)

    def sent(self, driver: Driver | None, answers: bool) -> None:
        """Count a frame, and send a query after it: the answer shows when it has arrived.

        Args:
            answers: whether the terminal answers queries.
        """
        if isinstance(driver, CountingDriver):
            now = self._sent_at = time.monotonic()
            self._owed(now, driver)
            if answers:
                driver.write(QUESTION)
                self._line.ask(now, driver.given)

    def answered(self) -> None:
        self._line.answered(time.monotonic())

    def _owed(self, now: float, driver: CountingDriver) -> float:
        if self._budget is None:
            self._budget = Budget(LOW_BANDWIDTH_RATE if self._low_bandwidth else SLOW_LINE_RATE, now)
        return self._budget.wait(now, driver.given)

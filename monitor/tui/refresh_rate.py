"""When the next frame may be drawn: the refresh rate follows how fast the terminal takes what is written.

A terminal has taken a frame when it answers the query that was written after it, or, where it answers none, when the
last write of the frame has ended. Until then no other frame follows, and after a slow one comes a pause. So a slow line
carries one frame at a time, however far its buffers reach. Keys do not wait for any of this; what they change is
painted as soon as the last write has ended.
"""

from __future__ import annotations

from time import monotonic

from textual.driver import Driver

from monitor.tui.textual_private import CountingDriver

PANELS_SECONDS = 1.0  # from one redraw of the panels to the next: they are most of the cost of drawing a View
LOW_HEADER_SECONDS = 1.0  # with --low-bandwidth, from one redraw of the header to the next
LOW_PANELS_SECONDS = 5.0  # the same of the panels
SLOW_SECONDS = 0.25  # round trip of a fast line to another continent; a terminal that takes longer gets a pause
MAX_HEADER_PAUSE = 0.75  # seconds; with the age of a View, what the header shows is then at most one second old
PANELS_PAUSE = 2.0  # times what the terminal took for the last frame with panels: they leave the line to the header
MAX_PANELS_PAUSE = 30.0  # seconds; a line that took longer than half of it stood still, which says nothing of its speed
RETRY_SECONDS = 0.05  # until a frame on its way is checked again
# Seconds until an unanswered query is sent again, as typed keys may garble its answer; each time twice as long.
PATIENCE = 1.0
MAX_PATIENCE = (
    8.0  # after it the terminal counts as one that has stopped answering, and gets the low rate until it does
)
QUESTION = "\x1b[?2026$p"  # query for synchronized output; answers come in order, so each shows what has arrived


class RefreshRate:
    """Say how long the next frame has to wait, by what the terminal took for the last one; 0 for another driver."""

    def __init__(self, low_bandwidth: bool) -> None:
        self._low_bandwidth = low_bandwidth
        self._header_due = self._panels_due = 0.0  # monotonic seconds
        self._sent: float | None = None  # when the newest frame, or a query after it, was sent; None: it was taken
        self._panels_sent: float | None = None  # when the oldest frame with panels on its way was sent
        self._unasked = False  # whether the query after the newest frame is to be written
        self._unanswered = 0  # queries
        self._patience = PATIENCE
        self._silent = False  # whether the terminal has stopped answering

    def wait(self, driver: Driver | None) -> float:
        """Return the seconds until the header may be drawn, or this may be asked again; 0 for now."""
        if not isinstance(driver, CountingDriver):
            return 0.0
        now = monotonic()
        return RETRY_SECONDS if self._on_its_way(driver, now) else max(0.0, self._header_due - now)

    def panels_wait(self) -> float:
        """Return the seconds until the panels below the header may be drawn, too; 0 for now."""
        return max(0.0, self._panels_due - monotonic())

    def sent(self, driver: Driver | None, answers: bool, panels: bool) -> None:
        """Note that a frame was written, and write a query after it.

        Args:
            answers: whether the terminal answers queries.
            panels: whether the frame shows more than the header.
        """
        if not isinstance(driver, CountingDriver):
            return
        now, is_low = monotonic(), self._low_bandwidth or self._silent
        if is_low:
            self._header_due = max(self._header_due, now + LOW_HEADER_SECONDS)
        if panels:
            self._panels_due = max(self._panels_due, now + (LOW_PANELS_SECONDS if is_low else PANELS_SECONDS))
            self._panels_sent = self._panels_sent or now
        self._sent, self._patience = now, PATIENCE
        self._unasked = answers
        self._ask(driver)

    def answered(self) -> None:
        """Note that an answer came: to Textual's own query, to one of these, or a late one."""
        self._unanswered = 0 if self._silent else max(0, self._unanswered - 1)
        self._silent = False
        if self._unanswered == 0:
            self._taken(monotonic())

    def _ask(self, driver: CountingDriver) -> None:
        """Write the query after the newest frame, unless that is held back."""
        if self._unasked and not driver.holds:
            driver.write(QUESTION)
            self._unasked = False
            self._unanswered += 1

    def _on_its_way(self, driver: CountingDriver, now: float) -> bool:
        if driver.waiting or driver.holds:
            return True
        if self._unasked:
            self._ask(driver)
            self._sent = now
            return True
        if self._sent is None:
            return False
        if self._unanswered and not self._silent:
            if now - self._sent < self._patience:
                return True
            if self._patience < MAX_PATIENCE:
                driver.write(QUESTION)
                self._sent, self._unanswered, self._patience = now, 1, 2 * self._patience
                return True
            self._silent = True
        self._taken(driver.written_at)
        return False

    def _taken(self, when: float) -> None:
        """Let a pause follow a frame that took long."""
        if self._sent is None:
            return
        took = when - self._sent  # where an answer was lost, only the query sent again counts
        if took > SLOW_SECONDS:
            self._header_due = max(self._header_due, when + min(took, MAX_HEADER_PAUSE))
        if self._panels_sent is not None and when - self._panels_sent > SLOW_SECONDS:
            pause = min(MAX_PANELS_PAUSE, PANELS_PAUSE * (when - self._panels_sent))
            self._panels_due = max(self._panels_due, when + pause)
        self._sent = self._panels_sent = None

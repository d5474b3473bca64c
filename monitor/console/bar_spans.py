"""Make a span of every bar other than the training's: loading, downloading, tokenizing, evaluating."""

from __future__ import annotations

from dataclasses import dataclass, field

from monitor.console.reading import Reading
from trainhooks.protocol.events import Span
from trainhooks.protocol.limits import clean

MAX_OPEN_BARS = 50
MAX_ENDED_BARS = 1000  # bars whose end is remembered
MAX_QUIET_SECONDS = 60.0  # seconds without a new frame after which a bar that never ended counts as ended
# Seconds: a full bar that seems to have started before its own end is its last frame, drawn again.
REDRAWN_SECONDS = 0.5
# Seconds between the last frame of a bar and the beginning that a frame gives, if both are of one bar.
SAME_BAR_SECONDS = 1.0


@dataclass(slots=True)
class _OpenBar:
    name: str
    label: str | None
    start: float
    last: float
    done: int | None = None
    total: int | None = None
    fraction: float | None = None


@dataclass(slots=True)
class BarSpans:
    """Make spans of bars, by their labels. A moment within several spans belongs to one."""

    claimed: float = 0.0  # the end of what earlier spans, and steps, have claimed
    _open: dict[str, _OpenBar] = field(default_factory=dict)
    _ended: dict[str, float] = field(default_factory=dict)
    _inner: _OpenBar | None = None  # a bar without a label beside the training's

    def add_frame(self, name: str, bar: Reading, now: float) -> Span | None:
        """Take one frame of a bar. Return the span if the bar has ended."""
        key = f"{bar.key}/{bar.total}"
        known = self._open.get(key)
        started = now - (bar.elapsed or 0.0)
        if known is not None and bar.step is not None and known.done is not None and bar.step < known.done:
            del self._open[key]
            known = None
        if known is None:
            ended = self._ended.get(key)
            # Before that the clock had not started.
            earliest = ended + REDRAWN_SECONDS if ended is not None else -REDRAWN_SECONDS
            if len(self._open) >= MAX_OPEN_BARS or (_is_over(bar) and started <= earliest):
                return None
            known = self._open[key] = _OpenBar(name, bar.label, started, now)
        known.last, known.done, known.total, known.fraction = now, bar.step, bar.total, bar.fraction
        if not _is_over(bar):
            return None
        del self._open[key]
        if len(self._ended) < MAX_ENDED_BARS or key in self._ended:
            self._ended[key] = now
        return self._span(known, now)

    def close(self, key: str) -> Span | None:
        """Return the span of an open bar, up to its last frame; None where it has ended."""
        known = self._open.pop(key, None)
        return None if known is None else self._span(known, known.last)

    def forget(self, key: str) -> None:
        """Drop a bar that proved to be the training's."""
        self._open.pop(key, None)

    def add_inner_frame(self, bar: Reading, now: float) -> None:
        """Take a frame of a bar within or beside the training's: it may be an evaluation, or a part of a step."""
        if bar.label:
            return
        started = now - (bar.elapsed or 0.0)
        if self._inner is None or started > self._inner.last + SAME_BAR_SECONDS:
            self._inner = _OpenBar("eval", None, started, now)
        self._inner.last = max(now, self._inner.last)

    def inner_evaluation(self, since: float | None) -> Span | None:
        """Return the span of that bar, where it ran after the last step, now that it has proved to be an evaluation."""
        inner, self._inner = self._inner, None
        if inner is None or since is None or inner.last <= since:
            return None
        inner.start = max(inner.start, since)
        return self._span(inner, inner.last)

    def evaluation(self, begin: float, now: float) -> Span | None:
        """Return an evaluation from `begin` until now; None where nothing is left between them."""
        if now <= max(begin, self.claimed):
            return None
        return self._span(_OpenBar("eval", None, begin, now), now)

    def timed(self, name: str, seconds: float, now: float) -> Span:
        """Return a span that has just ended, by what the program says of its length."""
        return self._span(_OpenBar(name, None, now - seconds, now), now)

    def end_quiet(self, now: float, longest: float = MAX_QUIET_SECONDS) -> list[Span]:
        """Return the spans of bars without a new frame for `longest` seconds: they were interrupted or cleared."""
        over = [key for key, bar in self._open.items() if now - bar.last >= longest]
        return [self._span(bar, bar.last) for bar in map(self._open.pop, over)]

    def open(self, now: float) -> list[tuple[str, float]]:
        """Return the open bars, outermost first: name with progress, and seconds so far."""
        bars = sorted(self._open.values(), key=lambda bar: bar.start)
        return [(_progress(bar), max(0.0, now - bar.start)) for bar in bars]

    def _span(self, known: _OpenBar, end: float) -> Span:
        start = min(known.start, end)
        own = max(0.0, end - max(start, self.claimed))
        self.claimed = max(self.claimed, end)
        span = Span(producer="", seq=0, t=end, name=known.name, start=start, duration=end - start, own=own)
        span.detail = clean(known.label or "", 120) or None
        return span


def _is_over(bar: Reading) -> bool:
    if bar.step is not None and bar.total is not None:
        return bar.step >= bar.total
    return bar.fraction is not None and bar.fraction >= 1.0


def _progress(known: _OpenBar) -> str:
    label = clean(known.label or "", 80) or known.name
    if known.total is not None and known.done is not None and known.total < 1_000_000:
        return f"{label} {known.done:,}/{known.total:,}"
    if known.total and known.done is not None:
        return f"{label} {100 * known.done // known.total}%"
    return label

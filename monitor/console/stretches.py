"""Bars that are no training: loading, downloading, tokenising, evaluating. Each becomes a span. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from monitor.console.reading import Reading
from trainhooks.events import Span, clean

MAX_OPEN = 50
QUIET = 60.0  # seconds without a new frame after which a bar that never ended is taken to be over


@dataclass(slots=True)
class _Open:
    name: str
    label: str
    start: float
    last: float
    done: int | None = None
    total: int | None = None
    fraction: float | None = None


@dataclass(slots=True)
class Stretches:
    """Open bars by their labels. A moment that lies in several belongs to one."""

    claimed: float = 0.0  # the end of what earlier spans, and steps, have claimed
    _open: dict[str, _Open] = field(default_factory=dict)
    _ended: dict[str, float] = field(default_factory=dict)
    _inner: _Open | None = None  # a bar without a name beside the training's

    def take(self, name: str, bar: Reading, now: float) -> Span | None:
        """One frame of a bar; the span, if it has come to its end."""
        key = f"{bar.key}/{bar.total}"
        known = self._open.get(key)
        started = now - (bar.elapsed or 0.0)
        if known is not None and bar.step is not None and known.done is not None and bar.step < known.done:
            del self._open[key]
            known = None
        if known is None:
            if len(self._open) >= MAX_OPEN or (_over(bar) and started <= self._ended.get(key, -1.0) + 0.5):
                return None  # its last frame, drawn once more
            known = self._open[key] = _Open(name, bar.label, started, now)
        known.last, known.done, known.total, known.fraction = now, bar.step, bar.total, bar.fraction
        if not _over(bar):
            return None
        del self._open[key]
        if len(self._ended) < 1000 or key in self._ended:
            self._ended[key] = now
        return self._span(known, now)

    def close(self, key: str) -> Span | None:
        """The span of an open bar, up to its last frame; None where it has ended."""
        known = self._open.pop(key, None)
        return None if known is None else self._span(known, known.last)

    def forget(self, key: str) -> None:
        """A bar has turned out to be the training's."""
        self._open.pop(key, None)

    def inner(self, bar: Reading, now: float) -> None:
        """A frame of a bar within or beside the training's that may be an evaluation, or a part of a step."""
        if bar.label:
            return
        started = now - (bar.elapsed or 0.0)
        if self._inner is None or started > self._inner.last + 1.0:
            self._inner = _Open("eval", "", started, now)
        self._inner.last = max(now, self._inner.last)

    def evaluation(self, since: float | None) -> Span | None:
        """The stretch of that bar, where it ran after the last step, now that it has proved to be an evaluation."""
        inner, self._inner = self._inner, None
        if inner is None or since is None or inner.last <= since:
            return None
        inner.start = max(inner.start, since)
        return self._span(inner, inner.last)

    def since(self, begin: float, now: float) -> Span | None:
        """An evaluation from `begin` until now; None where nothing is left between them."""
        if now <= max(begin, self.claimed):
            return None
        return self._span(_Open("eval", "", begin, now), now)

    def end_quiet(self, now: float, patience: float = QUIET) -> list[Span]:
        """The spans of bars that have shown nothing new for so long: they were broken off, or cleared."""
        over = [key for key, each in self._open.items() if now - each.last >= patience]
        return [self._span(each, each.last) for each in map(self._open.pop, over)]

    def open(self, now: float) -> list[tuple[str, float]]:
        """What is open, outermost first: what it is, how far it has come, and its seconds so far."""
        rows = sorted(self._open.values(), key=lambda each: each.start)
        return [(_told(each), max(0.0, now - each.start)) for each in rows]

    def _span(self, known: _Open, end: float) -> Span:
        start = min(known.start, end)
        own = max(0.0, end - max(start, self.claimed))
        self.claimed = max(self.claimed, end)
        span = Span("", 0, end, known.name, start, end - start, own)
        span.detail = clean(known.label, 120) or None
        return span


def _over(bar: Reading) -> bool:
    if bar.step is not None and bar.total is not None:
        return bar.step >= bar.total
    return bar.fraction is not None and bar.fraction >= 1.0


def _told(known: _Open) -> str:
    label = clean(known.label, 80) or known.name
    if known.total is not None and known.done is not None and known.total < 1_000_000:
        return f"{label} {known.done:,}/{known.total:,}"
    if known.total and known.done is not None:
        return f"{label} {100 * known.done // known.total} %"
    return label

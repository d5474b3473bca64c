"""How far another host's monotonic clock is from this one's, by requests and answers over the line to it."""

from __future__ import annotations

from dataclasses import dataclass

MAX_DRIFT = 50e-6  # seconds a second by which two quartz clocks may drift apart
KEPT = 64  # exchanges


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and its answer. The far clock was read somewhere between sending and receiving."""

    sent: float
    received: float
    far: float

    @property
    def offset(self) -> float:
        """Return the seconds to add to this host's clock to get the far one's."""
        return self.far - (self.sent + self.received) / 2

    def uncertainty(self, now: float) -> float:
        return (self.received - self.sent) / 2 + MAX_DRIFT * max(0.0, now - self.received)


class Clock:
    """A far clock: the exchange that says most about it counts, usually that with the smallest round trip."""

    def __init__(self) -> None:
        self._exchanges: list[Exchange] = []

    def add(self, exchange: Exchange) -> None:
        if exchange.received < exchange.sent:
            return
        best = self.best(exchange.received)
        if best is not None:
            apart = abs(best.offset - exchange.offset)
            if apart > best.uncertainty(exchange.received) + exchange.uncertainty(exchange.received):
                self._exchanges = []  # a clock has jumped: a host slept, or another host answers now
        self._exchanges = [*self._exchanges, exchange][-KEPT:]

    def best(self, now: float) -> Exchange | None:
        return min(self._exchanges, key=lambda exchange: exchange.uncertainty(now), default=None)

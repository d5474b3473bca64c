"""Counters made into rates."""

from __future__ import annotations


class Rate:
    """The growth of a counter per second; None until there are two readings, and where it went backwards."""

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None

    def __call__(self, total: float | None, now: float) -> float | None:
        last, self._last = self._last, None if total is None else (total, now)
        if last is None or total is None or now <= last[1] or total < last[0]:
            return None
        return (total - last[0]) / (now - last[1])

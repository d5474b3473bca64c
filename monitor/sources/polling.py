"""Helpers for readings that may fail or are expensive, and for rates of counters."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import psutil

T = TypeVar("T")

RARE_EVERY = 10.0  # seconds between readings of values that rarely change


def attempt(reading: Callable[[], T]) -> T | None:
    """Return the result of a reading; None where it fails."""
    try:
        return reading()
    # Besides psutil's own errors, containers and trimmed kernels lack whole files or lines of them, for which
    # psutil raises any exception.
    except (
        psutil.Error,
        OSError,
        NotImplementedError,
        RuntimeError,
        AttributeError,
        LookupError,
        ValueError,
        ArithmeticError,
    ):
        return None


def text_of(path: str) -> str | None:
    """Return the text of a small kernel file; None where it cannot be read."""

    def read() -> str:
        with open(path, encoding="utf-8", errors="replace") as source:
            return source.read(1 << 16)

    return attempt(read)


class Paced:
    """Limit how often an expensive reading is repeated, by its share of a core."""

    def __init__(self, share: float, at_least: float = 0.0) -> None:
        """
        Args:
            share: of one core that the reading may use.
            at_least: seconds between two readings, however cheap they are.
        """
        self._share = share
        self._at_least = at_least
        self._due = float("-inf")

    def due(self, now: float) -> bool:
        return now >= self._due

    @contextmanager
    def timed(self, now: float) -> Iterator[None]:
        """Wrap the reading: its cost decides when the next one is due."""
        began = time.thread_time()
        try:
            yield
        finally:
            self._due = now + max(self._at_least, (time.thread_time() - began) / self._share)


class Rate:
    """The growth of a counter per second; None until there are two readings, and where it went backwards."""

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None

    def __call__(self, total: float | None, now: float) -> float | None:
        last, self._last = self._last, None if total is None else (total, now)
        if last is None or total is None or now <= last[1] or total < last[0]:
            return None
        return (total - last[0]) / (now - last[1])

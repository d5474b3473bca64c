"""Readings that may fail, and readings that are dear."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import psutil

T = TypeVar("T")


def attempt(reading: Callable[[], T]) -> T | None:
    """One optional reading; every one passes through here."""
    try:
        return reading()
    # Besides psutil's own errors, containers and trimmed kernels miss whole files or lines of them, which psutil
    # passes on as whatever tripped over the gap.
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
    """What a small file of the kernel's holds."""

    def read() -> str:
        with open(path, encoding="utf-8", errors="replace") as source:
            return source.read(1 << 16)

    return attempt(read)


class Paced:
    """When a dear reading may be taken again: as often as its share of a core allows."""

    def __init__(self, share: float, at_least: float = 0.0) -> None:
        """
        Args:
            share: of one core, that the reading may cost.
            at_least: seconds between two readings, however cheap they are.
        """
        self._share = share
        self._at_least = at_least
        self._due = float("-inf")

    def due(self, now: float) -> bool:
        return now >= self._due

    @contextmanager
    def taken(self, now: float) -> Iterator[None]:
        """Around the reading: what it costs decides when the next one is due."""
        began = time.thread_time()
        try:
            yield
        finally:
            self._due = now + max(self._at_least, (time.thread_time() - began) / self._share)

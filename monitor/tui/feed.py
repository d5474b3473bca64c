"""Where Views come from, as far as the dashboard cares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from monitor.model.report import View


class Feed(Protocol):
    """Something that follows a run and hands out a frozen View whenever there is news."""

    def start(self, on_view: Callable[[View], None]) -> None:
        """Begin, in a thread of its own; `on_view` is called from that thread."""

    def stop(self) -> None:
        """End; no call of `on_view` begins after this returns."""


StopTraining = Callable[[Callable[[str], None]], None]
"""Asks the training to stop, and reports each thing it does as a line; it may block."""

"""What a successor has to know, should the process that reads an output end before the output does. Pure."""

from __future__ import annotations

from typing import Any

from monitor.console.counters import Counter, Counters

_KEPT = ("key", "bar", "total", "base", "zero", "begun", "per_epoch", "epoch", "interval", "telling")  # of the counter


def remember(counters: Counters, emitted: int) -> dict[str, Any]:
    """Where the counting stands by the steps given out, the last of which is `emitted`."""
    main = counters.main
    known: dict[str, Any] = {"epochs": counters.epochs, "epoch": counters.epoch, "main": None}
    if main is not None:
        kept = {name: getattr(main, name) for name in _KEPT}
        known["main"] = {**kept, "last": max(0, emitted - main.base)}
    return known


def recall(counters: Counters, known: dict[str, Any]) -> bool:
    """Let the counting go on from there. Whether a counter was known."""
    counter = known.get("main")
    counters.epochs, counters.epoch = known.get("epochs"), known.get("epoch")
    if not isinstance(counter, dict):
        return False
    counters.resume(Counter(**{name: counter[name] for name in (*_KEPT, "last") if name in counter}))
    return True

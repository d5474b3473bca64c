"""How long the training's threads waited for a core, by a reading of the host. Pure."""

from __future__ import annotations

from dataclasses import replace

from trainhooks.protocol.events import Host


def wait_share(reading: Host) -> float | None:
    """Return the share of runnable time in which its threads had no core, or one that the hypervisor stopped."""
    if reading.tree_waiting is None:
        return None
    return 1.0 - (1.0 - reading.tree_waiting) * (1.0 - min(100.0, reading.cpu_stolen or 0.0) / 100.0)


def lost_share(reading: Host) -> float:
    """Return the same of each second: a program that sleeps or waits for a GPU seldom asks for a core."""
    waiting, ran = reading.tree_waiting, (reading.tree_cpu or 0.0) / 100.0  # seconds per second, over all threads
    if waiting is None:
        return 0.0
    return wait_share(replace(reading, tree_waiting=min(waiting, ran * waiting / max(0.01, 1.0 - waiting)))) or 0.0

"""Runs that never ran, side by side, as the screen of all runs gets them."""

from __future__ import annotations

from pathlib import Path

import sample_views as views

from monitor.runs.catalogue import RunEntry
from monitor.runs.fleet import Group, grouped, judged


def entry(name: str, state: str = "finished", **tags: str) -> RunEntry:
    numbers = (1e9, 60.0, 0, None, 10, 600, 2.0)
    return RunEntry(f"{name}-id", name, Path("/runs") / name, state, *numbers, ("python", "t.py"), "box", tags)


def fleet() -> list[Group]:
    """A run that goes on, a sweep of which one run is still to come, and one that failed under a hostile name."""
    live, done = views.running(200).report, views.ended("finished", 0).report
    pairs = [(entry("pulsar", "running"), live)]
    pairs += [(entry(f"lr-{n}", group="sweep", planned="4"), done) for n in range(3)]
    pairs += [(entry("[/b]\x1b[2Jevil", "failed"), None)]
    return grouped(judged(pairs))


class HandRuns:
    def __init__(self, groups: list[Group]) -> None:
        self.groups, self.reading = groups, False

    def look(self) -> list[Group]:
        return self.groups

"""The trainings of a run as rows: those of its processes, each read from journals of its own, and those within them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from monitor.memory_tuning import collection_paused
from monitor.model.fold import fold
from monitor.model.group import group_of, member_of
from monitor.model.member_states import member_rows
from monitor.model.report import Group, Member, Report
from monitor.model.state import RunState
from monitor.model.summary import make_report
from monitor.model.wall_time import RunContext
from monitor.sources.run_directory import RunDirectory

PLANNED_TAG = "planned"  # --tag planned=N: how many trainings there will be


@dataclass(slots=True)
class _Other:
    """A training beside the shown one: its journals and its state, until it has ended."""

    source: RunDirectory
    state: RunState = field(default_factory=RunState)

    def read(self) -> None:
        with collection_paused():
            while batch := self.source.poll_blocks():
                for event in batch:
                    fold(self.state, event)


@dataclass(slots=True)
class Members:
    """Follow the trainings beside the one that is shown."""

    path: Path
    _others: dict[int, _Other] = field(default_factory=dict)
    _ended: dict[int, list[Member]] = field(default_factory=dict)

    def group(self, source: RunDirectory, state: RunState, report: Report, context: RunContext) -> Group | None:
        """Return all trainings under the command; None where the one that `source` reads is the only one."""
        if len(source.streams) < 2 and not state.ended:
            return None
        shown = [*member_rows(state), member_of(report, state.shown)]
        if len(source.streams) < 2:
            return group_of(shown, len(shown) - 1, report.run.command, _planned(context.identity))
        rows: list[Member] = []
        for place, stream in enumerate(source.streams):
            if place == source.shown:
                own = [*shown[:-1], replace(shown[-1], name=stream.name, **_outcome(state, stream.alive))]
                at = len(rows) + len(own) - 1
                rows += own
            else:
                rows += self._rows(place, stream.alive, stream.name, context)
        return group_of(rows, at, report.run.command, _planned(context.identity))

    def _rows(self, place: int, alive: bool, name: str | None, context: RunContext) -> list[Member]:
        if place in self._ended:
            return self._ended[place]
        other = self._others.setdefault(place, _Other(RunDirectory(self.path, place)))
        other.read()
        state = other.state
        report = make_report(state.shown, replace(context, alive=alive, several=True))
        own = replace(member_of(report, state.shown), name=name, **_outcome(state, alive))
        rows = [*member_rows(state), own]
        if not alive:
            self._ended[place] = rows
            self._others.pop(place).source.close()
        return rows

    def close(self) -> None:
        for other in self._others.values():
            other.source.close()
        self._others.clear()


def _outcome(state: RunState, alive: bool) -> dict[str, Any]:
    """Return how a training ended, by what its process said last: the command may go on."""
    errors = [producer.error for producer in state.producers.values() if producer.error]
    if alive:
        return {"state": "running", "error": None}
    if errors:
        return {"state": "failed", "error": errors[0]}
    return {"state": "lost" if state.main.bye is None else "finished", "error": None}


def _planned(identity: dict[str, Any]) -> int | None:
    text = str((identity.get("tags") or {}).get(PLANNED_TAG, ""))
    return int(text) if text.isdecimal() and len(text) < 7 else None

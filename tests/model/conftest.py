"""Runs made up event by event, and what is known of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from monitor.diagnosis.diagnose import diagnose
from monitor.diagnosis.rule import Evidence
from monitor.diagnosis.verdict import verdict
from monitor.model.fold import fold
from monitor.model.report import Finding, Report, Wall
from monitor.model.state import RunState
from monitor.model.summary import make_report, open_work
from monitor.model.wall_time import RunContext
from monitor.sources.decode import place_of
from trainhooks.protocol.encoding import encoder, to_dict
from trainhooks.protocol.events import Bye, Event, Frames, Hello, Pulse, Span, Step

ROOT = Path(__file__).resolve().parents[2]
encode = encoder()


def wait_for(condition: Callable[[], object], seconds: float = 30.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not come to pass"
        time.sleep(0.01)


def placed(rows: Sequence[tuple[Any, ...]], activities: Sequence[str] = ()) -> list[Any]:
    """Return rows of stack samples with places where they have texts."""
    return [
        (row[0], place_of(row[1], activity), *row[2:])
        for row, activity in zip(rows, activities or [""] * len(rows), strict=True)
    ]


class Story:
    """A producer that tells what it does, on a clock of its own that begins at 100."""

    def __init__(self, producer: str = "p", rank: int = 0, source: str = "hooks", **hello: Any) -> None:
        self.now = 100.0
        self.events: list[Event] = []
        self._index = 0
        self._producer = producer
        self.tell(Hello, wall=1e9, process_started=99.0, rank=rank, source=source, **hello)

    def tell(self, kind: type[Event], **fields: Any) -> Story:
        if kind is Frames:
            fields["rows"] = placed(fields["rows"], fields.pop("activities", ()))
        self.events.append(kind(self._producer, len(self.events), self.now, **fields))
        return self

    def step(self, **phases: float) -> Story:
        """A step of these phases; `other` is its time in no phase."""
        return self.step_with({}, **phases)

    def step_with(self, fields: dict[str, Any], **phases: float) -> Story:
        duration, start = sum(phases.values()), self.now
        self.now += duration
        self._index += 1
        rows = [(name, seconds, "host", 1) for name, seconds in phases.items() if name != "other"]
        return self.tell(Step, **{"index": self._index, "start": start, "duration": duration, "phases": rows, **fields})

    def span(self, name: str, seconds: float, own: float | None = None) -> Story:
        start = self.now
        self.now += seconds
        return self.tell(Span, name=name, start=start, duration=seconds, own=own)

    def tell_span(self, name: str, start: float, own: float) -> Story:
        """A span that began at `start` and ends now."""
        return self.tell(Span, name=name, start=start, duration=self.now - start, own=own)

    def wait(self, seconds: float) -> Story:
        self.now += seconds
        return self

    def pulse(self, **fields: Any) -> Story:
        return self.tell(Pulse, **fields)

    def bye(self, error: str | None = None) -> Story:
        return self.tell(Bye, error=error)

    def write(self, run: Path, rank: int = 0, name: str | None = None) -> Path:
        """As a journal in a run directory."""
        run.mkdir(parents=True, exist_ok=True)
        path = run / (name or f"rank-{rank}-{self._producer}.jsonl")
        path.write_bytes(b"".join(line_of(event) for event in self.events))
        return path


def line_of(event: Event) -> bytes:
    return encode(to_dict(event)) + b"\n"


def folded(*stories: Story) -> RunState:
    """The state after these stories, told in the order of their clocks."""
    return folded_events(sorted((event for story in stories for event in story.events), key=lambda event: event.t))


def folded_events(events: Iterable[Event]) -> RunState:
    state = RunState()
    for event in events:
        fold(state, event)
    return state


def around(state: RunState, alive: bool = False, now: float | None = None, **identity: Any) -> RunContext:
    moment = now if now is not None else state.last_event
    return RunContext(identity, 0.0 if moment is None else moment, alive)


def report_of(*stories: Story, alive: bool = False, now: float | None = None, **identity: Any) -> Report:
    state = folded(*stories)
    return make_report(state, around(state, alive, now, **identity))


def judged(story: Story, alive: bool = True, now: float | None = None) -> tuple[list[Finding], Finding]:
    """Findings and verdict."""
    return judged_state(folded(story), alive, now)


def judged_state(
    state: RunState, alive: bool = True, now: float | None = None, **identity: Any
) -> tuple[list[Finding], Finding]:
    about = around(state, alive, now, **identity)
    known = make_report(state, about)
    evidence = Evidence(state, known, open_work(state, about, known.outcome))
    found = diagnose(evidence)
    return found, verdict(found, evidence)


def parts_of(wall: Wall) -> list[float]:
    assert wall.startup is not None
    return [wall.startup, wall.steps, *wall.spans.values(), wall.between_steps, wall.teardown]


def assert_first_and_alone(story: Story, code: str) -> None:
    """Check that a story's cause comes first, with evidence and advice, and that no other warning is given."""
    assert_first_among(judged(story, alive=False)[0], code)


def assert_first_among(found: list[Finding], code: str) -> None:
    assert found and found[0].code == code, found
    assert [finding.code for finding in found if finding.severity != "info" and finding.code != code] == []
    assert found[0].evidence and found[0].advice
    assert found[0].lost_fraction is None or 0 <= found[0].lost_fraction <= 1

"""Random well-nested programs, assembled by the hooks' state machine and by a slow, obvious one."""

from __future__ import annotations

from collections import Counter, deque
from itertools import accumulate
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from trainhooks.lane_entries import (
    AUTOMATIC,
    BACKWARD,
    COUNT,
    DATA,
    END,
    LOG,
    NANOSECOND,
    NEXT,
    NO_PHASE,
    NOTE,
    QUIT,
    SKIP,
    SPAN,
    STANDARD,
    STEP,
    Loop,
    StandardStep,
)
from trainhooks.recording.assembler import Assembler
from trainhooks.recording.batch_assembler import BatchAssembler
from trainhooks.recording.step_annotations import ProcessState
from trainhooks.recording.step_blocks import PlainStep

# A program is a list of: a wait (seconds), or (kind, name, program), or ("loop", role, [(wait, program)], last wait).
NAMES = st.sampled_from(["a", "b", "c"])
WAITS = st.integers(1, 9)


def programs(depth: int, loops: bool) -> st.SearchStrategy[list[Any]]:
    if depth == 0:
        return st.lists(WAITS, max_size=2)
    inner, in_step = programs(depth - 1, loops), programs(depth - 1, False)
    nodes = [
        WAITS,
        st.tuples(st.sampled_from(["phase", "span"]), NAMES, inner),
        st.tuples(st.just("step"), NAMES, in_step),
    ]
    if loops:
        turns = st.lists(st.tuples(WAITS, in_step.map(lambda body: [1, ("phase", "work", []), *body])), max_size=3)
        nodes.append(st.tuples(st.just("loop"), NAMES, turns, WAITS))
    return st.lists(st.one_of(nodes), max_size=4)


class Slow:
    """Every second goes to what is innermost at that time; the entries are written on the way."""

    def __init__(self) -> None:
        self.t = 0
        self.entries: deque[tuple[Any, ...]] = deque()
        self.steps: list[Counter[str]] = []
        self.own: Counter[str] = Counter()  # outside the steps
        self.nowhere = 0
        self._outside: list[str] = []
        self._inside: list[str] | None = None  # phases of the open step

    def wait(self, seconds: int) -> None:
        self.t += seconds * NANOSECOND
        if self._inside is not None:
            self.steps[-1][self._inside[-1] if self._inside else "other"] += seconds
        elif self._outside:
            self.own[self._outside[-1]] += seconds
        else:
            self.nowhere += seconds

    def put(self, *entry: Any) -> None:
        self.entries.append(entry)

    def run(self, program: list[Any]) -> None:
        for node in program:
            if isinstance(node, int):
                self.wait(node)
            else:
                getattr(self, node[0])(*node[1:])

    def _within(self, name: str, program: list[Any]) -> None:
        stack = self._outside if self._inside is None else self._inside
        stack.append(name)
        self.run(program)
        stack.pop()

    def phase(self, name: str, program: list[Any]) -> None:
        self.put(name, self.t)
        self._within(name, program)
        self.put(None, self.t)

    def span(self, name: str, program: list[Any]) -> None:
        self.put(SPAN, self.t, name)
        self._within(name, program)
        self.put(None, self.t)

    def step(self, role: str, program: list[Any]) -> None:
        loop = Loop(role, None, None)
        self.put(STEP, self.t, loop)
        if self._inside is not None:
            self._within(role, program)
        else:
            self.steps.append(Counter())
            self._inside = []
            self.run(program)
            self._inside = None
        self.put(END, self.t, loop)

    def loop(self, role: str, turns: list[tuple[int, list[Any]]], last: int) -> None:
        loop = Loop(role, None, None)
        for number, (wait, program) in enumerate(turns, 1):
            self.put(NEXT, self.t, loop, number)
            self.steps.append(Counter())
            self._inside = ["data"]
            self.wait(wait)
            self._inside = []
            self.put(None, self.t)
            self.run(program)
            self._inside = None
        self.put(NEXT, self.t, loop, len(turns) + 1)
        self.wait(last)  # for an item that does not come: no step's time
        self.put(QUIT, self.t, loop)


def events_of(assembler: Assembler) -> list[dict[str, Any]]:
    """Every event as the mapping of a line of its own."""
    return [event.as_event() if isinstance(event, PlainStep) else event for event in assembler.events]


def assembled(slow: Slow, portion: int) -> list[dict[str, Any]]:
    assembler = Assembler(ProcessState(), "main", True)
    batches = BatchAssembler(assembler)
    while slow.entries:
        batches.assemble(slow.entries, portion)
    assembler.release_held()
    assert assembler.process.lost == 0
    assert assembler.enclosing == [] and assembler.step is None
    return events_of(assembler)


@given(programs(4, True), st.integers(1, 7))
def test_every_second_is_accounted_for_once(program: list[Any], portion: int) -> None:
    slow = Slow()
    slow.run(program)
    total = slow.t / NANOSECOND
    events = assembled(slow, portion)
    steps = [event for event in events if event["kind"] == "step"]
    for event, truth in zip(steps, slow.steps, strict=True):
        found = Counter({name: round(seconds) for name, seconds, _, _ in event.get("phases", [])})
        found["other"] = round(event.get("duration", 0)) - sum(found.values())
        assert +found == +truth
    own: Counter[str] = Counter()
    for event in events:
        if event["kind"] == "span":
            assert 0 <= event.get("own", 0) <= event.get("duration", 0)
            own[event["name"]] += round(event.get("own", 0))
    assert +own == +slow.own
    assert sum(event.get("duration", 0) for event in steps) + own.total() + slow.nowhere == total
    assert [event["index"] for event in steps] == list(range(1, len(steps) + 1))


@given(
    st.lists(st.one_of(st.sampled_from([STEP, NEXT, END, QUIT, SPAN, None, "a", "b"]), st.integers(0, 3)), max_size=60)
)
def test_entries_in_any_order_raise_nothing(kinds: list[Any]) -> None:
    """As after a deque that overflowed: what remains makes events that hold together."""
    loops = [Loop(None, None, None), Loop("r", None, None)]
    entries: deque[tuple[Any, ...]] = deque()
    for t, kind in enumerate(kinds):
        loop = loops[t % 3 % 2]
        shapes: dict[Any, tuple[Any, ...]] = {NEXT: (NEXT, t, loop, t), SPAN: (SPAN, t, "s"), None: (None, t)}
        default = (kind, t) if isinstance(kind, str) else (kind, t, loop)
        entries.append(shapes.get(kind, default))
    process = ProcessState()
    assembler = Assembler(process, "main", True)
    BatchAssembler(assembler).assemble(entries, len(kinds))
    assert process.lost <= sum(kind == 0 for kind in kinds) + len(kinds) * len(kinds)
    for event in events_of(assembler):
        if event["kind"] == "step":
            named = sum(seconds for _, seconds, _, _ in event.get("phases", []))
            assert 0 <= named <= event.get("duration", 0) + 1e-9
        assembler.pulse(len(kinds))


# Whole steps at once

BODY = st.lists(
    st.one_of(
        NAMES.map(lambda name: (name,)),
        st.just((None,)),
        st.sampled_from(
            [{"loss": 0.5}, {"loss": 0.25, "n": 3}, {"loss": float("nan")}, {"a\x1b": 1.0}, {"n": 2**60}, {}]
        ).map(lambda metrics: (LOG, metrics)),
        st.sampled_from([(7, None, 1), (None, 3, None), (0, None, None), (-1, None, 2), ("many", None, None)]).map(
            lambda amounts: (COUNT, *amounts)
        ),
        st.sampled_from([(SKIP, "empty"), (NOTE, 0, "hm"), (SPAN, 0, "checkpoint")]),
    ),
    max_size=6,
)


def entries_of(bodies: list[Any], loop: Loop) -> deque[tuple[Any, ...]]:
    """A loop's entries: each body is a step's, taken several times in a row."""
    t = number = 0
    entries: deque[tuple[Any, ...]] = deque()
    for body, times in bodies:
        for _ in range(times):
            number += 1
            t += 3
            entries += [(NEXT, t, loop, number), (None, t + 1)]
            for what, *rest in body:
                t += 7
                if what == LOG:
                    entries.append((LOG, dict(rest[0])))
                elif what in (COUNT, SKIP):
                    entries.append((what, *rest))
                else:
                    entries.append((what, t, *rest[1:]))
    entries += [(NEXT, t + 9, loop, number + 1), (QUIT, t + 9, loop)]
    return entries


@given(
    st.lists(st.tuples(BODY, st.integers(1, 4)), max_size=5),
    st.integers(1, 40),
    st.integers(1, 40),
    st.sampled_from([None, "generator"]),
    st.booleans(),
)
@example([([("a",), (None,)], 3)], 40, 5, None, False)  # what has come so far ends with a step's begin
def test_whole_steps_make_the_events_that_their_entries_make_one_by_one(
    bodies: list[Any], portion: int, come: int, role: str | None, beside: bool
) -> None:
    results = []
    for at_once in (True, False):
        process = ProcessState()
        assembler = Assembler(process, "main", is_main=not beside)
        batches = BatchAssembler(assembler)
        if beside:
            process.primary = object()
        entries = entries_of(bodies, Loop(role, None, None))
        while entries:
            if at_once:  # while the training goes on, and has put so many more each time
                so_far = deque(entries.popleft() for _ in range(min(come, len(entries))))
                while so_far:
                    batches.assemble(so_far, portion)
                continue
            try:
                assembler.add_entry(entries.popleft())
            except Exception:  # an odd value may raise anything, here as in `assemble`, which counts it as lost
                process.lost += 1
        assembler.release_held()
        results.append((timeless(events_of(assembler)), process.lost, process.steps, assembler.accounted_ns))
    assert results[0] == results[1]


# Standard steps: one entry each

TIMES = st.lists(st.integers(0, 9), min_size=9, max_size=9).map(lambda gaps: list(accumulate(gaps)))
LOSSES = st.sampled_from([None, 0.5, 0.25, 1, float("nan"), "high"])
AMOUNTS = st.sampled_from([None, (7, None, 1), (None, None, None), (0, 2**60, 1)])


@given(st.lists(st.tuples(TIMES, LOSSES, AMOUNTS), max_size=6), st.booleans(), st.integers(1, 40))
def test_a_standard_step_makes_the_event_that_its_entries_make_one_by_one(
    steps: list[Any], beside: bool, portion: int
) -> None:
    results = []
    for at_once in (True, False):
        process = ProcessState()
        assembler = Assembler(process, "main", is_main=not beside)
        batches = BatchAssembler(assembler)
        if beside:
            process.primary = object()
        entries: deque[tuple[Any, ...]] = deque()
        for number, (times, loss, amounts) in enumerate(steps):
            entry = (STANDARD, *(100 * number + t for t in times), loss, amounts)
            entries += [entry] if at_once else StandardStep._make(entry).entries()
        while entries:
            batches.assemble(entries, portion)
        events = [{**event, "phases": [list(row) for row in event["phases"]]} for event in events_of(assembler)]
        results.append((events, process.lost, process.steps, assembler.accounted_ns, assembler.accounted_until))
    assert results[0] == results[1]


def timeless(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without the time of day that metrics outside of a step are given."""
    return [
        {key: value for key, value in event.items() if (event["kind"], key) != ("metrics", "t")} for event in events
    ]


def test_steps_that_fell_out_of_a_full_deque_are_counted() -> None:
    loop = Loop(None, None, None)
    process = ProcessState()
    assembler = Assembler(process, "main", True)
    batches = BatchAssembler(assembler)
    for steps in (range(1, 11), range(15, 21)):
        entries: deque[tuple[Any, ...]] = deque()
        for number in steps:
            entries += [(NEXT, 10 * number, loop, number), (None, 10 * number + 1)]
        while entries:
            batches.assemble(entries, 8)
    assert process.lost == 4
    assert [event["index"] for event in events_of(assembler)] == [*range(1, 11), *range(15, 20)]


def test_entries_out_of_order_make_no_negative_part() -> None:
    """What ends in hindsight, or is overtaken by a signal handler's entries, gets no time twice."""
    process = ProcessState()
    assembler = Assembler(process, "main", True)
    batches = BatchAssembler(assembler)
    step = [(STEP, 0, AUTOMATIC), (DATA, 0), (NO_PHASE, 10), (SPAN, 20, "eval"), (SPAN, 40, "checkpoint"), (None, 90)]
    entries: deque[tuple[Any, ...]] = deque([*step, (None, 30), (BACKWARD, 95), (END, 93, AUTOMATIC)])
    loop = Loop(None, None, None)
    entries += [(NEXT, 100, loop, 1), (None, 110), ("a", 130), (None, 120), (NEXT, 140, loop, 2)]
    while entries:
        batches.assemble(entries, 64)
    hindsight, overtaken = (event for event in events_of(assembler) if event["kind"] == "step")
    for event in (hindsight, overtaken):
        times = [seconds for _, seconds, _, _ in event["phases"]]
        assert min(times) >= 0 and sum(times) <= event["duration"] + 1e-12
    assert all(event["duration"] >= 0 for event in events_of(assembler))
    assert {name: round(seconds * NANOSECOND) for name, seconds, _, _ in hindsight["phases"]}["eval"] == 20


def test_an_automatic_step_without_counts_says_so() -> None:
    process = ProcessState()
    assembler = Assembler(process, "main", True)
    for at, counts in ((0, [(COUNT, None, None, 4)]), (10, [])):
        for entry in [(STEP, at, AUTOMATIC), *counts, (END, at + 9, AUTOMATIC)]:
            assembler.add_entry(entry)
    assert [event.get("uncounted") for event in events_of(assembler)] == [None, True]

"""Whatever order events arrive in, however often, the same run comes of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from monitor.model.summary import make_report
from monitor.sources import journal_reader
from monitor.sources.decode import Unknown
from monitor.sources.journal_reader import Sequencer
from trainhooks.protocol.events import Event, Facts, Hello, Metrics, Note

from .conftest import Story, around, folded_events


def story(steps: int) -> list[Event]:
    told = Story()
    told.tell(Facts, name="n", total_steps=steps, facts={"a": 1})
    for i in range(steps):
        told.step_with({"metrics": {"loss": 1.0 / (i + 1)}, "tokens": i}, data=0.1, forward=0.2 + i % 3)
        told.tell(Metrics, values={"late": i}, step=i + 1)
        if i % 4 == 0:
            told.span("eval", 0.5).tell(Note, text=f"note {i}", level="warning")
    return told.bye().events


@given(st.data())
def test_any_order_and_repeats_make_the_same_report(data: st.DataObject) -> None:
    events = story(12)
    repeats = data.draw(st.lists(st.sampled_from(events), max_size=30))
    arriving = data.draw(st.permutations(events + repeats))
    sequencer = Sequencer()
    given_out = [out for event in arriving for out in sequencer.push(event)]
    assert given_out == events
    assert sequencer.release_waiting() == [] and sequencer.missing == 0
    ordered, shuffled = folded_events(events), folded_events(given_out)
    assert make_report(shuffled, around(shuffled)) == make_report(ordered, around(ordered))


@given(st.data())
def test_gaps_are_counted_exactly_and_order_is_kept(data: st.DataObject) -> None:
    numbers = {name: data.draw(st.sets(st.integers(0, 60), min_size=1)) for name in "abc"}
    events: list[Event] = [Note(name, seq, float(seq)) for name, found in numbers.items() for seq in found]
    arriving = data.draw(st.permutations(events))
    sequencer = Sequencer()
    out = [each for event in arriving for each in sequencer.push(event)] + sequencer.release_waiting()
    for name, found in numbers.items():
        assert [event.seq for event in out if event.producer == name] == sorted(found)
    assert sequencer.missing == sum(max(found) + 1 - len(found) for found in numbers.values())
    assert sequencer.expected() == {name: max(found) + 1 for name, found in numbers.items()}


@given(st.data())
def test_settling_at_any_moment_keeps_the_order_and_the_count(data: st.DataObject) -> None:
    """What was given up as lost and comes after all is late: it is not told out of order."""
    events: list[Event] = [Note("p", seq, 0.0) for seq in range(30)]
    sequencer, out = Sequencer(), []
    for event in data.draw(st.permutations(events)):
        out += sequencer.push(event)
        if data.draw(st.integers(0, 9)) == 0:
            out += sequencer.release_waiting()
    out += sequencer.release_waiting()
    told = [event.seq for event in out]
    assert told == sorted(set(told))
    assert sequencer.missing == 30 - len(told)


def test_a_writer_that_counts_from_one_lacks_nothing() -> None:
    sequencer = Sequencer()
    assert len(sequencer.push(Hello("p", 1, 0.0))) == 1
    assert len(sequencer.push(Note("p", 2, 0.0))) == 1
    assert sequencer.missing == 0


def test_waiting_is_bounded() -> None:
    sequencer = Sequencer()
    for seq in range(1, journal_reader.MAX_HELD + 1):
        assert sequencer.push(Note("p", seq, 0.0)) == []
    out = sequencer.push(Note("p", journal_reader.MAX_HELD + 1, 0.0))
    assert len(out) == journal_reader.MAX_HELD + 1 and sequencer.missing == 1


def test_going_on_from_a_position_gives_nothing_twice() -> None:
    events = story(6)
    first, second = Sequencer(), Sequencer()
    told = [out for event in events[:7] for out in first.push(event)]
    second.resume(first.expected(), first.missing)
    told += [out for event in events for out in second.push(event)]
    assert told == events


@given(st.data())
def test_numbers_of_a_newer_kind_cost_no_known_event(data: st.DataObject) -> None:
    """Whatever they are: also ones that known events have, that lie far ahead, that come at any place."""
    events: list[Event] = [Note("p", seq, 0.0) for seq in range(20)]
    newer = [Unknown("p", seq, 0.0) for seq in data.draw(st.sets(st.integers(0, 30) | st.just(10**15), max_size=8))]
    lines = list(events)
    for each in newer:
        lines.insert(data.draw(st.integers(0, len(lines))), each)
    sequencer, out = Sequencer(), []
    while lines:
        size = data.draw(st.integers(1, 8))
        batch, lines = lines[:size], lines[size:]
        out += sequencer.push_all(batch)
        if data.draw(st.booleans()):
            out += sequencer.release_waiting()
    out += sequencer.release_waiting()
    assert out == events and sequencer.missing == 0


@given(st.sets(st.integers(1, 18)), st.sets(st.integers(1, 40)))
def test_numbers_of_a_newer_kind_are_no_gap_and_show_none(lost: set[int], newer: set[int]) -> None:
    sequencer, out = Sequencer(), []
    for seq in range(20):
        if seq in newer:
            out += sequencer.push(Unknown("p", seq, 0.0))
        elif seq not in lost:
            out += sequencer.push(Note("p", seq, 0.0))
    for seq in range(20, 41):
        out += sequencer.push(Unknown("p", seq, 0.0)) if seq in newer else []
    out += sequencer.release_waiting()
    last = max(event.seq for event in out)
    assert sequencer.missing == len([seq for seq in lost - newer if seq < last])
    assert sequencer.push(out[-1]) == [] and [event.seq for event in out] == sorted(event.seq for event in out)

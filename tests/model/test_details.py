"""What the screens beside the overview are told: single steps, spans, the open step, arrivals of lines."""

import math

from monitor.arrays import np
from monitor.model.fold import fold
from monitor.model.state import MAX_OPEN_PARTS, MAX_SPAN_MARKS, OpenStep, RunState
from monitor.model.steps.latest_steps import MAX_LATEST
from monitor.model.steps.series import Quantiles
from monitor.model.view import MAX_BARS, distribution, make_details
from monitor.sources.console_lines import LineTimestamps
from trainhooks.protocol.events import Gpu, Hello, Metrics, Pulse, Span, Step

from .conftest import Story, folded


def test_metrics_logged_after_the_end_of_a_step_are_that_step_s() -> None:
    story = Story().step_with({"metrics": {"loss": 2.0}}, forward=1.0).tell(Metrics, values={"reward": 0.5}, step=1)
    story.step(forward=1.0).tell(Metrics, values={"reward": 0.6})
    first, second = make_details(folded(story), over=False).steps
    assert first.metrics == {"loss": 2.0, "reward": 0.5} and second.metrics == {"reward": 0.6}


def pulse(step: int | None, age: float | None, phase: str | None = None, inside: float | None = None) -> Pulse:
    return Pulse("p", 0, 0.0, step, age, phase, inside)


def test_the_open_step_is_what_its_pulses_saw() -> None:
    opened = OpenStep()
    opened.add_pulse(pulse(7, 1.0, "generation", 0.8))
    opened.add_pulse(pulse(7, 2.0, "generation", 1.8))
    opened.add_pulse(pulse(7, 3.0, "execution", 0.5))
    assert [name for name, _ in opened.parts_until(4.0)] == [None, "generation", None, "execution", None]
    seconds = [round(seconds, 3) for _, seconds in opened.parts_until(4.0)]
    assert seconds == [0.2, 1.8, 0.5, 0.5, 1.0] and sum(seconds) == 4.0


def test_the_same_phase_entered_again_is_a_part_of_its_own() -> None:
    opened = OpenStep()
    opened.add_pulse(pulse(7, 1.0, "generation", 0.9))
    opened.add_pulse(pulse(7, 2.0, "generation", 0.3))
    assert [name for name, _ in opened.parts_until(2.0)] == [None, "generation", None, "generation"]


def test_another_step_and_the_time_between_steps_begin_anew() -> None:
    opened = OpenStep()
    opened.add_pulse(pulse(7, 1.0, "generation", 0.9))
    opened.add_pulse(pulse(8, 0.5, "data", 0.5))
    assert opened.parts_until(0.5) == [("data", 0.5)]
    opened.add_pulse(pulse(8, 0.2, "data", 0.2))  # the same number once more: after a restart
    assert opened.parts_until(0.2) == [("data", 0.2)]
    opened.add_pulse(pulse(None, None))
    assert opened.step is None and opened.parts == []


def test_a_step_open_for_hours_stays_bounded() -> None:
    opened = OpenStep()
    for second in range(1, 10_000):
        opened.add_pulse(pulse(1, float(second), f"phase {second % 2}", 0.5))
    assert len(opened.parts) == MAX_OPEN_PARTS
    assert abs(sum(seconds for _, seconds in opened.parts_until(10_000.0)) - 10_000.0) < 1e-6


def told(events: list[object]) -> RunState:
    state = RunState()
    fold(state, Hello("p", 0, 0.0, wall=1000.0))
    for event in events:
        fold(state, event)  # type: ignore[arg-type]
    return state


def test_the_latest_steps_are_kept_one_by_one_and_no_more() -> None:
    steps = [Step("p", n, n + 1.0, n, float(n), 0.5, [("data", 0.1, "host", 1)]) for n in range(1, 3 * MAX_LATEST)]
    found = make_details(told(list(steps)), False)
    assert MAX_LATEST <= len(found.steps) <= 2 * MAX_LATEST
    assert found.steps[-1] == steps[-1] and found.steps[0].index == found.steps[-1].index - len(found.steps) + 1
    assert found.wall_offset == 1000.0


def test_spans_lie_behind_their_step_and_the_longest_are_kept() -> None:
    first = Step("p", 1, 2.0, 1, 1.0, 1.0)
    spans = [Span("p", n, 3.0 + n, "log", 2.0 + n, 0.001) for n in range(3 * MAX_SPAN_MARKS)]
    spans.insert(5, Span("p", 0, 9.0, "checkpoint", 4.0, 5.0))
    before = Span("p", 0, 0.5, "import", 0.0, 0.5)
    found = make_details(told([before, first, *spans]), False)
    assert len(found.spans) <= MAX_SPAN_MARKS
    assert [span.step for span in found.spans if span.name == "checkpoint"] == [1]
    assert not any(span.name == "import" for span in found.spans), "start-up is told elsewhere"


def test_several_kinds_of_step_are_told_apart_and_a_single_one_is_not() -> None:
    def step(n: int, role: str | None) -> Step:
        seconds = 2.0 if role == "writer" else 1.0
        return Step("p", n, n + 1.0, n, float(n), seconds, [("work", seconds, "host", 1)], role=role)

    both = make_details(told([step(n, "writer" if n % 2 else "reader") for n in range(1, 40)]), False)
    assert {(kind.role, kind.seconds) for kind in both.kinds} == {("writer", 2.0), ("reader", 1.0)}
    assert all(kind.phases["work"] == kind.seconds and kind.window < kind.steps for kind in both.kinds)
    assert make_details(told([step(n, None) for n in range(1, 40)]), False).kinds == ()


def test_a_distribution_counts_everything_in_few_bars() -> None:
    quantiles = Quantiles()
    quantiles.extend(0.001 * 1.01 ** np.arange(1000.0))
    bars = distribution(quantiles)
    assert sum(count for _, count in bars) == 1000 and len(bars) <= MAX_BARS
    starts = [start for start, _ in bars]
    assert starts == sorted(starts) and starts[0] <= 0.001
    assert distribution(Quantiles()) == []


def test_a_gpu_nobody_judged_has_its_readings_and_no_reference() -> None:
    found = make_details(
        told([Gpu("n", n, float(n), "GPU-1", 0, sm_clock=1980, utilization=0.0) for n in range(5)]), False
    )
    assert len(found.gpus["GPU-1"].readings) == 5 and found.gpus["GPU-1"].reference is None
    assert found.throttle_events == ()


def test_lines_have_the_time_at_which_they_were_first_seen() -> None:
    late = LineTimestamps()
    assert all(math.isnan(t) for t in late.times_of(2, 2, 10.0)), "they were there before anybody looked"
    assert late.times_of(3, 5, 11.0) == (11.0, 11.0, 11.0)
    assert math.isnan(late.times_of(5, 6, 13.0)[0]) and late.times_of(5, 6, 14.0)[1:] == (11.0, 11.0, 11.0, 13.0)
    early = LineTimestamps()
    assert early.times_of(0, 0, 1.0) == () and early.times_of(2, 2, 2.0) == (2.0, 2.0)
    assert early.times_of(1, 1, 5.0)[0] != 2.0, "an output that began anew is another one"


def test_what_is_logged_after_a_step_joins_it_and_takes_nothing_from_it() -> None:
    told = Story().step_with({"metrics": {"new_tokens": 576}}, forward=1.0)
    told.tell(Metrics, values={"new_tokens": 20, "loss": 0.5})  # of an evaluation, by the same name
    (step,) = folded(told).main.latest.steps()
    assert step.metrics == {"new_tokens": 576, "loss": 0.5}

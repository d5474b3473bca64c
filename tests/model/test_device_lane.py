"""What the clock of CUDA events told, in the report and beside the host's times."""

from __future__ import annotations

from monitor.model.fold import fold
from monitor.model.gpu_times import MAX_PHASES, GpuTimes
from monitor.model.report import Report
from monitor.model.state import RunState
from monitor.model.summary import report
from monitor.reports.as_json import as_json
from monitor.reports.text import text
from monitor.sources.decode import decode
from trainhooks.events import OVERFLOW, GpuTime, encoder, to_dict

from .conftest import Story, around


def told(*times: GpuTime) -> Report:
    story = Story()
    for _ in range(4):
        story.step(data=0.1, forward=0.3, other=0.1)
    state = RunState()
    for event in [*story.events, *times]:
        fold(state, event)
    return report(state, around(state))


def timed(step: int, forward: float, dropped: int = 0) -> GpuTime:
    return GpuTime("p", 100 + step, 1.0, step, 0.5, [("data", 0.05), ("forward", forward)], 0.4, dropped)


def test_means_stand_beside_the_host_s_and_what_is_unknown_stays_so() -> None:
    found = told(timed(1, 0.2), timed(2, 0.4, dropped=1))
    rows = {row.name: (row.mean, row.gpu_seconds) for row in found.phases}
    assert [round(each or 0.0, 9) for pair in rows.values() for each in pair] == [0.1, 0.05, 0.3, 0.3, 0.1, 0.15]
    assert found.throughput.busy_share == 0.8
    assert found.gpu_clock is not None and (found.gpu_clock.steps, found.gpu_clock.dropped) == (2, 1)
    words = text(found)
    assert "GPU: 2 steps by CUDA events (1 could not be timed); it had work in its queue for at least 80" in words
    assert "GPU mean" in words


def test_without_it_nothing_is_said() -> None:
    found = told()
    assert found.gpu_clock is None and found.throughput.busy_share is None
    assert all(row.gpu_seconds is None for row in found.phases)
    assert "GPU mean" not in text(found) and "CUDA events" not in text(found)
    assert '"busy_share": null' in as_json(found) and '"gpu_seconds": null' in as_json(found)


def test_steps_that_could_not_be_timed_are_told() -> None:
    found = told(GpuTime("p", 100, 1.0, 1, dropped=1), GpuTime("p", 101, 1.0, 2, dropped=2))
    assert found.gpu_clock is not None and (found.gpu_clock.steps, found.gpu_clock.dropped) == (0, 2)
    assert found.throughput.busy_share is None and found.phases[0].gpu_seconds is None
    assert "GPU: no step by CUDA events (2 could not be timed)" in text(found)


def test_names_are_bounded() -> None:
    times = GpuTimes()
    for step in range(1000):
        times.take(GpuTime("p", step, 1.0, step, 1.0, [(f"phase {step}", 0.5)]))
    assert len(times.phases) <= MAX_PHASES + 1 and times.phases[OVERFLOW].steps > 0


def test_what_cannot_be_true_does_not_pass() -> None:
    encode = encoder()
    good = to_dict(timed(1, 0.2))
    assert decode(encode(good)) == timed(1, 0.2)
    for field, value in (("seconds", -1.0), ("seconds", 1e13), ("phases", [["a", -1.0]]), ("phases", [["a"]])):
        assert decode(encode({**good, field: value})) is None
    odd = decode(encode({**good, "phases": [["a\x1b[31m", 0.1]], "busy": -1.0}))
    assert isinstance(odd, GpuTime) and odd.phases == [("a [31m", 0.1)] and odd.busy is None

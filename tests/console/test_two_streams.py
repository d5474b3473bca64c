"""Lines of two streams that are found in one poll are ordered by their numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from monitor.console.reading import Reading
from monitor.running import output
from monitor.running.console_recorder import ConsoleRecorder
from monitor.running.two_streams import in_order, one_counter
from trainhooks.protocol import rundir

EVEN = "".join(f"Step {i}/6 - Reward: 0.{i}\n" for i in (1, 2, 4, 5, 6))
SKIPPED = "⚠ Skipping generator step 3/6: empty code\n"


def line(step: int | None, family: str = "step", key: str = "step") -> Reading:
    return Reading(family, key=key, step=step)


def test_late_line_of_other_stream_starts_no_new_round() -> None:
    one, other = [line(number) for number in (1, 2, 4, 1, 2)], [line(3, "skip")]
    assert one_counter([other, one])
    assert [reading.step for reading in in_order([other, one])] == [1, 2, 3, 4, 1, 2]


def test_lines_after_a_numbered_line_stay_with_it() -> None:
    metrics = Reading("metrics", metrics={"loss": 1.0})
    assert in_order([[line(2), metrics, line(4)], [line(1), line(3)]])[1:3] == [line(2), metrics]


@pytest.mark.parametrize(
    "other",
    [[], [line(None, "metrics")], [line(7, "bar")], [line(7, key="iter")]],
    ids=["nothing", "text", "bar", "iter"],
)
def test_streams_with_different_counters_are_not_ordered(other: list[Reading]) -> None:
    assert not one_counter([[line(1)], other])


@pytest.mark.parametrize("first", [output.STDOUT, output.STDERR])
def test_late_recorder_counts_each_step_once(tmp_path: Path, first: str) -> None:
    texts = {output.STDOUT: EVEN, output.STDERR: SKIPPED}
    for name in sorted(texts, key=lambda name: name != first):
        (tmp_path / name).write_text(texts[name])
    recorder = ConsoleRecorder(tmp_path)
    recorder.finish()
    log = [json.loads(text) for text in rundir.console_journal(tmp_path).read_text().splitlines()]
    steps = [event for event in log if event["kind"] == "step"]
    assert [step["index"] for step in steps] == [1, 2, 3, 4, 5, 6]
    assert [step["index"] for step in steps if step.get("status") == "skipped"] == [3]

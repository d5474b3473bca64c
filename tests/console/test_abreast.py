"""What stands in two streams at one look is put in the order that its numbers tell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from monitor.console.abreast import in_order, number_the_same
from monitor.console.reading import Reading
from monitor.running import output
from monitor.running.console_recorder import ConsoleRecorder
from trainhooks import rundir

EVEN = "".join(f"Step {i}/6 - Reward: 0.{i}\n" for i in (1, 2, 4, 5, 6))
SKIPPED = "⚠ Skipping generator step 3/6: empty code\n"


def line(step: int | None, family: str = "step", key: str = "step") -> Reading:
    return Reading(family, key=key, step=step)


def test_a_late_line_of_the_other_stream_begins_no_new_round() -> None:
    one, other = [line(number) for number in (1, 2, 4, 1, 2)], [line(3, "skip")]
    assert number_the_same([other, one])
    assert [reading.step for reading in in_order([other, one])] == [1, 2, 3, 4, 1, 2]


def test_what_follows_a_numbered_line_stays_with_it() -> None:
    metrics = Reading("metrics", metrics={"loss": 1.0})
    assert in_order([[line(2), metrics, line(4)], [line(1), line(3)]])[1:3] == [line(2), metrics]


@pytest.mark.parametrize(
    "other",
    [[], [line(None, "metrics")], [line(7, "bar")], [line(7, key="iter")]],
    ids=["nothing", "text", "bar", "iter"],
)
def test_numbers_of_other_things_tell_no_order(other: list[Reading]) -> None:
    assert not number_the_same([[line(1)], other])


@pytest.mark.parametrize("first", [output.STDOUT, output.STDERR])
def test_a_recorder_that_comes_late_counts_each_step_once(tmp_path: Path, first: str) -> None:
    texts = {output.STDOUT: EVEN, output.STDERR: SKIPPED}
    for name in sorted(texts, key=lambda name: name != first):
        (tmp_path / name).write_text(texts[name])
    recorder = ConsoleRecorder(tmp_path)
    recorder.finish()
    told = [json.loads(text) for text in rundir.console_journal(tmp_path).read_text().splitlines()]
    steps = [event for event in told if event["kind"] == "step"]
    assert [step["index"] for step in steps] == [1, 2, 3, 4, 5, 6]
    assert [step["index"] for step in steps if step.get("status") == "skipped"] == [3]

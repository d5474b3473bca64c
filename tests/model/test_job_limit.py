"""The end that a scheduler sets, and whether the training makes it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from monitor.model.report import Finding
from monitor.running import job_limit
from trainhooks.protocol.events import Facts

from .conftest import Story, folded, judged_state, report_of

NOT_IN_ZOO = {"job-limit": "it needs a scheduler: tests/remote/test_slurm.py starts one"}


def limited(left: float | None, steps: int = 100, total: int = 1000) -> list[Story]:
    recorder, story = Story("node", source="recorder"), Story()
    if left is not None:
        recorder.tell(Facts, facts={"job_left": left})
    story.tell(Facts, total_steps=total)
    for step in range(steps):
        story.step(forward=0.9 + 0.02 * (step % 11))
    return [recorder, story]


def found(left: float | None, steps: int = 100) -> list[Finding]:
    return judged_state(folded(*limited(left, steps)))[0]


SICK: dict[str, Callable[[], list[Finding]]] = {"job-limit": lambda: found(500.0)}
INNOCENT: dict[str, list[Callable[[], list[Finding]]]] = {
    "job-limit": [
        lambda: found(1200.0),  # there is time
        lambda: found(970.0),  # about as much as it takes
        lambda: found(None),  # no limit
        lambda: found(60.0, 20),  # the first steps, which are slower
    ]
}


def test_it_says_by_how_much_a_run_misses_its_end() -> None:
    assert report_of(*limited(500.0), alive=True).progress.limit_seconds == pytest.approx(400, abs=5)
    assert found(500.0)[0].title == "Will not finish: 8.4 min short of the job's limit"
    assert report_of(*limited(500.0), alive=False).progress.limit_seconds is None  # it has ended


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1-02:03:04\n", 93784.0), ("2:03:04", 7384.0), ("4:59", 299.0), ("0:00", 0.0), ("UNLIMITED", None), ("", None)],
)
def test_what_squeue_says(text: str, seconds: float | None) -> None:
    assert job_limit.seconds_left(text) == seconds


def test_what_a_newer_slurm_tells_its_jobs() -> None:
    assert job_limit.seconds_until_end({"SLURM_JOB_END_TIME": "1000"}, 400.0) == 600.0
    assert job_limit.seconds_until_end({"SLURM_JOB_END_TIME": "never"}, 400.0) is None

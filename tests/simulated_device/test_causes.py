"""Sick trainings and their mended twins, end to end: the cause is named first, and what it promises is there to gain.

The truth of a gain is the virtual time that the same samples take in both. Nothing of the cause is told to the hooks:
they see what any training shows them, and the driver's readings come of what the ledger holds.
"""

from __future__ import annotations

import pytest

from monitor.model.report import Finding
from tests.simulated_device.plays import Played, Plays
from tests.simulated_device.programs import PROGRAMS

pytestmark = pytest.mark.long

# Of the workloads: what to change to mend it, and whether the finding promises a gain.
MENDED: dict[str, tuple[dict[str, object], bool]] = {
    "reads-in-layers": ({"waits": False}, True),
    "waits-for-data": ({"data": 0.0001}, True),
    "another-process": ({"foreign": (0.0, 0.0)}, False),
}
CAUSES = {"reads-in-layers": "synchronizing", "waits-for-data": "input-bound", "another-process": "gpu-shared"}
BEYOND = 4 / 3  # of the true gain: more is not promised
LEAST = 0.3  # of what there is to gain: less would help nobody to choose


def findings(played: Played) -> list[Finding]:
    report = played.told.report
    return report.findings


def loud(played: Played) -> list[str]:
    return [each.code for each in findings(played) if each.severity != "info"]


def seconds(played: Played) -> float:
    """Of a sample, or of a step where each has as many."""
    elapsed: float = played.truth["elapsed"]
    return elapsed / 1e9 / played.truth.get("samples", len(played.indices))


def holds(played: Played, true: float) -> bool:
    """Whether the first finding promises no more than there is to gain, and enough of it. A process's start, which is
    no part of the virtual time, is left out."""
    first, wall = findings(played)[0], played.told.report.wall
    assert first.lost_fraction is not None and wall.total is not None
    promised = 1.0 / (1.0 - first.lost_fraction * wall.total / wall.stepping)
    return 1.0 + LEAST * (true - 1.0) <= promised <= BEYOND * true


@pytest.mark.parametrize("name", MENDED)
def test_a_workload_and_its_twin(play: Plays, name: str) -> None:
    changes, promises = MENDED[name]
    sick, mended = play(name), play(name, changes=changes)
    first = findings(sick)[0]
    assert first.code == CAUSES[name] and first.severity != "info"
    assert loud(mended) == [] and first.code not in [each.code for each in findings(mended)]
    true = seconds(sick) / seconds(mended)
    assert true > 1.2, "the sickness costs something"
    assert holds(sick, true) if promises else first.lost_fraction is None


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_cause_of_a_program_comes_first(play: Plays, name: str) -> None:
    program, sick = PROGRAMS[name], play.program(name)
    first = findings(sick)[0]
    assert first.code == program.cause
    assert (first.severity != "info") == program.loud


@pytest.mark.parametrize("name", PROGRAMS)
def test_and_is_gone_from_its_twin(play: Plays, name: str) -> None:
    mended = play.program(name, mended=True)
    assert mended.truth["misdeeds"] == [] and loud(mended) == []
    assert PROGRAMS[name].cause not in [each.code for each in findings(mended)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_it_promises_is_there_to_gain(play: Plays, name: str) -> None:
    sick, mended = play.program(name), play.program(name, mended=True)
    first, true = findings(sick)[0], seconds(sick) / seconds(mended)
    if not PROGRAMS[name].promises:
        assert first.lost_fraction is None
        return
    assert true > 1.1, "the sickness costs something"
    assert holds(sick, true)

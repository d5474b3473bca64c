"""What a run without a step waits for, from its processes' looks at themselves and the host's readings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from monitor.diagnosis.diagnose import diagnose
from monitor.diagnosis.rule import Evidence
from monitor.diagnosis.rules.stalls import STILL_ADVICE
from monitor.diagnosis.verdict import verdict
from monitor.model.report import Finding
from monitor.model.starting import StartWait, start_wait
from monitor.model.summary import make_report, open_work
from monitor.model.view import OpenWork
from monitor.model.wall_time import RunContext
from monitor.sources.starting_imports import look_of
from monitor.start_looks import StartLook
from trainhooks.protocol.events import Host
from trainhooks.protocol.start_waits import DATA_SET, DOWNLOAD, FIRST_BATCH, IMPORT, INIT_GROUP, RANKS

from .conftest import Story, folded

CROWDED = Host("r", 0, 150.0, cores=16, load1=530.0, tree_workers=64, tree_processes=66, tree_cpu=1600.0)


def look(what: str, **known: Any) -> StartLook:
    return StartLook(**{"pid": 7, "what": what, "since": 110.0, "place": "train.py:9 in main", **known})


def text(*looks: StartLook, ranks: tuple[int, ...] = (), host: Host | None = None) -> str:
    found = start_wait(looks, ranks, host, 150.0)
    assert found is not None
    return found.text


def test_workers_are_counted_beside_the_cores_that_they_have() -> None:
    found = start_wait([look(FIRST_BATCH)], (), CROWDED, 150.0)
    words = "waiting for the first batch, 64 loader workers on 16 cores, load 530"
    assert found == StartWait(FIRST_BATCH, words, 40.0, "train.py:9 in main")
    assert "on 4 cores" in text(look(FIRST_BATCH), host=replace(CROWDED, cpu_limit=4.0))
    assert text(look(FIRST_BATCH)) == "waiting for the first batch"
    spawned = replace(CROWDED, tree_workers=None)  # they have no name yet
    assert "66 processes on 16 cores" in text(look(FIRST_BATCH), host=spawned)


def test_the_ranks_that_are_missing_are_named_as_far_as_others_know_them() -> None:
    waits = look(RANKS, of=INIT_GROUP, rank=0, world_size=3)
    late = look(IMPORT, of="sklearn", rank=1, pid=8)
    told = text(waits, late)
    assert "(process group of 3)" in told
    assert "rank 1 is importing sklearn" in told and "rank 2 has not reported in" in told
    assert "rank 2 is past it" in text(waits, late, ranks=(2,))
    assert "all 3 are there" in text(*(replace(waits, rank=rank, pid=rank + 7) for rank in range(3)))
    assert "rank" not in text(replace(waits, world_size=None)).removeprefix("waiting for other ranks")


def test_a_rank_that_has_ended_is_missing_and_of_an_ended_run_none_is() -> None:
    waits = look(RANKS, of=INIT_GROUP, rank=0, world_size=2)
    gone = replace(waits, rank=1, pid=8, alive=False)
    assert "rank 1 has not reported in" in text(waits, gone)
    assert "all 2 are there" in text(replace(waits, alive=False), gone)


def test_many_missing_ranks_are_counted() -> None:
    told = text(look(RANKS, rank=0, world_size=1000))
    assert "rank 4 has not" in told and "rank 5" not in told and told.endswith("995 more")


def test_who_starts_others_and_who_is_gone_is_asked_last() -> None:
    launcher, trains = look("subprocess", pid=3, since=100.0), look(IMPORT, of="torch", pid=9)
    assert text(launcher, trains) == text(trains) == "importing torch"
    assert text(replace(trains, alive=False), look(FIRST_BATCH)) == "waiting for the first batch"


def test_what_is_no_known_wait_is_the_program_s_own_line() -> None:
    assert text(look("sleep")) == "at sleep" and text(look("")) == "running its own code"


def test_ranks_that_are_elsewhere_are_told_with_their_lines() -> None:
    first = replace(look("", rank=0), place="train.py:40 (.backward)")
    others = replace(look("lock", rank=1), place="data.py:7 (.wait)")
    told = judged(silent(), True, first, others)[0]
    assert told is not None and {"rank 0: running its own code at train.py:40 (.backward)"} <= set(told.evidence)
    assert "rank 1: waiting for a lock at data.py:7 (.wait)" in told.evidence
    together = judged(silent(), True, first, replace(first, rank=1, pid=8))[0]
    assert together is not None and not any(line.startswith("rank") for line in together.evidence)


def test_without_a_word_from_the_program_there_is_what_is_seen_from_outside() -> None:
    reading = Host("r", 0, 150.0, tree_processes=1, tree_cpu=98.0, tree_read=3.0 * 2**20, tree_files=41)
    found = start_wait((), (), reading, 150.0)
    assert found is not None and found.seconds is None
    assert all(words in found.text for words in ("1 process", "98% of one core", "reads 3", "41 open files"))
    assert start_wait((), (), None, 150.0) is None is start_wait((), (), Host("r", 0, 1.0), 150.0)


# The run as a whole.


def silent() -> Story:
    return (
        Story("r", source="recorder").wait(60.0).tell(Host, cores=16, load1=530.0, tree_workers=64, tree_processes=66)
    )


def judged(story: Story, alive: bool = True, *looks: StartLook) -> tuple[Finding | None, Finding, OpenWork]:
    state = folded(story)
    about = RunContext({"started_monotonic": 100.0, "launched": True}, 160.0, alive, looks=looks)
    report = make_report(state, about)
    evidence = Evidence(state, report, open_work(state, about, report.outcome))
    found = diagnose(evidence)
    return (
        next((each for each in found if each.code == "nothing-reports"), None),
        verdict(found, evidence),
        evidence.open,
    )


def test_a_run_that_waits_says_what_for_and_not_that_it_is_out_of_reach() -> None:
    finding, shown, work = judged(silent(), True, look(FIRST_BATCH))
    assert finding is not None and finding is shown and work.start is not None and work.start.seconds == 50.0
    assert "64 loader workers on 16 cores, load 530" in finding.title
    assert not any("PYTHONPATH" in line for line in finding.evidence)
    assert any("train.py:9" in line for line in finding.evidence)


def test_it_is_said_from_the_first_seconds() -> None:
    early = Story("r", source="recorder").wait(5.0).pulse()
    state = folded(early)
    about = RunContext({"started_monotonic": 100.0, "launched": True}, 112.0, True, looks=(look(RANKS),))
    report = make_report(state, about)
    evidence = Evidence(state, report, open_work(state, about, report.outcome))
    (finding,) = diagnose(evidence)
    assert finding.severity == "info" and "waiting for other ranks" in finding.title
    assert "waiting for other ranks" in verdict([finding], evidence).title


def test_a_run_that_never_came_to_a_step_says_what_it_last_waited_for() -> None:
    finding, _, _ = judged(silent(), False, look(FIRST_BATCH, alive=False))
    assert finding is not None and "waiting for the first batch" in finding.title
    assert "did not report in" not in finding.title


@pytest.mark.parametrize(
    ("what", "cpu", "net", "moves"),
    [(DOWNLOAD, 1.0, 0.0, False), (DOWNLOAD, 1.0, 5e6, True), (DATA_SET, 80.0, 0.0, True), (RANKS, 1.0, 0.0, True)],
)
def test_work_that_does_not_move_is_told_as_such(what: str, cpu: float, net: float, moves: bool) -> None:
    story = Story("r", source="recorder")
    for _ in range(60):
        story.wait(1.0).tell(Host, cores=4, tree_cpu=cpu, net_in=net)
    finding, _, _ = judged(story, True, look(what))
    assert finding is not None and ("nothing moves" in finding.title) == (not moves)
    assert (finding.advice == STILL_ADVICE) == (not moves), "ranks are waited for, and that is said"


def test_without_a_look_it_is_told_as_before_with_what_is_seen_from_outside() -> None:
    finding, _, work = judged(silent())
    assert finding is not None and "has not reported in" in finding.title
    assert any("66 processes" in line for line in finding.evidence)
    assert work.start is not None and work.start.seconds is None


def test_a_step_ends_it() -> None:
    _, _, work = judged(Story().step(forward=0.1), True, look(FIRST_BATCH))
    assert work.start is None


@pytest.mark.parametrize(
    "table",
    [{}, {"pid": 0, "since": 1.0}, {"pid": True, "since": 1.0}, {"pid": 5}, {"pid": 5, "since": float("nan")}],
)
def test_a_file_that_makes_no_sense_is_no_look(table: dict[str, Any]) -> None:
    assert look_of(table, "here") is None


def test_texts_of_a_look_are_cleaned_and_numbers_checked() -> None:
    found = look_of({"pid": 5, "since": 1, "what": "\x1b[31mx", "of": 7, "rank": -1, "world_size": "2"}, "here")
    assert found == StartLook(5, "[31mx", "", 1.0, "", None, None, True)

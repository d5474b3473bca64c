"""Ranks beside each other: whose figures are the run's, and who waits for whom."""

from __future__ import annotations

import random
from collections.abc import Callable
from statistics import fmean

import pytest

from monitor.model.fold import fold
from monitor.model.report import Report
from monitor.model.state import RunState
from monitor.model.summary import make_report
from monitor.units import share
from trainhooks.protocol.events import Event, Facts, Gpu, Metrics

from .conftest import Story, around, folded, judged_state, report_of

Work = Callable[[int, int], float]  # seconds of a rank's own work at a step


def synchronous(ranks: int, steps: int, work: Work, backward: float = 0.1, **more: object) -> list[Story]:
    """Ranks that reduce their gradients in `backward`: whoever comes early waits there for the last one."""
    told = [Story(f"p{rank}", rank, **more) for rank in range(ranks)]
    for step in range(steps):
        own = [work(rank, step) for rank in range(ranks)]
        for rank, each in enumerate(told):
            each.step(forward=own[rank], backward=backward + max(own) - own[rank])
    return told


def steady(slow: int | None = None, by: float = 0.04) -> Work:
    noise = random.Random(3)
    return lambda rank, step: 0.1 * noise.uniform(0.98, 1.02) + (by if rank == slow else 0.0)


def test_the_rank_that_waits_least_is_the_slowest() -> None:
    known = report_of(*synchronous(4, 80, steady(slow=2)))
    slow = known.straggler
    assert slow is not None and slow.rank == 2
    assert slow.share == pytest.approx(0.04 / 0.24, rel=0.15) and slow.seconds == pytest.approx(0.04, rel=0.1)
    waits = {row.rank: row.wait_seconds for row in known.ranks}
    assert waits[2] == pytest.approx(0.0, abs=0.003)
    assert all(waits[rank] == pytest.approx(0.04, rel=0.2) for rank in (0, 1, 3))


def test_finding_evidence_and_rows_tell_one_figure() -> None:
    noise = random.Random(5)

    def work(rank: int, step: int) -> float:  # the mean of the waits lies apart from the usual one
        return 0.1 + (0.04 if rank == 2 else 0.0) + (0.3 if rank == 2 and noise.random() < 0.1 else 0.0)

    told = [story.wait(0.0) for story in synchronous(4, 80, work)]
    known = report_of(*told)
    slow = known.straggler
    assert slow is not None
    others = [row for row in known.ranks if row.rank != slow.rank]
    shares = [row.wait_share for row in others if row.wait_share is not None]
    seconds = [row.usual_wait for row in others if row.usual_wait is not None]
    assert len(shares) == len(seconds) == 3
    assert slow.share == pytest.approx(fmean(shares)) and slow.seconds == pytest.approx(fmean(seconds))
    assert slow.seconds <= max(seconds) * (1 + 1e-9), "on average nobody waits longer than who waits longest"
    (finding,) = [each for each in judged_state(folded(*told))[0] if each.code == "straggler"]
    assert share(slow.share) in finding.title
    assert share(max(shares)) in finding.evidence[2]


@pytest.mark.parametrize("where", ["data", "forward", "between steps"])
def test_the_slowest_is_told_with_the_phase_that_makes_it_slow(where: str) -> None:
    told = [Story(f"p{rank}", rank) for rank in range(3)]
    for _ in range(80):
        for rank, each in enumerate(told):
            late = 0.04 if rank == 1 else 0.0
            phases = {"data": 0.01, "forward": 0.1, "backward": 0.14 - late}
            if where != "between steps":
                phases[where] += late
            each.step(**phases)
            if where == "between steps":
                each.wait(late)
    known = report_of(*told)
    slow = known.straggler
    assert slow is not None and (slow.rank, slow.culprit) == (1, where)
    assert slow.own_seconds is not None and slow.others_seconds is not None
    assert slow.own_seconds - slow.others_seconds == pytest.approx(0.04, rel=0.1)
    assert known.ranks[1].phases["data"] == pytest.approx(0.05 if where == "data" else 0.01)
    (finding,) = [each for each in judged_state(folded(*told))[0] if each.code == "straggler"]
    place = where if where == "between steps" else f"in {where}"
    assert f"rank 1 {place}, " in finding.title and f"{place}, the others" in finding.evidence[1]


@pytest.mark.parametrize(
    "work",
    [
        steady(),
        steady(slow=1, by=0.004),
        lambda rank, step: 0.1 + (0.05 if step % 4 == rank else 0.0),
        lambda rank, step: 0.1 + (2.0 if rank == 1 and step == 70 else 0.0),
    ],
    ids=["equal", "hardly slower", "each in turn", "one spike"],
)
def test_nobody_is_named_where_it_is_not_clear(work: Work) -> None:
    told = synchronous(4, 80, work)
    assert report_of(*told).straggler is None
    assert "straggler" not in [each.code for each in judged_state(folded(*told))[0]]


def test_nobody_is_named_on_a_few_steps() -> None:
    assert report_of(*synchronous(2, 25, steady(slow=1))).straggler is None


def test_ranks_that_do_not_keep_step_wait_for_nobody() -> None:
    """Each trains for itself, one on a slower machine: nothing is shared, whatever the phases look like."""
    told = [Story("p0", 0), Story("p1", 1)]
    for _ in range(80):
        told[0].step(forward=0.1, backward=0.3)
        told[1].step(forward=0.1, backward=0.1)
    known = report_of(*told)
    assert known.straggler is None and [row.wait_seconds for row in known.ranks] == [None, None]


def test_waiting_that_cannot_be_seen_is_unknown() -> None:
    told = [Story("p0", 0), Story("p1", 1)]
    for _ in range(80):
        for each in told:
            each.step(forward=0.2)
    assert [row.wait_seconds for row in report_of(*told).ranks] == [None, None]


def test_on_gpus_only_what_is_clear_is_said() -> None:
    """The host runs ahead there: it waits at the next result, not in backward."""
    equal, slow = synchronous(2, 80, steady()), synchronous(2, 80, steady(slow=1))
    assert None not in [row.wait_seconds for row in report_of(*equal).ranks]
    for told in (equal, slow):
        told[0].tell(Gpu, uuid="GPU-1")
    assert [row.wait_seconds for row in report_of(*equal).ranks] == [None, None]
    assert report_of(*slow).straggler is not None


def test_the_straggler_is_a_finding_with_what_it_costs() -> None:
    found, told = judged_state(folded(*synchronous(4, 80, steady(slow=2))))
    assert told.code == "straggler" and told.severity == "warning"
    assert "ank 2" in told.title and "17%" in told.title
    assert told.lost_fraction == pytest.approx(0.16, abs=0.03)
    assert told in found


def test_memory_does_not_grow_with_the_steps() -> None:
    state = folded(*synchronous(2, 2000, steady()))
    assert all(len(stats.latest) <= 128 for stats in state.ranks.values())


# Whose figures are the run's


def in_any_order(stories: list[Story], seed: int) -> RunState:
    """Folded with the journals interleaved at random, each in its own order."""
    state, left = RunState(), [list(story.events) for story in stories]
    pick = random.Random(seed)
    while any(left):
        queue = pick.choice([each for each in left if each])
        for _ in range(pick.randint(1, 20)):
            if queue:
                fold(state, queue.pop(0))
    return state


@pytest.mark.parametrize("seed", range(6))
def test_the_order_in_which_journals_are_read_changes_nothing(seed: int) -> None:
    told = synchronous(3, 40, steady(slow=1), name="job")
    told[1].step(forward=9.0)  # an alert of a rank that does not lead
    told[0].tell(Metrics, values={"loss": 1.5})
    for each in told:
        each.wait(1).bye()

    def known(state: RunState) -> Report:
        return make_report(state, around(state))

    mixed, straight = known(in_any_order(told, seed)), known(in_any_order(told[::-1], -1 - seed))
    assert mixed == straight
    assert mixed.progress.steps_done == 40 and mixed.outcome.state == "finished"
    assert mixed.metrics["loss"].last == 1.5 and mixed.alerts == []


@pytest.mark.parametrize("seed", range(4))
def test_a_lead_that_never_steps_leaves_the_figures_to_the_lowest_that_does(seed: int) -> None:
    controller = Story("p0", 0).tell(Facts, total_steps=50).span("serve", 30).bye()
    workers = [Story(f"p{rank}", rank) for rank in (1, 2)]
    for worker in workers:
        worker.span("load", 2 * float(worker._producer[1]))
        for _ in range(10):
            worker.step(forward=1)
        worker.bye()
    state = in_any_order([workers[1], controller, workers[0]], seed)
    known = make_report(state, around(state))
    assert (known.progress.steps_done, known.progress.steps_total) == (10, 50)
    assert known.wall.steps == pytest.approx(10)
    assert [(row.name, row.seconds) for row in known.startup] == [("load", 2.0), ("other", pytest.approx(1.0))]
    assert known.run.ranks == 3


def test_a_step_of_another_rank_that_comes_first_is_not_counted_twice() -> None:
    state = RunState()
    late, early = Story("p0", 0), Story("p1", 1)
    for each in (late, early):
        for _ in range(5):
            each.step(forward=1)
    events: list[Event] = [*early.events, *late.events]
    seen = []
    for event in events:
        fold(state, event)
        seen.append(state.main.steps_ok)
    assert max(seen) == 5 and state.main.rank == 0

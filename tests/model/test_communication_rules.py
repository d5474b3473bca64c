"""Transfers between ranks, and ranks that wait for each other in turn."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from monitor.model.report import Finding
from trainhooks.protocol.events import Collectives, Frames, Host

from .conftest import Story, folded, judged_state, report_of
from .test_ranks import steady, synchronous

Scene = Callable[[], list[Finding]]
Late = Callable[[int, int], float]
STEPS = 96


def ranked(
    late: Late = lambda rank, step: 0.0,
    transfer: float = 0.002,
    calls: int = 1,
    size: int = 1 << 20,
    waiting: float | None = None,
    collects: bool = False,
) -> Scene:
    """Two ranks that average gradients at the end of backward.

    Args:
        late: seconds that a rank takes longer in a step.
        transfer: seconds from the last rank's last call to the end of backward.
        waiting: share of the time that threads wait for a core, where others hold them.
        collects: whether stack samples find the ranks in collections of Python's objects.
    """

    def told() -> list[Finding]:
        stories = [_told(rank, late, transfer, calls, size) for rank in (0, 1)]
        if waiting is not None:
            for _ in range(60):
                stories[0].tell(Host, cores=2, cpu=100.0, tree_cpu=100.0, tree_waiting=waiting)
        if collects:
            for story in stories:
                story.tell(Frames, rows=[("other", "train.py:7 (gc.collect)", 40)], activities=["garbage collection"])
        return judged_state(folded(*stories), alive=False)[0]

    return told


def _told(rank: int, late: Late, transfer: float, calls: int, size: int, between: bool = False) -> Story:
    told = Story(f"p{rank}", rank)
    begin, rows, own = told.now, [], 0.0
    for step in range(STEPS):
        mine, longest = late(rank, step), max(late(each, step) for each in (0, 1))
        called = told.now - begin + 0.01 + mine + 0.01
        end = called + longest - mine + transfer
        for number in range(calls):
            until = called if number + 1 < calls else end
            rows.append((0, step * calls + number, step + 1, round(called * 1e6), round(until * 1e6)))
        told.wait(mine if between else 0.0)
        told.step(forward=0.01 + (0.0 if between else mine), backward=0.01 + longest - mine + transfer)
        own += mine
    told.tell(
        Collectives,
        first=1,
        steps=STEPS,
        begin=begin,
        seconds=[
            ("forward", 0.01 * STEPS + (0.0 if between else own)),
            ("between steps", own if between else 0.0),
            ("backward", told.now - begin - own - 0.01 * STEPS),
        ],
        kinds=[("default_pg", "all_reduce [100] float", "backward", size)],
        calls=rows,
    )
    return told


def gathering(share: float, phase: str = "other", call: str = "dist.all_gather_object") -> Scene:
    """Two ranks that gather numbers in no phase, by stack samples.

    Args:
        phase: that the samples are told in: a step that begins in hindsight had none open.
    """

    def told() -> list[Finding]:
        stories = [_told(rank, lambda *_: 0.0, 0.002, 1, 4000) for rank in (0, 1)]
        for each in stories:
            for _ in range(400):
                each.step(forward=0.01, other=0.02)
            rows = [(phase, f"train.py:9 ({call})", round(100 * share)), (phase, "train.py:8", 20)]
            each.tell(Frames, rows=rows, activities=["collective", ""])
        return judged_state(folded(*stories), alive=False)[0]

    return told


SICK: dict[str, Scene] = {
    "communication-bound": ranked(transfer=0.03),
    "uneven-ranks": ranked(lambda rank, step: 0.03 * (step % 2 == rank)),
}
INNOCENT: dict[str, list[Scene]] = {
    "communication-bound": [
        ranked(),
        ranked(lambda rank, step: 0.03 * rank),  # the others wait, and transfer nothing
        ranked(lambda rank, step: 0.03 * (step % 2 == rank)),
    ],
    "uneven-ranks": [
        ranked(),
        ranked(lambda rank, step: 0.03 * rank),  # one rank
        ranked(lambda rank, step: 0.3 * (step == 9 + rank)),  # once
    ],
}


def found(scene: Scene, code: str) -> Finding:
    return next(each for each in scene() if each.code == code)


def test_many_small_calls_are_advised_against_as_such() -> None:
    assert found(ranked(transfer=0.03, calls=40, size=4000), "communication-bound").advice.startswith("Fewer, larger")
    assert "no_sync" in found(ranked(transfer=0.03), "communication-bound").advice


def test_collectives_in_no_phase_are_told_with_their_line() -> None:
    told = found(gathering(0.8), "communication-bound")
    assert any("train.py:9 (dist.all_gather_object)" in line for line in told.evidence), told.evidence
    assert "communication-bound" not in [each.code for each in gathering(0.05)()]


def test_a_rank_that_is_slow_in_backward_is_named_with_it() -> None:
    told = found(ranked(lambda rank, step: 0.02 * rank), "straggler")
    assert "rank 1" in told.title and "in forward" in told.title
    assert any("rank 1 is last in 96 of 96 steps" in line for line in told.evidence), told.evidence


def test_waits_for_cores_that_others_hold_are_no_transfers() -> None:
    assert "communication-bound" in [each.code for each in ranked(transfer=0.06, waiting=0.3)()]
    assert "communication-bound" not in [each.code for each in ranked(transfer=0.03, waiting=0.5)()]
    in_turn = ranked(lambda rank, step: 0.06 * (step % 2 == rank), waiting=0.1)
    assert "uneven-ranks" in [each.code for each in in_turn()]


def test_collectives_of_a_step_that_is_told_in_hindsight_count() -> None:
    told = found(gathering(0.8, phase="between steps"), "communication-bound")
    assert told.advice.startswith("Fewer, larger calls"), told.advice


def test_ranks_that_collect_objects_in_turn_pay_for_all_of_them() -> None:
    told = ranked(lambda rank, step: 0.03 * (step % 2 == rank), collects=True)()
    (one,) = [each for each in told if each.code in ("garbage-collection", "uneven-ranks")]
    assert one.code == "garbage-collection" and any("at different steps" in line for line in one.evidence), one.evidence


def test_a_sharded_model_is_told_by_the_calls_of_its_layers() -> None:
    told = found(gathering(2.0, phase="forward", call="model"), "communication-bound")
    assert told.advice.startswith("Shard no model that fits"), told.advice


def saving(rank: int | None, phase: str = "between steps") -> Scene:
    """Two ranks, of which one does something now and then while the other stands in backward; None: neither does."""

    def told() -> list[Finding]:
        stories = [_told(each, lambda *_: 0.0, 0.002, 1, 4000) for each in (0, 1)]
        for each, story in enumerate(stories):
            waits = 10 if each == rank else 60
            rows = [("backward", "train.py:5 (loss.backward)", waits), (phase, "train.py:2 (prepare)", 60)]
            rows += [(phase, "train.py:9 (time.sleep)", 50)] if each == rank else []
            story.tell(Frames, rows=rows, activities=["", "", "sleep"][: len(rows)])
        return judged_state(folded(*stories), alive=False)[0]

    return told


def test_a_rank_that_alone_does_something_now_and_then_is_named() -> None:
    told = found(saving(0), "straggler")
    assert "rank 0 between steps" in told.title and "on no rank alone" in told.advice
    assert any("train.py:9 (time.sleep)" in line for line in told.evidence), told.evidence
    assert "straggler" not in [each.code for each in saving(None)()]


def between(rank_late: int, *rows: tuple[str, str, int]) -> Scene:
    """A rank is late between steps for 30 ms; the first one is there in these places, by activity and samples."""

    def told() -> list[Finding]:
        stories = [_told(rank, lambda each, step: 0.03 * (each == rank_late), 0.002, 1, 4000, True) for rank in (0, 1)]
        for each in stories:
            for _ in range(400):
                each.step(forward=0.01, backward=0.01)
                each.wait(0.02)
        stories[0].tell(
            Frames, rows=[("between steps", place, n) for _, place, n in rows], activities=[what for what, _, _ in rows]
        )
        return judged_state(folded(*stories), alive=False)[0]

    return told


def test_a_straggler_explains_the_waits_and_the_work_that_it_is() -> None:
    waits = "collective", "train.py:9 (dist.all_gather_object)", 80
    works = "sleep", "train.py:14 (time.sleep)", 80
    rest = "", "train.py:8", 20
    names = {"straggler", "unaccounted-time", "work-between-steps"}
    for scene in (between(1, waits, rest), between(0, works, rest)):
        assert names & {each.code for each in scene()} == {"straggler"}
    assert "unaccounted-time" in [each.code for each in between(1, works, rest)()], (
        "of another rank, it explains nothing"
    )


def test_a_stage_of_a_pipeline_is_told_what_it_does_and_not_where_it_waits() -> None:
    story = Story()
    for _ in range(400):
        story.step(forward=0.001, other=0.04)
    rows = [
        ("other", "train.py:9 (dist.recv)", 50),
        ("other", "train.py:8 (time.sleep)", 40),
        ("other", "train.py:7", 9),
    ]
    story.tell(Frames, rows=rows, activities=["collective", "sleep", ""])
    told = next(each for each in judged_state(folded(story), alive=False)[0] if each.code == "unaccounted-time")
    assert not any("recv" in line for line in told.evidence) and "train.py:8 (time.sleep)" in told.advice


def test_what_ranks_take_is_a_mean_where_their_waits_are() -> None:
    told = [_told(rank, lambda each, step: 0.3 * (each == 1 and step % 10 == 9), 0.002, 1, 4000) for rank in (0, 1)]
    known = report_of(*told)
    assert known.straggler is not None and known.collectives is not None
    for row in known.ranks:
        assert row.is_mean and row.step_seconds == pytest.approx(known.collectives.period)
        assert (row.usual_wait or 0.0) / row.step_seconds == pytest.approx(row.wait_share)
        assert sum(row.phases.values()) == pytest.approx(row.step_seconds, rel=0.01)
    assert known.straggler.own_seconds == pytest.approx(known.ranks[1].phases["forward"])
    assert known.ranks[0].phases["backward"] > (known.ranks[0].usual_wait or 0.0)
    assert not report_of(*synchronous(2, 40, steady())).ranks[0].is_mean

"""Who waits for whom by the devices' clocks: the last one to arrive in a collective is charged."""

from __future__ import annotations

import random

from monitor.model.fold import fold
from monitor.model.ranks.rank_waits import (
    MIN_TIMED_STEPS,
    DeviceSteps,
    LateRank,
    late_rank,
    typical_steps,
    wait_by_rank,
)
from monitor.model.state import RunState
from monitor.model.summary import make_report
from trainhooks.protocol.events import Event, Facts, GpuTime, Hello, Step

from .conftest import around

noise = random.Random(3)


def timed(rank: int, step: int, **phases: float) -> GpuTime:
    seconds = {name: each * noise.uniform(0.98, 1.02) for name, each in phases.items()}
    named = [(name, each) for name, each in seconds.items() if name != "other"]
    return GpuTime(f"p{rank}", 10 + 2 * step, float(step), step=step, seconds=sum(seconds.values()), phases=named)


def ranks(steps: int = 40, late: int | None = 1, extra: float = 0.04, where: str = "data") -> dict[int, DeviceSteps]:
    """Four ranks in step with each other; the late one takes longer somewhere, and the others wait in backward."""
    found = {}
    for rank in range(4):
        stats = DeviceSteps()
        for step in range(steps):
            phases = {"data": 0.001, "forward": 0.1, "backward": 0.2 + (extra if late not in (None, rank) else 0.0)}
            if rank == late:
                phases[where] = phases.get(where, 0.0) + extra
            stats.add(timed(rank, step, **phases))
        found[rank] = stats
    return found


def late(timed: dict[int, DeviceSteps]) -> LateRank | None:
    return late_rank(typical_steps(timed), min(len(stats.latest) for stats in timed.values()))


def test_the_late_one_is_charged_with_the_phase_that_makes_it_late() -> None:
    for where in ("data", "forward", "other"):
        found = late(ranks(where=where))
        assert isinstance(found, LateRank) and (found.rank, found.longer.phase) == (1, where)
        assert 0.03 < found.seconds < 0.05 and 0.08 < found.share < 0.16


def test_nobody_is_charged_where_it_is_not_clear() -> None:
    assert late(ranks(late=None)) is None
    assert late(ranks(extra=0.005)) is None, "less than is worth a word"
    assert late(ranks(steps=MIN_TIMED_STEPS)) is None, "the first steps do not count"
    assert late({0: ranks()[0]}) is None
    waits_only = ranks()
    waits_only[1] = ranks(late=None)[1]  # the others wait, and nothing of this one is longer
    assert late(waits_only) is None
    apart = ranks()
    apart[0] = ranks(late=0, extra=0.5)[0]
    assert late(apart) is None, "they do not keep step"


def test_a_run_s_straggler_on_gpus_is_told_by_their_clocks_alone() -> None:
    state = RunState()
    for rank in range(2):
        events: list[Event] = [
            Hello(f"p{rank}", 0, 0.0, rank=rank, world_size=2),
            Facts(f"p{rank}", 1, 0.0, facts={"devices": [f"GPU-{rank}"]}),
        ]
        for step in range(1, 41):
            # By the host's clock nobody waits in backward: it only queues the work.
            rows = [("forward", 0.01, "host", 1), ("backward", 0.01, "host", 1)]
            events.append(
                Step(
                    f"p{rank}", 9 + 2 * step, step * 0.3, index=step, start=step * 0.3 - 0.3, duration=0.3, phases=rows
                )
            )
            extra = {"forward": 0.14, "backward": 0.16} if rank else {"forward": 0.1, "backward": 0.2}
            events.append(timed(rank, step, **extra))
        for event in events:
            fold(state, event)
    told = make_report(state, around(state))
    found = told.straggler
    assert found is not None and (found.rank, found.culprit) == (1, "forward")
    early, late = told.ranks
    assert {row.clock for row in told.ranks} == {"cuda"} and late.usual_wait == 0.0
    assert early.usual_wait is not None and 0.03 < early.usual_wait < 0.05 and 0.28 < (early.step_seconds or 0) < 0.32


def test_the_rows_of_ranks_are_by_the_devices_clocks_too() -> None:
    usual = typical_steps(ranks())
    waiting = wait_by_rank(usual)
    assert waiting[1] == 0.0 and all(0.03 < waiting[rank] < 0.05 for rank in (0, 2, 3))
    assert typical_steps(ranks(steps=MIN_TIMED_STEPS)) == {}, "too few of them were timed"

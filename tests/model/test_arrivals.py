"""Who calls the collectives last: by the times of the calls on each rank."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from monitor.model.ranks.arrivals import Arrivals, RankCalls, compare_arrivals
from trainhooks.protocol.events import Collectives

FORWARD, STEP = 0.03, 0.1
Late = Callable[[int, int], float]  # seconds that a rank takes longer in a step


def told(rank: int, late: Late, steps: int = 32, buckets: int = 1, ranks: int = 2, ahead: float = 0.0) -> Collectives:
    """Steps with a collective, or several that do not block, in backward; the ranks meet at the end of each step.

    Args:
        ahead: of this rank's clock.
    """
    begin = 100.0 + ahead
    event = Collectives(producer=str(rank), seq=0, t=begin, first=1, steps=steps, begin=begin)
    event.kinds = [("default_pg", "all_reduce [1000] float", "backward", 4000)]
    at = 0.0
    for step in range(steps):
        longest = max(late(each, step) for each in range(ranks))
        calls = [at + FORWARD + late(rank, step) + 0.005 * bucket for bucket in range(buckets)]
        end = at + STEP + longest
        for number, called in enumerate(calls):
            until = end if number + 1 == buckets else calls[number + 1]
            event.calls.append((0, step * buckets + number, step + 1, round(called * 1e6), round(until * 1e6)))
        at = end
    own = sum(late(rank, step) for step in range(steps))
    event.seconds = [("forward", FORWARD * steps + own), ("backward", at - FORWARD * steps - own)]
    event.t = begin + at
    return event


def compared(late: Late, ranks: int = 2, hosts: dict[int, str] | None = None, **more: float) -> Arrivals:
    calls = {}
    for rank in range(ranks):
        ahead = 7.0 if hosts and hosts[rank] != hosts[0] else 0.0
        calls[rank] = RankCalls()
        calls[rank].add(told(rank, late, ranks=ranks, ahead=ahead, **more), restart=0)  # type: ignore[arg-type]
    found = compare_arrivals(calls, hosts or {})
    assert found is not None
    return found


def test_the_rank_that_calls_last_costs_the_others_their_wait() -> None:
    found = compared(lambda rank, _: 0.04 * (rank == 2), ranks=4)
    assert (found.late, found.late_steps, found.steps) == (2, 32, 32)
    assert found.seconds == pytest.approx(0.04) and found.waits[0] == pytest.approx(0.04) and found.waits[2] == 0.0
    longer = {rank: phases["forward"] for rank, phases in found.own.items()}
    assert longer[2] - longer[0] == pytest.approx(0.04)
    backward = [phases["backward"] for phases in found.own.values()]
    assert max(backward) - min(backward) < 1e-4, "the others' waits are no work of theirs"


def test_a_lead_at_calls_that_do_not_block_is_one_wait() -> None:
    found = compared(lambda rank, _: 0.04 * (rank == 1), buckets=5)
    assert found.waits[0] == pytest.approx(0.04)


def test_what_delays_every_tenth_step_counts_with_its_mean() -> None:
    found = compared(lambda rank, step: 0.3 * (rank == 1 and step % 10 == 3), steps=128)
    assert found.late == 1 and found.late_steps == 13 and found.seconds == pytest.approx(0.3 * 13 / 128)


def test_one_long_stall_makes_no_rank_late() -> None:
    assert compared(lambda rank, step: 3.0 * (rank == 1 and step == 9), steps=64).late is None


def test_ranks_that_are_late_in_turn_wait_for_each_other() -> None:
    found = compared(lambda rank, step: 0.1 * (step % 2 == rank), steps=64)
    assert found.late is None and all(wait == pytest.approx(0.05) for wait in found.waits.values())


def test_noise_makes_no_rank_late() -> None:
    noise = random.Random(7)
    for _ in range(200):
        delays = [[noise.expovariate(1 / 0.01) for _ in range(32)] for _ in range(4)]
        assert compared(lambda rank, step: delays[rank][step], ranks=4).late is None  # noqa: B023


def test_the_clocks_of_two_hosts_are_compared_by_the_ends_of_steps() -> None:
    found = compared(lambda rank, _: 0.04 * (rank == 1), hosts={0: "a", 1: "b"})
    assert found.late == 1 and found.seconds == pytest.approx(0.04, rel=0.01)


def test_unknown_where_ranks_have_told_no_calls_in_common() -> None:
    one, other = RankCalls(), RankCalls()
    one.add(told(0, lambda *_: 0.0), restart=0)
    assert compare_arrivals({0: one, 1: other}, {}) is None
    other.add(told(1, lambda *_: 0.0), restart=1)
    assert compare_arrivals({0: one, 1: other}, {}) is None, "of another start of the job"

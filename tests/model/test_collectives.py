"""Who has parted from the other ranks, by the collectives that each has called."""

from __future__ import annotations

from monitor.model.ranks.collectives import parted
from monitor.model.state import Held

SUM, OTHER_SUM, WAIT = "all_reduce [4] float", "all_reduce [8] float", "barrier"


def held(*calls: str, last: int | None = None, group: str = "default_pg") -> Held:
    last = last if last is not None else len(calls)
    rows = [(group, last - len(calls) + number + 1, call) for number, call in enumerate(calls)]
    return Held("train.py:9", "collective", 0.0, 60.0, collectives=rows)


def test_who_has_called_fewer_is_behind() -> None:
    found = parted({0: held(SUM, SUM, WAIT), 1: held(SUM, SUM), 2: held(SUM, SUM, WAIT)})
    assert found is not None and found.ranks == [1]
    assert found.line == "rank 1 called 2 collectives of default_pg, ranks 0, 2 called barrier next"


def test_who_called_another_one_has_skipped_or_reordered() -> None:
    found = parted({0: held(SUM, SUM, SUM), 1: held(SUM, WAIT), 2: held(SUM, SUM, SUM)})
    assert found is not None and found.ranks == [1]
    assert found.line == f"collective 2 of default_pg: ranks 0, 2 called {SUM}, rank 1 called barrier"
    sizes = parted({rank: held(SUM, OTHER_SUM if rank == 2 else SUM) for rank in range(4)})
    assert sizes is not None and sizes.ranks == [2]


def test_of_two_the_one_that_is_behind_has_skipped_else_it_is_not_known_which() -> None:
    skipped = parted({0: held(SUM, SUM, WAIT), 1: held(SUM, WAIT)})
    assert skipped is not None and skipped.ranks == [1]
    equal = parted({0: held(SUM, SUM), 1: held(SUM, WAIT)})
    assert equal is not None and equal.ranks == []


def test_ranks_in_the_same_order_have_not_parted() -> None:
    assert parted({0: held(SUM, WAIT), 1: held(SUM, WAIT)}) is None
    assert parted({0: held("all_to_all [3] float"), 1: held("all_to_all [5] float")}) is None, "sizes may differ"
    assert parted({0: held(SUM, last=90), 1: held(SUM, SUM, last=90)}) is None, "one was told less of"
    assert parted({0: held(SUM, group="mesh_dp 1"), 1: held(SUM, SUM, group="mesh_dp 2")}) is None, "different groups"
    assert parted({0: held(), 1: held()}) is None

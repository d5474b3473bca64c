"""Which rank called other collectives than the rest, or fewer: by what each has called last. Pure.

The ranks of a process group call the same collectives in the same order, and each counts its own. Who has called fewer
is waited for; where the calls of one count differ, a rank has skipped or reordered one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from monitor.model.stacks import ranks_text
from monitor.model.state import Held

SAME_SIZES = ("all_reduce", "broadcast", "barrier")  # of all ranks; others may take other sizes from each


@dataclass(frozen=True, slots=True)
class Parted:
    """Ranks that called something else than the others, or less; none where it is not known which of them did."""

    ranks: list[int]
    line: str


def parted(held: Mapping[int, Held]) -> Parted | None:
    """Return where ranks that stand have parted; None: they have not, or nothing is known of their calls."""
    groups: dict[str, dict[int, dict[int, str]]] = {}
    for rank, row in held.items():
        for group, count, call in row.collectives:
            groups.setdefault(group, {}).setdefault(rank, {})[count] = call
    found = [_differ(group, called) or _behind(group, called) for group, called in groups.items()]
    return next((each for each in found if each is not None), None)


def _differ(group: str, called: Mapping[int, Mapping[int, str]]) -> Parted | None:
    for count in sorted({count for calls in called.values() for count in calls}):
        ranks: dict[str, list[int]] = {}
        for rank, calls in called.items():
            if count in calls:
                ranks.setdefault(_comparable(calls[count]), []).append(rank)
        if len(ranks) > 1:
            fewest, *others = sorted(ranks.values(), key=len)
            texts = [f"{ranks_text(each)} called {called[each[0]][count]}" for each in ranks.values()]
            behind = _behind(group, called)
            odd = fewest if len(fewest) < len(others[0]) else behind.ranks if behind is not None else []
            return Parted(odd, f"collective {count:,} of {group}: {', '.join(texts)}")
    return None


def _behind(group: str, called: Mapping[int, Mapping[int, str]]) -> Parted | None:
    last = {rank: max(calls) for rank, calls in called.items()}
    least, most = min(last.values()), max(last.values())
    if least == most:
        return None
    behind = sorted(rank for rank, count in last.items() if count == least)
    ahead = sorted(rank for rank, count in last.items() if count == most)
    next_call = called[ahead[0]].get(least + 1)
    awaited = f"{ranks_text(ahead)} called {next_call} next" if next_call else f"{ranks_text(ahead)} {most:,}"
    return Parted(behind, f"{ranks_text(behind)} called {least:,} collectives of {group}, {awaited}")


def _comparable(call: str) -> str:
    operation = call.partition(" ")[0]
    return call if operation in SAME_SIZES else operation

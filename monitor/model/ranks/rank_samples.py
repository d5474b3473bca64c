"""Where each rank stands, by its stack samples; and which one the others wait for. Pure.

Stages of a pipeline hand tensors to each other, and torch's flight recorder knows no times of that. The slowest stage
is the one that is found least in `send` and `recv`: the others' waits beyond its own are what it costs. Likewise a rank
that alone does something now and then is found least in what all ranks call together: few steps are looked at call by
call, and of some dozens that it does nothing in, none may be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from monitor.model.ranks.arrivals import BACKWARD
from monitor.model.steps.stack_samples import MIN_PLACE_LOOKS
from trainhooks.protocol.calls import COLLECTIVE
from trainhooks.protocol.events import Frames
from trainhooks.protocol.places import Place

MESSAGES = ("send", "recv", "isend", "irecv", "batch_isend_irecv", "send_object_list", "recv_object_list")
# Calls that no rank leaves before all have come, and each for as long. Gradients are averaged in backward.
TOGETHER = (
    "barrier", "monitored_barrier", "all_reduce", "all_gather", "all_gather_into_tensor", "all_gather_object",
    "reduce_scatter", "reduce_scatter_tensor", "all_to_all", "all_to_all_single",
)  # fmt: skip
MIN_LOOKS = 100  # at each rank: then chance moves a share by 5 points
MIN_LATE_SHARE = 0.15  # of the time: what the others wait more than the slowest; three times what chance moves it by
MIN_PLACE_SHARE = 0.5  # of a phase's samples, for one place to be what takes it long
MAX_PLACES = 32  # of a rank


@dataclass(slots=True)
class RankSamples:
    """Stack samples of one rank, by phase and place; places beyond MAX_PLACES count in the total alone."""

    looks: int = 0
    rows: dict[tuple[str, Place], int] = field(default_factory=dict)

    def take(self, frames: Frames) -> None:
        for phase, place, count in frames.rows:
            self.looks += count
            if (phase, place) in self.rows or len(self.rows) < MAX_PLACES:
                self.rows[phase, place] = self.rows.get((phase, place), 0) + count

    def waits(self) -> dict[str, float]:
        """Return the share of all samples that wait for another stage, by phase."""
        return self._shares(lambda phase, place: is_message(place))

    def together(self) -> float:
        """Return the share of all samples in what ends on all ranks at once."""
        return sum(self._shares(_is_together).values())

    def alone(self) -> dict[str, float]:
        """Return the share of all samples in anything else, by phase."""
        return self._shares(lambda phase, place: not _is_together(phase, place))

    def _shares(self, counts: Callable[[str, Place], bool]) -> dict[str, float]:
        found: dict[str, float] = {}
        for (phase, place), count in self.rows.items():
            if counts(phase, place):
                found[phase] = found.get(phase, 0.0) + count / self.looks
        return found

    def own(self, typical: Mapping[str, float]) -> dict[str, float]:
        """Return the seconds of a typical step by phase without the waits for other stages."""
        step, waits = sum(typical.values()), self.waits()
        return {phase: max(0.0, seconds - step * waits.get(phase, 0.0)) for phase, seconds in typical.items()}

    def place(self, *phases: str, others: Sequence[RankSamples] = ()) -> Place | None:
        """Return where most of these phases goes, without waits for other ranks; None where that is unclear.

        Args:
            others: ranks whose samples there are left out: what all do makes none of them late.
        """
        rows = self._at(phases)
        looks = sum(rows.values())
        for other in others:
            for place, n in other._at(phases).items():
                if place in rows:
                    rows[place] -= n / other.looks * self.looks / len(others)
        rows = {place: n for place, n in rows.items() if n > 0}
        total, most = sum(rows.values()), max(rows, key=lambda place: rows[place], default=None)
        is_clear = most is not None and looks >= MIN_PLACE_LOOKS and rows[most] >= MIN_PLACE_SHARE * total
        return most if is_clear else None

    def _at(self, phases: Sequence[str]) -> dict[Place, float]:
        rows: dict[Place, float] = {}
        for (name, place), n in self.rows.items():
            if name in phases and place.activity != COLLECTIVE:
                rows[place] = rows.get(place, 0.0) + n
        return rows


def late_stage(ranks: Mapping[int, RankSamples]) -> tuple[int, float] | None:
    """Return the rank of the slowest stage, and what the others wait for it as a share of the time; None: none is."""
    waits = {rank: samples.waits() for rank, samples in ranks.items()}
    shares = {rank: sum(row.values()) for rank, row in waits.items()}
    return _waits_least(ranks, shares) if all(waits.values()) else None


def alone_at_work(ranks: Mapping[int, RankSamples]) -> tuple[int, float] | None:
    """Return the rank that does what the others wait for, and for which share of the time; None: there is none."""
    return _waits_least(ranks, {rank: samples.together() for rank, samples in ranks.items()})


def _waits_least(ranks: Mapping[int, RankSamples], shares: Mapping[int, float]) -> tuple[int, float] | None:
    if len(ranks) < 2 or any(samples.looks < MIN_LOOKS for samples in ranks.values()):
        return None
    slowest, second = sorted(shares, key=lambda rank: shares[rank])[:2]
    if shares[second] - shares[slowest] < MIN_LATE_SHARE:
        return None
    return slowest, fmean(share for rank, share in shares.items() if rank != slowest) - shares[slowest]


def _is_together(phase: str, place: Place) -> bool:
    called = place.activity == COLLECTIVE and place.users.call.rpartition(".")[2] in TOGETHER
    return called or (phase == BACKWARD and not is_message(place))


def is_message(place: Place) -> bool:
    """Return whether a tensor is handed to another rank there, or waited for."""
    return place.activity == COLLECTIVE and place.users.call.rpartition(".")[2] in MESSAGES

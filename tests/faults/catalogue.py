"""The faults that there are: a function each, and what it found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.faults.place import Place


class NotHere(Exception):
    """A fault that this machine does not let anybody inject. Said loudly, never passed over."""


@dataclass
class Result:
    """What became of the training, its events and trainmon."""

    injected: int = 0
    harmed: list[str] = field(default_factory=list)  # a line for each way in which the training was not as bare
    lost: int = 0  # events that happened and are not told, or that a viewer was not given
    recovered: float = 0.0  # seconds until trainmon was whole again, at worst
    say: str = ""  # what the figures mean here, where they do not speak for themselves

    def add(self, other: Result) -> None:
        self.injected += other.injected
        self.harmed += other.harmed
        self.lost += other.lost
        self.recovered = max(self.recovered, other.recovered)
        self.say = other.say or self.say


@dataclass(frozen=True)
class Fault:
    name: str
    family: str
    inject: Callable[[Place, bool], Result]  # the place to do it in; whether it shall be short

    def run(self, path: Path, short: bool) -> Result:
        from tests.faults.place import Place

        path.mkdir(parents=True, exist_ok=True)
        place = Place(path)
        try:
            return self.inject(place, short)
        finally:
            place.clear()


FAULTS: list[Fault] = []


def fault(name: str) -> Callable[[Callable[[Place, bool], Result]], Callable[[Place, bool], Result]]:
    """Enter a function in the catalogue, under what it does to whom."""

    def enter(inject: Callable[[Place, bool], Result]) -> Callable[[Place, bool], Result]:
        FAULTS.append(Fault(name, inject.__module__.rpartition(".")[2], inject))
        return inject

    return enter

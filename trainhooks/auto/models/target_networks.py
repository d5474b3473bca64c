"""Whether a copy of a trained model, as the target network of Q-learning is, ever gets the trained weights.

A few numbers of each model are kept from before its first update. A copy that still holds these, in all places, while
the trained ones have moved on, has got nothing since. A reference of a policy, the teacher of a student and a fixed
random target stay as they are on purpose. They are given the inputs that the trained model learns on, and a target
network others: what follows these. A frozen opponent is told by the environment steps behind its calls. Looked at in
the steps that are checked, where both models are in host memory: reading a GPU's numbers would wait for it.
"""

from __future__ import annotations

import weakref
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

from trainhooks.auto.instrumentation import put_facts
from trainhooks.auto.models.module_parts import (
    ParameterPlace,
    is_readable,
    optimized_parameters,
    parameters_in,
    place_in_module,
    some_numbers,
    stored_parameters,
)
from trainhooks.program_errors import until_gone

MAX_KEPT = 16  # parameters of an optimizer whose numbers are kept
USUAL = (0.0, 1.0)  # biases and scales begin with these in models that are no copies
MIN_TELLING = 2  # numbers that are equal by no habit
MIN_MOVED = 1e-3  # of a trained number; an average that takes on a thousandth of this shows it in 32 bits
MAX_ALIKE_ROWS = 0.1  # of the inputs: samples of a small replay buffer hold a state and the one before it
FIRST_TARGET_REPORT = 8  # looks; and again at each doubling

Numbers = Tuple[float, ...]


class _Target:
    """A copy that is followed.

    Attributes:
        pairs: of its parameters: the trained one, its own, and the trained one's numbers before the first update.
        rows: what is equal for equal rows of its inputs since the last update; None: unknown.
        called: when it was called last since then; 0: not.
    """

    __slots__ = ("_copy", "alike", "called", "next_report", "pairs", "rows", "unchanged")

    def __init__(self, pairs: List[Tuple[Any, Any, Numbers]], copy: "weakref.ReferenceType[Any]") -> None:
        self.pairs = pairs
        self._copy = copy  # held, so that it is dropped with the copy
        self.rows: Optional[Set[Any]] = set()
        self.called = self.unchanged = self.alike = 0
        self.next_report = FIRST_TARGET_REPORT


class TargetNetworks:
    """Count the updates before which a copy was given inputs of its own, and had the weights of the beginning."""

    def __init__(self) -> None:
        self._kept: Dict[int, Tuple[ParameterPlace, Numbers]] = {}  # by id of the parameter
        self.followed: Dict[int, _Target] = {}  # by id of the copy
        self._learned: Optional[Set[Any]] = set()  # rows of the trained models' inputs since the last update

    def first_step(self, optimizer: Any) -> None:
        """Keep numbers of an optimizer's parameters before its first step."""
        held = list(optimized_parameters(optimizer))
        for parameter, keys in held[:: max(1, -(-len(held) // MAX_KEPT))]:
            key = id(parameter)
            if is_readable(parameter):
                place = ParameterPlace(parameter, until_gone(optimizer, self._kept, key), *keys)
                self._kept[key] = place, some_numbers(parameter)

    def follow(self, copy: Any, trained: Any) -> bool:
        """Follow a copy if it has the weights with which this trained model began. Return whether it is followed."""
        pairs = []
        for (own, part, name), theirs in zip(stored_parameters(copy), parameters_in(trained)):
            kept = self._kept.get(id(theirs))
            if kept is not None and kept[0]() is theirs and is_readable(own) and own is not theirs:
                pairs.append((kept[0], place_in_module(own, part, name), kept[1]))
        start = [number for *_, numbers in pairs for number in numbers]
        is_telling = sum(number not in USUAL for number in start) >= MIN_TELLING
        if is_telling and id(copy) not in self.followed and _are_as_at_start(pairs):
            self.followed[id(copy)] = _Target(pairs, until_gone(copy, self.followed, id(copy)))
        return id(copy) in self.followed

    def called(self, key: int, rows: Optional[Sequence[Any]], t: int) -> None:
        """Take a call of a copy in a step that is checked."""
        target = self.followed[key]
        target.called = t
        target.rows = None if rows is None or target.rows is None else target.rows.union(rows)

    def learns(self, rows: Optional[Sequence[Any]]) -> None:
        """Take a call of a trained model with gradients, likewise."""
        self._learned = None if rows is None or self._learned is None else self._learned.union(rows)

    def updates(self, acted_at: int) -> None:
        """Look at the copies that were called since the last update, as an optimizer begins a step that is checked.

        Args:
            acted_at: when the last step of an environment ended.
        """
        learned, self._learned = self._learned, set()
        for key, target in list(self.followed.items()):
            called, rows = target.called, target.rows
            target.called, target.rows = 0, set()
            if called <= acted_at or not rows or not learned:
                continue
            if not _are_as_at_start(target.pairs):
                del self.followed[key]
                put_facts(target_network={"unchanged": 0, "alike": 0})
            elif len(rows & learned) > MAX_ALIKE_ROWS * min(len(rows), len(learned)):
                target.alike += 1
            elif _have_moved(target.pairs):
                target.unchanged += 1
                if target.unchanged >= target.next_report:
                    target.next_report *= 2
                    put_facts(target_network={"unchanged": target.unchanged, "alike": target.alike})


def _are_as_at_start(pairs: List[Tuple[Any, Any, Numbers]]) -> bool:
    held = [(own(), numbers) for _, own, numbers in pairs]
    return all(own is not None and some_numbers(own) == numbers for own, numbers in held)


def _have_moved(pairs: List[Tuple[Any, Any, Numbers]]) -> bool:
    for trained, _, numbers in pairs:
        parameter = trained()
        if parameter is not None and any(
            abs(now - before) > MIN_MOVED * abs(before) > 0.0 for now, before in zip(some_numbers(parameter), numbers)
        ):
            return True
    return False

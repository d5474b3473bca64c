"""Whether a model that generates, and is a copy of the one that trains, gets its weights.

A few numbers of both are compared from one call of `generate()` to the next, where both are in host memory: a copy by
way of `.data` leaves no other trace. Reading a GPU's numbers would wait for it.
"""

from __future__ import annotations

from typing import Any, Iterator, List, Optional, Set, Tuple

from trainhooks.auto.instrumentation import framework, put_facts
from trainhooks.auto.models import program_facts
from trainhooks.auto.models.module_parts import is_readable, some_numbers
from trainhooks.device import cuda

MAX_PAIRS = 4  # parameters that are compared, spread over the model
MAX_WATCHED_CALLS = 512  # that are looked at
FIRST_WEIGHTS_REPORT = 8  # calls; and again at each doubling

Values = Tuple[Tuple[float, ...], ...]


class GeneratorWeights:
    """Count the calls before which the trained weights had changed, and those before which the copy's had."""

    def __init__(self) -> None:
        self._looked = 0
        self._no_copies: Set[int] = set()  # ids of models that have nothing to compare: to find out takes milliseconds
        self._last: Optional[Tuple[int, Values, Values]] = (
            None  # id of the copy, its values, those of the trained model
        )
        self.updated = self.unchanged = 0
        self._next_report = FIRST_WEIGHTS_REPORT

    def generated(self, model: Any) -> None:
        """Look at the weights of a model that has generated."""
        trained = program_facts.trained_model()
        is_done = id(model) in self._no_copies or self._looked >= MAX_WATCHED_CALLS
        if trained is None or is_done or not cuda.may_compute():
            return
        pairs = _pairs(program_facts.unwrap(trained), program_facts.unwrap(model))
        if not pairs:
            self._no_copies.add(id(model))
            return
        self._looked += 1
        learner, copy = (tuple(map(some_numbers, side)) for side in zip(*pairs))
        last, self._last = self._last, (id(model), copy, learner)
        if last is None or last[0] != id(model) or last[2] == learner:
            return
        self.updated += 1
        self.unchanged += last[1] == copy
        if self.updated >= self._next_report:
            if framework.tracker is not None and framework.tracker.checks.has_optimizer(pairs[0][1]):
                self._no_copies.add(id(model))  # it is trained itself, in turns
                self.updated = self.unchanged = 0
                return
            self._next_report *= 2
            put_facts(generator_weights={"updated": self.updated, "unchanged": self.unchanged})


def _pairs(trained: Any, copy: Any) -> List[Tuple[Any, Any]]:
    """Return some parameters that train, each with that of the same name in the copy; empty where it is none."""
    own = dict(_named_parameters(trained))
    others = {name: parameter for name, parameter in _named_parameters(copy) if name in own}
    if any(parameter is own[name] for name, parameter in others.items()):
        return []  # it is the trained model, or shares weights with it
    found = [
        (own[name], parameter)
        for name, parameter in others.items()
        if own[name].requires_grad and is_readable(own[name]) and is_readable(parameter)
        and own[name].shape == parameter.shape
    ]  # fmt: skip
    return found[:: max(1, len(found) // MAX_PAIRS)][:MAX_PAIRS]


def _named_parameters(module: Any, head: str = "") -> Iterator[Tuple[str, Any]]:
    """Yield names and parameters, as `module.named_parameters()` does, without a call of the program's methods."""
    for name, parameter in (vars(module).get("_parameters") or {}).items():
        if parameter is not None:
            yield head + name, parameter
    for name, part in (vars(module).get("_modules") or {}).items():
        if part is not None:
            yield from _named_parameters(part, f"{head}{name}.")


weights = GeneratorWeights()

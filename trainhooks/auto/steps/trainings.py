"""Where one training of a process ends and another begins: a sweep's loop, folds, stages with a model of their own.

Another one is taken to begin where an optimizer is made, after steps, for parameters that none before has trained. It
has begun once that optimizer steps. If one of an earlier training steps again (a probe of what has been learned, the
inner loop of another), they were parts of one training after all, and from then on nothing is told apart.
"""

from __future__ import annotations

import weakref
from typing import Any, Dict, List, Optional

from trainhooks.auto.instrumentation import call_safely, put_facts
from trainhooks.auto.models import program_facts
from trainhooks.auto.steps import plan

MIN_STEPS = 10  # of a training; optimizers that step less often are rounds of one: adaptations, clients, inner loops
MAX_TRAININGS = 64  # told apart; more are taken for rounds of one
MAX_SETTINGS = 32

# By id: weak references, or places of parameters, as the id of one that is gone is given to another.
References = Dict[int, Any]


class Trainings:
    """The trainings of this process.

    Args:
        tracker: the step tracker.
        models: the models that optimizers train.
    """

    def __init__(self, tracker: Any, models: Any) -> None:
        self._tracker = tracker
        self._models = models
        self._number = 0  # of the current one, from 1
        self._before = 0  # steps of the process before it, or before its latest round
        self._parameters: References = {}  # that it trains
        self._optimizers: References = {}  # that stepped in it
        self._earlier: References = {}  # that stepped in one before
        self._made: References = {}  # for another one
        self._kept: Any = None  # what is restored if that one does not begin
        self._led: Optional[int] = None  # the model that led in the training before, by its id

    def made(self, optimizer: Any) -> None:
        """Look at a new optimizer: it may be another training's."""
        if not 0 < self._number <= MAX_TRAININGS:
            return
        if any(_holds(self._parameters, parameter) for parameter in _parameters(optimizer)):
            return
        if self._tracker.fast_path.steps - self._before < MIN_STEPS:
            self._before = self._tracker.fast_path.steps
            return
        if not self._made:
            self._kept = self._models.forget_leader(), self._tracker.last, plan.passes.forget()
            self._tracker.last = None  # its setup is no part of a step
        _add(self._made, optimizer)

    def steps(self, optimizer: Any) -> None:
        """Note that an optimizer is about to step."""
        if _holds(self._optimizers, optimizer):
            if self._made:
                self._goes_on()
            return
        if _holds(self._earlier, optimizer):
            self._merge()
        elif _holds(self._made, optimizer):
            self._begin(optimizer)
        elif not self._number:
            self._number = 1
            put_facts(training=self._facts(optimizer))
        _add(self._optimizers, optimizer)
        self._parameters.update(self._models.places(optimizer))

    def _begin(self, optimizer: Any) -> None:
        self._earlier.update(self._optimizers)
        self._number += 1
        self._before = self._tracker.fast_path.steps
        self._led = self._kept[0]
        self._made, self._kept = {}, None
        self._optimizers, self._parameters = {}, {}
        if self._number > MAX_TRAININGS:
            self._merge()
            return
        program_facts.known.forget()
        plan.forget()
        put_facts(training=self._facts(optimizer))

    def _goes_on(self) -> None:
        """Restore what was forgotten for another training: this one goes on, the new optimizer is a part of it."""
        leader, last, passes = self._kept
        self._models.lead_again(leader)
        plan.passes.restore(passes)
        self._tracker.last = self._tracker.last or last
        self._made, self._kept = {}, None

    def _merge(self) -> None:
        """Note that the trainings were parts of one."""
        self._number = MAX_TRAININGS + 1
        self._earlier = {}
        self._models.lead_again(self._led)
        put_facts(training={"number": 1})

    def _facts(self, optimizer: Any) -> Dict[str, Any]:
        return {"number": self._number, "settings": call_safely(settings, optimizer) or {}}


def settings(optimizer: Any) -> Dict[str, Any]:
    """Return numbers that trainings of one program differ in: of the program's arguments, and of the optimizer."""
    own = {
        name: list(value) if type(value) is tuple else value
        for name, value in optimizer.defaults.items()
        if _is_plain(value) or (type(value) is tuple and all(map(_is_plain, value)))
    }
    found = {**plan.settings(), "optimizer": type(optimizer).__name__, **own}
    return dict(list(found.items())[-MAX_SETTINGS:])


def _is_plain(value: Any) -> bool:
    return type(value) in (int, float, bool)


def _parameters(optimizer: Any) -> List[Any]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _add(known: References, one: Any) -> None:
    known[id(one)] = weakref.ref(one)


def _holds(known: References, one: Any) -> bool:
    held: Optional[Any] = known.get(id(one))
    return held is not None and held() is one

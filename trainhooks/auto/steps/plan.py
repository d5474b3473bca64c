"""What a program plans: passes over its training loader, and the arguments that bound them.

A plain loop tells nobody how long it will take. Its loader knows its batches, and its arguments often name the epochs
or steps. Only whole numbers under names that mean one thing everywhere are read: arguments that argparse parsed, and
variables of the main module. What the headers of the loops say (`loop_bounds`) goes before these.
"""

from __future__ import annotations

import sys
import time
import weakref
from typing import Any, Dict, Iterator, Mapping, Optional, Tuple

from trainhooks.auto.instrumentation import framework, put_facts
from trainhooks.auto.steps import loop_bounds
from trainhooks.program_errors import pass_on

EPOCHS = ("epochs", "num_epochs", "n_epochs", "max_epochs", "num_train_epochs", "total_epochs", "train_epochs")
# `num_steps`, `total_timesteps` and the like are rollouts or an environment's steps in reinforcement learning.
STEPS = ("max_iters", "max_steps", "max_train_steps", "num_train_steps", "num_training_steps", "train_iters",
         "total_iters", "max_iterations", "train_steps", "total_steps")  # fmt: skip
CONFIG_NAMES = ("args", "opt", "opts", "options", "config", "cfg", "conf", "hparams", "hp", "params", "FLAGS", "flags")
ENVIRONMENTS = ("gymnasium", "gym")  # with them, `max_steps` may bound an episode
MAX_COUNT = 10**12

PASS_SECONDS = 0.05  # between two reports of passes, after the first few
FIRST_PASSES = 3

_parsed: Dict[str, int] = {}  # what argparse has parsed, of the names above
_numbers: Dict[str, int] = {}  # of all names
_settings: Dict[str, Any] = {}  # numbers and switches of all names
_loops: Dict[str, int] = {}  # what the loops around the optimizer's steps say


def remember_arguments(arguments: Mapping[str, Any]) -> None:
    """Remember the parsed arguments that are whole numbers: they may bound a training."""
    _parsed.update(_bounds(arguments))
    _numbers.update({name: value for name, value in arguments.items() if type(value) is int})
    _settings.update(_plain(arguments))


def settings() -> Dict[str, Any]:
    """Return the program's numbers that are settings: parsed arguments, and those of its configuration objects."""
    main = getattr(sys.modules.get("__main__"), "__dict__", {})
    found = dict(_settings)
    for name in CONFIG_NAMES:
        found.update(_plain(_table(main.get(name))))
    return found


def _plain(values: Mapping[str, Any]) -> Dict[str, Any]:
    return {name: value for name, value in values.items() if type(name) is str and type(value) in (int, float, bool)}


def forget() -> None:
    """Forget the loops of a training, as another one begins."""
    _loops.clear()
    loop_bounds.watch.forget()


def optimizer_begins() -> bool:
    """Read how long the loops run in which an optimizer steps; called within its step.

    Returns:
        Whether it was too early for that.
    """
    if framework.plans:
        return False
    found = loop_bounds.optimizer_steps(_numbers)
    if found is None:
        return loop_bounds.watch.is_early
    is_known = bool(_loops or found)
    _loops.clear()
    _loops.update(found)
    if is_known:
        put_facts(plan=planned_bounds())
    return False


def planned_bounds() -> Dict[str, Any]:
    """Return what bounds the training: `epochs` and `steps`, each with the name it was given by; absent if unknown.

    `updates` are the optimizer's steps that the loops make, where their headers tell; epochs may be of them, too.
    Unknown is also what two sources contradict each other in.
    """
    main = getattr(sys.modules.get("__main__"), "__dict__", {})
    found: Dict[str, Any] = {}
    for what, names in (("epochs", EPOCHS), ("steps", STEPS)):
        given = [(name, source[name]) for source in _sources(main) for name in names if name in source]
        if given and len({value for _, value in given}) == 1:
            found[what], found[f"{what}_name"] = given[0][1], given[0][0]
    if "steps" in found and any(name in sys.modules for name in ENVIRONMENTS):
        del found["steps"], found["steps_name"]
    if "epochs" in _loops:
        found.pop("epochs_name", None)
    return {**found, **_loops}


def _sources(main: Mapping[str, Any]) -> Iterator[Dict[str, int]]:
    yield _parsed
    yield _bounds(main)
    for name in CONFIG_NAMES:
        yield _bounds(_table(main.get(name)))


def _table(holder: Any) -> Dict[str, Any]:
    """Return a dictionary, or an object's own attributes, without a call of its methods."""
    if type(holder) is dict:
        return holder
    if holder is None or type(holder).__module__ == "builtins":
        return {}
    try:
        found = object.__getattribute__(holder, "__dict__")
    except AttributeError:
        return {}
    return found if type(found) is dict else {}


def _bounds(values: Mapping[str, Any]) -> Dict[str, int]:
    if type(values) is not dict:  # a mapping of the program's own runs its code
        return {}
    found = {name: values.get(name) for name in (*EPOCHS, *STEPS)}
    return {name: value for name, value in found.items() if type(value) is int and 0 < value < MAX_COUNT}


PASSES, LOADER_PASSES = "passes", "loader_passes"  # facts


class Passes:
    """Passes over the training's loader: the last one that was iterated, with gradients, before the first step."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> Dict[str, Any]:
        """Forget all passes, as another training begins. Return what `restore` takes."""
        before = dict(vars(self))
        self._loader: Optional["weakref.ReferenceType[Any]"] = None
        self._shape: Tuple[Any, ...] = ()
        self._batches: Optional[int] = None
        self._number = 0
        self._reported: Optional[float] = None  # when a pass was last reported
        self._reported_number = 0
        self._fact = PASSES
        return before

    def restore(self, before: Dict[str, Any]) -> None:
        """Return to what was forgotten: the training goes on."""
        vars(self).update(before)

    def begins(self, loader: Any) -> None:
        """Record the begin of a pass with gradients."""
        if self._reported is None:
            self._number = 1  # before the first step a batch was looked at, at most
            self._loader, self._shape = weakref.ref(loader), _shape(loader)
            self._batches = None if is_planned() else _length(_sampler(loader))
            return
        known = self._loader() if self._loader is not None else None
        if loader is not known:
            # A loader that is made anew for each epoch is the same one.
            if known is not None or _shape(loader) != self._shape or _length(_sampler(loader)) != self._batches:
                return
            self._loader = weakref.ref(loader)
        self._number += 1
        if self._number <= FIRST_PASSES or time.monotonic() - self._reported >= PASS_SECONDS:
            self._report()

    def training_steps(self) -> None:
        """Report the pass that is under way, at the first step: from then on the training's loader is known."""
        if self._number and self._reported is None:
            # A framework knows its own epochs: of such a loader only the begins of its passes are told.
            self._fact = LOADER_PASSES if is_planned() else PASSES
            self._report()

    def finish(self) -> None:
        """Report the last pass, at the end of the program."""
        if self._reported is not None and self._reported_number != self._number:
            self._report(late=True)  # where in this pass the program is, is not known

    def _report(self, **more: bool) -> None:
        self._reported, self._reported_number = time.monotonic(), self._number
        put_facts(**{self._fact: {"number": self._number, "batches": self._batches, **more}})


passes = Passes()


def is_planned() -> bool:
    """Return whether a framework has told of its training: it knows its own plan."""
    return framework.plans or framework.logs_loss


def _shape(loader: Any) -> Tuple[Any, ...]:
    return type(loader), type(getattr(loader, "dataset", None)), getattr(loader, "batch_size", None)


def _sampler(loader: Any) -> Any:
    """Return what a loader gets the numbers of its samples from, one batch at a time."""
    batches = getattr(loader, "batch_sampler", None)
    return loader.sampler if batches is None else batches


def _length(sampler: Any) -> Optional[int]:
    """Return the batches of a pass; None where that is unknown, or where a sampler of the program would be asked.

    The length of the data set is asked once more here, when torch's own samplers ask for it: at the begin of a pass.
    """
    owners = (type(sampler), type(getattr(sampler, "sampler", sampler)))
    if any(owner.__module__.partition(".")[0] != "torch" for owner in owners):
        return None
    try:
        length = len(sampler)
    except Exception as error:  # TypeError without a length; a data set's own may raise anything
        pass_on(error)
        return None
    return length if 0 < length < MAX_COUNT else None

"""The parameter updates that end a step: by optimizers, or by the program's own lines without one."""

from __future__ import annotations

import sys
import weakref
from typing import Any, Dict, List, Optional, Set, Tuple

from trainhooks import session
from trainhooks.auto.instrumentation import call_safely, put_facts
from trainhooks.auto.models import program_facts
from trainhooks.auto.models.module_parts import ParameterPlace, is_readable, optimized_parameters, some_numbers
from trainhooks.device import cuda
from trainhooks.program_errors import until_gone

# Whole steps without an optimizer's step after which steps no longer wait for it. Waiting is harmless if the next fetch
# ends the step anyway (critics trained a hundred times for each generator step); else it merges steps.
MAX_MISSED_WITH_FETCHES = 128
MAX_MISSED_STEPS = 1

MAX_COPIED = 65_536  # elements of a parameter that is compared
FIRST_WITHOUT_UPDATE = 16  # backward passes before any update that are told; and again at each doubling
MAX_COMPARED = 8  # parameters that show whether there was one
PROOFS = 3  # updates that are proven by comparing values; later ones are assumed, without the cost


class Optimizers:
    """The live optimizers that a step waits for, held weakly.

    Attributes:
        none_stepped: whether no optimizer has stepped so far.
    """

    __slots__ = (
        "_awaited", "_captured", "_on_gpu", "_only", "_only_on_cpu", "_unsized", "_version", "none_stepped",
        "without_update",
    )  # fmt: skip

    def __init__(self) -> None:
        self.none_stepped = True
        self._only: Optional[int] = None
        self._only_on_cpu: Optional[int] = None
        self._awaited: Dict[int, List[Any]] = {}  # by id: the optimizer, and whole steps without its step
        self._on_gpu: Dict[int, Tuple[bool, Any]] = {}  # those that have stepped: with the optimizer
        self._unsized: Set[int] = set()  # on a GPU, and the size of its state is not known
        self._version = 0  # sum over the parameters
        self._captured = False
        self.without_update = WithoutUpdate()

    def gradients_computed(self) -> None:
        """Count a backward pass before any optimizer's first step."""
        living = [one for known, _ in list(self._awaited.values()) if (one := known()) is not None]
        call_safely(self.without_update.add, living)

    @property
    def none(self) -> bool:
        """Return whether there is no optimizer: the program updates its parameters itself."""
        return self.none_stepped and not self._awaited

    @property
    def only(self) -> Optional[int]:
        """Return the id of the only optimizer; None if there are several or it is unknown."""
        return self._only if self._only in self._awaited else None

    @property
    def only_on_cpu(self) -> Optional[int]:
        """Return the same if its parameters are on the CPU; else None."""
        return self._only_on_cpu if self._only_on_cpu in self._awaited else None

    def forget_only(self) -> None:
        """Find out anew which is the only one."""
        self._only = self._only_on_cpu = None

    def add(self, optimizer: Any) -> None:
        """Wait for a new optimizer."""
        key = id(optimizer)
        self._awaited[key] = [until_gone(optimizer, self._awaited, key), 0]
        self.forget_only()

    def record_step(self, key: int, optimizer: Any) -> bool:
        """Record a step. Return whether the parameters are on a GPU. `optimizer` may be None if it is replayed."""
        try:
            on_gpu, _ = self._on_gpu[key]
            if key in self._unsized and optimizer is not None:  # its state came with its first step
                self._unsized.discard(key)
                program_facts.optimizer_remembers(optimizer)
        except KeyError:
            if optimizer is None:  # it is gone; a step is replayed up to its end only if a GPU may be working on it
                return True
            firsts = [parameter for group in optimizer.param_groups for parameter in group["params"][:1]]
            devices = {parameter.device.index for parameter in firsts if parameter.is_cuda}
            on_gpu = bool(devices)
            self._on_gpu[key] = on_gpu, until_gone(optimizer, self._on_gpu, key)
            for device in devices:
                if type(device) is int:
                    session.device.place.works_on(device)
            program_facts.optimizer_steps(optimizer)
            if on_gpu:
                self._unsized.add(key)
        if key not in self._awaited and optimizer is not None:
            self.add(optimizer)
        self._first_stepped()
        return on_gpu

    def is_late(self, key: int) -> bool:
        """Return whether an optimizer steps for the first time, after others have: made for its parameters just now."""
        return not self.none_stepped and key not in self._on_gpu

    def step_captured(self) -> None:
        """Note a step that only a CUDA graph records: a fused optimizer changes no version."""
        self._captured = True

    def parameters_changed(self) -> bool:
        """Return whether parameters changed since the last call, as by a compiled optimizer, which calls no hook."""
        now = sum(
            parameter._version
            for known, _ in list(self._awaited.values())
            for group in getattr(known(), "param_groups", ())
            for parameter in group["params"][:1]
        )
        before, self._version = self._version, now
        captured, self._captured = self._captured, False
        return bool(before != now) or captured

    def all_stepped(self, stepped: Set[int]) -> None:
        """Add all optimizers to `stepped`, after the replay of a CUDA graph: which of them it holds is unknown."""
        self._first_stepped()
        stepped.update(self._awaited)

    def _first_stepped(self) -> None:
        if self.none_stepped:
            self.none_stepped = False
            self.without_update.ended()

    def all_in(self, stepped: Set[int]) -> bool:
        """Return whether all awaited optimizers have stepped."""
        return self._awaited.keys() <= stepped

    def step_ended(self, stepped: Set[int], has_fetches: bool) -> None:
        """Stop waiting for optimizers that have missed too many whole steps."""
        awaited = self._awaited
        if len(awaited) == 1:
            (key,) = awaited
            self._only = key if key in stepped else None
            self._only_on_cpu = None if self._on_gpu.get(key, (True, None))[0] else self._only
            return
        self._only = None
        for key, row in list(awaited.items()):
            if key in stepped:
                row[1] = 0
            else:
                row[1] += 1
                if row[1] >= (MAX_MISSED_WITH_FETCHES if has_fetches else MAX_MISSED_STEPS):
                    awaited.pop(key, None)


class WithoutUpdate:
    """Tell of a program that computes gradients while no optimizer steps: before its first step nothing else reports.

    Attributes:
        passes: backward passes so far, before any update.
    """

    __slots__ = ("_next_report", "_start", "passes")

    def __init__(self) -> None:
        self.passes = 0
        self._next_report = FIRST_WITHOUT_UPDATE
        self._start: List[Tuple[ParameterPlace, Tuple[float, ...]]] = []  # some parameters' first numbers

    def add(self, optimizers: List[Any]) -> None:
        """Count a backward pass. `optimizers` are those alive; none has stepped. Without one nothing trains."""
        if not optimizers or not cuda.may_compute():
            return
        self.passes += 1
        if self.passes == 1:
            held = [(one, optimizer, keys) for optimizer in optimizers for one, keys in optimized_parameters(optimizer)]
            for one, optimizer, keys in held[:: max(1, len(held) // MAX_COMPARED)][:MAX_COMPARED]:
                if is_readable(one):
                    self._start.append((ParameterPlace(one, weakref.ref(optimizer), *keys), some_numbers(one)))
        if self.passes >= self._next_report:
            self._next_report *= 2
            session.announce()
            self._put(len(optimizers))

    def ended(self) -> None:
        """Take it back: the parameters are updated."""
        if self.passes >= FIRST_WITHOUT_UPDATE:
            put_facts(without_update={"passes": 0})
        self.passes, self._next_report = 0, sys.maxsize

    def _put(self, optimizers: int) -> None:
        now = [(held(), numbers) for held, numbers in self._start]
        if any(one is not None and some_numbers(one) != numbers for one, numbers in now):
            self.ended()
        else:
            put_facts(without_update={"passes": self.passes, "optimizers": optimizers, "compared": len(now)})


class ManualUpdate:
    """Detect updates without an optimizer (`p.data -= lr * p.grad`), by one parameter between two backward passes.

    An update is certain if the gradient was dropped or zeroed since the last pass and the values changed: gradients
    that only inspect a model change no values.

    Attributes:
        ended: when the last backward pass ended, in nanoseconds of the host clock.
    """

    __slots__ = ("_gradient_version", "_parameter", "_proofs", "_storage", "_values", "ended")

    def __init__(self, parameter: Any) -> None:
        self._parameter = weakref.ref(parameter)
        self._proofs = 0
        self._gradient_version: Optional[int] = None  # after the last backward pass; None: there was no gradient
        self.ended = 0
        self._keep(parameter)

    @property
    def alive(self) -> bool:
        return self._parameter() is not None

    def backward_ended(self, t: int) -> None:
        parameter = self._parameter()
        gradient = None if parameter is None else parameter.grad
        self._gradient_version = None if gradient is None else gradient._version
        self.ended = t

    def updated(self) -> bool:
        """Return whether the last backward pass ended a step. To be called as the next one begins."""
        parameter = self._parameter()
        if parameter is None or self._gradient_version is None:
            return False
        gradient = parameter.grad
        if gradient is not None and gradient._version == self._gradient_version:
            return False  # the next one adds to it
        if self._proofs < PROOFS:
            if not self._changed(parameter):
                return False
            self._proofs += 1
            self._keep(parameter)
        return True

    def _keep(self, parameter: Any) -> None:
        self._storage = (parameter._version, parameter.data_ptr())
        is_cheap = parameter.is_cpu and parameter.numel() <= MAX_COPIED  # comparing on a GPU would wait for it
        # No copy: a tensor of ours would be among the program's, also after it has deleted its own.
        self._values = _digest(parameter) if is_cheap and self._proofs < PROOFS else None

    def _changed(self, parameter: Any) -> bool:
        moved = (parameter._version, parameter.data_ptr()) != self._storage
        return moved or (self._values is not None and _digest(parameter) != self._values)


def _digest(parameter: Any) -> int:
    return hash(tuple(parameter.detach().flatten().tolist()))

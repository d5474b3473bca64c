"""Which optimizers a step waits for: those alive that have not shown that they step seldom or never."""

from __future__ import annotations

import weakref
from typing import Any, Dict, Set

from trainhooks import session
from trainhooks.auto import configuration

# Whole steps without one after which it is waited for no longer. To wait costs nothing where the next fetch ends the
# step anyway (critics that are trained a hundred times for each step of the generator); elsewhere it merges steps.
PATIENCE = 128
IMPATIENCE = 1


class Optimizers:
    """The live optimizers, held weakly."""

    __slots__ = ("_awaited", "_missed", "_on_gpu", "_version", "none_stepped", "only", "sole")

    def __init__(self) -> None:
        self.none_stepped = True
        self.only = 0  # the id of the only one, once it is known to be that
        self.sole = 0  # the id of the only one, once it is known to be that and to work on the CPU: the usual case
        self._awaited: Dict[int, Any] = {}  # by id
        self._missed: Dict[int, int] = {}  # whole steps without it
        self._on_gpu: Dict[int, bool] = {}
        self._version = 0  # of the parameters, added up

    @property
    def none(self) -> bool:
        """Whether there is none, and has been none: the program updates its parameters by itself."""
        return self.none_stepped and not self._awaited

    def made(self, optimizer: Any) -> None:
        key = id(optimizer)

        def forget(_: Any) -> None:
            for known in (self._awaited, self._missed, self._on_gpu):
                known.pop(key, None)
            self.only = self.sole = 0

        self._awaited[key] = weakref.ref(optimizer, forget)
        self._missed[key] = 0
        self.only = self.sole = 0

    def has_stepped(self, key: int, optimizer: Any) -> bool:
        """Note its step; None for one that has stepped before. Returns whether its parameters are on a GPU."""
        try:
            on_gpu = self._on_gpu[key]
        except KeyError:
            groups = optimizer.param_groups
            devices = {each.device.index for group in groups for each in group["params"][:1] if each.is_cuda}
            on_gpu = self._on_gpu[key] = bool(devices)
            for device in devices:
                if type(device) is int:
                    session.device.place.works_on(device)
            configuration.optimizer_steps(optimizer)
        if key not in self._awaited and optimizer is not None:
            self.made(optimizer)
        self.none_stepped = False
        return on_gpu

    def updated(self) -> bool:
        """Whether the parameters have changed since this was asked last: an optimizer was compiled, and has stepped."""
        now = sum(
            parameter._version
            for known in list(self._awaited.values())
            for group in getattr(known(), "param_groups", ())
            for parameter in group["params"][:1]
        )
        before, self._version = self._version, now
        return bool(before != now)

    def all_stepped(self, stepped: Set[int]) -> None:
        """All have, in a graph that was replayed: which ones it holds cannot be seen."""
        self.none_stepped = False
        stepped.update(self._awaited)

    def all_in(self, stepped: Set[int]) -> bool:
        """Whether all that are waited for have stepped."""
        return self._awaited.keys() <= stepped

    def step_ended(self, stepped: Set[int], patient: bool) -> None:
        """A whole step is over: who did not step in it may be waited for no longer."""
        awaited = self._awaited
        if len(awaited) == 1:
            (key,) = awaited
            self.only = key if key in stepped else 0
            self.sole = 0 if self._on_gpu.get(key, True) else self.only
            return
        self.only = 0
        for key in list(awaited):
            if key in stepped:
                self._missed[key] = 0
            else:
                missed = self._missed[key] = self._missed.get(key, 0) + 1
                if missed >= (PATIENCE if patient else IMPATIENCE):
                    awaited.pop(key, None)

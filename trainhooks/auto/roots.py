"""The model that an optimizer trains: found in the frames that make and step the optimizer, and its calls listened to.

No other module is touched: hooks on every module cost milliseconds, and break compiled graphs.
"""

from __future__ import annotations

import weakref
from types import FrameType
from typing import Any, Dict, Iterator, List, Optional, Set

from trainhooks.auto import configuration
from trainhooks.auto.batches import Batches
from trainhooks.auto.listener import CALL, Listener
from trainhooks.auto.steps import Steps

MAX_FRAMES = 12
MAX_VALUES = 2000  # of a frame or an object
MAX_ROOTS = 4  # alive at a time
PASSED_OVER = 64  # calls of other models without one of the leader: it is trained no longer (critics have a dozen)


_PLAIN = frozenset(("builtins", "types", "typing", "_frozen_importlib", "_frozen_importlib_external"))


class Roots:
    """Finds the outermost modules that hold an optimizer's parameters, and listens to their calls."""

    def __init__(self, torch: Any, watched: Steps) -> None:
        self._module = torch.nn.Module
        self._torch = torch
        self._watched = watched
        self._counts = Batches(torch).called_on
        self._hooked: Dict[int, Any] = {}  # those alive, by id
        self._leader = 0  # the id of the one whose inputs are counted
        self._passed_over = 0  # calls of others since the leader's last
        self.settled: Dict[int, Any] = {}  # optimizers whose models need no second look, by id

    def look(self, optimizer: Any, frame: Optional[FrameType]) -> None:
        """Find and hook the models of an optimizer, from the frame that makes or steps it outwards."""
        if len(self._hooked) >= MAX_ROOTS:
            return
        for module in self._outermost(optimizer, frame):
            if id(module) not in self._hooked and len(self._hooked) < MAX_ROOTS and _may_be_hooked(module):
                self._hook(module)

    def settle(self, optimizer: Any, frame: Optional[FrameType]) -> None:
        """The last look, at the optimizer's first step: by now the model has been wrapped and compiled."""
        key = id(optimizer)
        self.settled[key] = weakref.ref(optimizer, lambda _: self.settled.pop(key, None))
        self.look(optimizer, frame)

    def _hook(self, module: Any) -> None:
        key = id(module)
        if not self._leader:
            configuration.trains(module)
        Listener(self._torch, self._watched, self._counts, self._leads, key).listen(module)
        self._hooked[key] = weakref.ref(module, lambda _: self._forget(key))
        self._leader = self._leader or key
        self._watched.rooted = True

    def _forget(self, key: int) -> None:
        self._hooked.pop(key, None)
        if self._leader == key:
            self._leader = 0

    def _leads(self, key: int) -> bool:
        """Whether this model's inputs are the step's. Another takes over where the first is called no longer."""
        if key == self._leader:
            self._passed_over = 0
            return True
        self._passed_over += 1
        if self._leader and self._passed_over < PASSED_OVER:
            return False
        self._leader = key
        return True

    def _outermost(self, optimizer: Any, frame: Optional[FrameType]) -> List[Any]:
        wanted = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        holders: Dict[int, Any] = {}
        for module in self._in_sight(frame):
            if id(module) not in holders and any(id(parameter) in wanted for parameter in module.parameters()):
                holders[id(module)] = module
        inner = {id(part) for module in holders.values() for part in module.modules() if part is not module}
        return [module for key, module in holders.items() if key not in inner]

    def _in_sight(self, frame: Optional[FrameType]) -> Iterator[Any]:
        """Modules among the variables of a frame and its callers, and among their objects' attributes."""
        seen: Set[int] = set()
        for _ in range(MAX_FRAMES):
            if frame is None:
                return
            for names in (frame.f_locals, frame.f_globals):
                if id(names) in seen:
                    continue
                seen.add(id(names))
                for value in list(names.values())[:MAX_VALUES]:
                    if isinstance(value, self._module):
                        yield value
                    elif type(value).__module__ not in _PLAIN:
                        yield from self._among(value)
            frame = frame.f_back

    def _among(self, value: Any) -> Iterator[Any]:
        try:
            attributes = object.__getattribute__(value, "__dict__")
        except AttributeError:
            return
        if type(attributes) is dict:
            for item in list(attributes.values())[:MAX_VALUES]:
                if isinstance(item, self._module):
                    yield item


def _may_be_hooked(module: Any) -> bool:
    """Not one that was compiled in place, and has our attribute for its own; nor where this torch has none."""
    return getattr(module, CALL, module) is None

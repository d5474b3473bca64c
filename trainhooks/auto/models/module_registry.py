"""The modules that a program has made, known as they are made: to look for them later takes a look at each object.

That would take seconds beside millions of objects, and copy the memory that forked workers share with their parent.
"""

from __future__ import annotations

import weakref
from typing import Any, Callable, List, Set

from trainhooks.auto import unseen
from trainhooks.auto.instrumentation import replace_function

FIRST_COMPACTION = 4096  # references; those to modules that are gone are dropped each time that so many have doubled


class MadeModules:
    """Weak references to the modules of this process, but those that `forget` was given.

    Args:
        kind: torch.nn.Module. Copies and what is unpickled are made without its `__init__`, but by `__setstate__`.
        is_traced: whether dynamo traces the program.
    """

    def __init__(self, kind: Any, is_traced: Callable[[], bool]) -> None:
        self._made: List[Any] = []
        self._limit = FIRST_COMPACTION
        for name in ("__init__", "__setstate__"):
            replace_function(kind, name, self._noting(getattr(kind, name), is_traced))

    def _noting(self, make: Callable[..., None], is_traced: Callable[[], bool]) -> Callable[..., None]:
        made, refer = self._made, weakref.ref

        def noting(module: Any, *args: Any, **kwargs: Any) -> None:
            if is_traced():
                return make(module, *args, **kwargs)
            try:
                make(module, *args, **kwargs)
            except BaseException as error:
                unseen.drop_own_frames(error)
                raise
            made.append(refer(module))
            if len(made) > self._limit:
                self._compact()

        return noting

    def living(self) -> List[Any]:
        """Return those that are alive, each once, in the order in which they were made."""
        found = [module for held in list(self._made) if (module := held()) is not None]
        return list({id(module): module for module in found}.values())

    def forget(self, modules: Set[int]) -> None:
        """Forget modules, by id: they are found through one that is followed."""
        self._keep(lambda module: id(module) not in modules)

    def _compact(self) -> None:
        self._keep(lambda module: True)
        self._limit = max(FIRST_COMPACTION, 2 * len(self._made))

    def _keep(self, wanted: Callable[[Any], bool]) -> None:
        """Keep references to modules that are alive and wanted; other threads may add some meanwhile."""
        count = len(self._made)
        kept = [held for held in self._made[:count] if (module := held()) is not None and wanted(module)]
        self._made[:count] = kept

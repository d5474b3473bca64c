"""A sequence whose rows are made when asked for. The first one stays: it stands for what all have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, overload


class OnDemand(Sequence[Any]):
    """Rows of which few are ever asked for; a subclass makes those from one place up to another."""

    def __init__(self) -> None:
        self._first: Any = None

    @abstractmethod
    def _some(self, first: int, end: int) -> list[Any]: ...

    @overload
    def __getitem__(self, at: int) -> Any: ...

    @overload
    def __getitem__(self, at: slice) -> list[Any]: ...

    def __getitem__(self, at: int | slice) -> Any:
        if isinstance(at, slice):
            first, end, _ = at.indices(len(self))
            return self._some(first, end)
        if at == 0:
            if self._first is None:
                (self._first,) = self._some(0, 1)
            return self._first
        place = range(len(self))[at]
        return self._some(place, place + 1)[0]

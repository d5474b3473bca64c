"""The formats in which programs print their progress, one module per format, loaded by listing this package.

A module registers its format with `@register`. `docs/how-to-console-format.md` shows how to add one.
"""

from __future__ import annotations

import pkgutil
from abc import ABC, abstractmethod
from functools import lru_cache
from importlib import import_module
from typing import ClassVar, TypeVar

from monitor.console.reading import Reading

_registered: list[type[Format]] = []
_Class = TypeVar("_Class", bound="type[Format]")


class Format(ABC):
    """One format of output. Every stream has its own instance, which may remember earlier lines of that stream."""

    order: ClassVar[int]  # the lowest is tried first; give the reason beside the number
    whole_line: ClassVar[bool] = False  # `read` gets all of a line, and not only its first 4,096 characters
    without_numbers: ClassVar[bool] = False  # `read` gets lines without any number too: headers of columns
    marks: ClassVar[tuple[str, ...]] = ()  # lines that begin with one of these are read even without a number
    exclusive: ClassVar[bool] = False  # while open, it is tried before all other formats

    @abstractmethod
    def read(self, text: str) -> list[Reading] | None:
        """Return the readings of a line of this format; None for other lines, so that the next format is tried.

        Args:
            text: the line without its rank, its time of day and its logger's words.
        """

    # For formats of several lines

    @property
    def open(self) -> bool:
        """Return whether the last line belongs to something that later lines may complete."""
        return False

    def ends_at(self, text: str) -> bool:
        """Return whether a line ends what is open."""
        return False

    def close(self) -> list[Reading]:
        """End what is open. Return its readings."""
        return []


def register(form: _Class) -> _Class:
    """Register a format. A decorator.

    Raises:
        ValueError: another format has the same order, so their sequence would be undefined.
    """
    rival = next((known for known in _registered if known.order == form.order), None)
    if rival is not None:
        raise ValueError(f"{form.__name__} and {rival.__name__} have the same order, {form.order}")
    _registered.append(form)
    return form


@lru_cache(maxsize=1)
def registered() -> tuple[type[Format], ...]:
    """Import every module of this package. Return the formats in the order in which they are tried."""
    for module in pkgutil.iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
    return tuple(sorted(_registered, key=lambda form: form.order))

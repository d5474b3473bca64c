"""Stretches that the framework adapters time: phases of a step, and spans. Silent where others tell them better."""

from __future__ import annotations

import functools
import os
import sys
import threading
from typing import Any, Callable, List, Optional, TypeVar

from trainhooks import session
from trainhooks.auto import claims
from trainhooks.clocks import host_clock
from trainhooks.entries import FORWARD as GROUND_FORWARD
from trainhooks.entries import NOTHING, SPAN

T = TypeVar("T")

EVAL, FORWARD = "eval", "forward"
OURS = "_trainmon"  # marks what we have put in place, so that it is not wrapped twice


class _Here(threading.local):
    def __init__(self) -> None:
        self.names: List[str] = []


_here = _Here()


def innermost() -> Optional[str]:
    """The name of this thread's innermost open section."""
    return _here.names[-1] if _here.names else None


def is_open(name: str) -> bool:
    """Whether this thread is inside a section of that name."""
    return name in _here.names


class Section:
    """One stretch, as a context manager. It is not told where the program tells its steps itself, inside a section of
    the same name, or inside an evaluation, which counts as a whole; nor is a forward pass, which `boundaries` tells.
    """

    __slots__ = ("_is_span", "_name", "_put")

    def __init__(self, name: str, is_span: bool = False) -> None:
        self._name = name
        self._is_span = is_span
        self._put: Optional[session.Put] = None

    def __enter__(self) -> None:
        name, names = self._name, _here.names
        if not (session.explicit() or name == FORWARD or name in names or EVAL in names):
            self._put = put = session.quiet_put()
            put((SPAN, host_clock(), name) if self._is_span else (name, host_clock()))
        names.append(name)
        self._claim(1)  # after what was put, which may tell of what came before it

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        if _here.names:
            _here.names.pop()
        self._claim(-1)
        if self._put is not None:
            self._put((None, host_clock()))

    def _claim(self, change: int) -> None:
        if self._name == EVAL:
            claims.aside += change
        elif not self._is_span and self._name != FORWARD:
            claims.told += change


def phase(name: str) -> Section:
    return Section(name)


def span(name: str) -> Section:
    return Section(name, is_span=True)


def forward_begins() -> None:
    """A forward pass begins where nobody else would see it: in an optimizer's closure. Where the model's own calls are
    seen (from the second step on it shows), forward begins with them, and is not counted a second time here.
    """
    if session.explicit():
        return
    watched = _steps()
    is_seen = watched is not None and watched.rooted and watched.last
    session.quiet_put()((NOTHING if is_seen else GROUND_FORWARD, host_clock()))


def batch_used() -> None:
    """A framework that fetches ahead takes up the next batch: it is counted now."""
    watched = _steps()
    if watched is not None:
        watched.batch_used()


def training_ended() -> None:
    """A framework's training is over: what it fetched and did not use is nobody's, and it claims nothing any more."""
    watched = _steps()
    if watched is not None:
        watched.waiting.clear()
    claims.loss = claims.counts = False


def _steps() -> Any:
    """The steps that `boundaries` tells, where they are of this thread."""
    watched = getattr(sys.modules.get("trainhooks.auto.boundaries"), "current", None)
    if watched is None or watched.silent or watched.thread != threading.get_ident():
        return None
    if watched.usual.stage:
        watched.usual.hand_over()
    return watched


def harmless(function: Callable[..., Optional[T]], *args: Any) -> Optional[T]:
    """`function(*args)`, or None where it raises: what a framework hands out may do so, and only readings are lost."""
    try:
        return function(*args)
    except Exception:  # see above
        if os.environ.get(session.DEBUG_VARIABLE):
            raise
        return None


def replace(owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> bool:
    """Put `make(original)` in the place of a function of a class or module, once.

    Returns:
        Whether ours is in place. False where this version of the framework has no such function.
    """
    found = vars(owner).get(name)
    kind = type(found) if isinstance(found, (classmethod, staticmethod)) else None
    original = found.__func__ if isinstance(found, (classmethod, staticmethod)) else found
    if not callable(original):
        return False
    if not hasattr(original, OURS):
        ours = functools.wraps(original)(make(original))
        setattr(ours, OURS, True)
        setattr(owner, name, ours if kind is None else kind(ours))
    return True


def timed(owner: Any, name: str, label: str, is_span: bool = True) -> bool:
    """Make a function of a class or module a section."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def ours(*args: Any, **kwargs: Any) -> Any:
            with Section(label, is_span):
                return original(*args, **kwargs)

        return ours

    return replace(owner, name, make)

"""TRL: the sections that its trainers profile become phases by the vocabulary; each reward function's time is told.

Totals, settings and logged metrics come through the Trainer's callback, as for any Trainer.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from types import ModuleType
from typing import Any, Callable, Iterator, Optional

from trainhooks import session
from trainhooks.auto import sections
from trainhooks.auto.vocabulary import phase_name
from trainhooks.clocks import NANOSECOND, host_clock
from trainhooks.entries import TALLY
from trainhooks.events import clean

REWARD, LOG_PROBS = "reward", "log_probs"
KEPT = "_trainmon_section"


class _Profiled:
    """One profiled section while it is open."""

    def __init__(self, name: str) -> None:
        alias = name.partition(".")[2] or name
        label = phase_name(alias)
        self.reward: Optional[str] = None
        is_beside = _in_a_loop_beside()
        if label is None and (is_beside or sections.is_open(REWARD)):
            self.reward = alias
        elif is_beside:
            label = None
        if label == LOG_PROBS and sections.is_open(sections.FORWARD):
            label = sections.FORWARD  # those of the policy that is being trained: its forward pass
        self.section = None if label is None else sections.phase(label)
        self.began = host_clock()

    def enter(self) -> None:
        if self.section is not None:
            self.section.__enter__()

    def leave(self) -> None:
        if self.section is not None:
            self.section.__exit__(None, None, None)
        elif self.reward is not None:
            seconds = (host_clock() - self.began) / NANOSECOND
            session.quiet_put()((TALLY, {f"reward_seconds/{clean(self.reward, 64)}": seconds}, {}))


def _in_a_loop_beside() -> bool:
    """Whether this is a task among others of a thread beside the training: what it enters and leaves does not nest."""
    if threading.current_thread() is threading.main_thread():  # in a notebook it has a loop, too
        return False
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None


def install(module: ModuleType) -> None:
    """Called after `trl.extras.profiling` has been imported."""
    context = getattr(module, "ProfilingContext", None)
    if context is not None:
        sections.replace(context, "__enter__", _entering)
        sections.replace(context, "__exit__", _leaving)
    else:  # until TRL 0.26 a generator makes the context
        sections.replace(module, "profiling_context", _around)


def _entering(enter: Callable[..., Any]) -> Callable[..., Any]:
    def ours(self: Any) -> Any:
        profiled = _Profiled(str(getattr(self, "name", "")))
        profiled.enter()
        setattr(self, KEPT, profiled)
        return enter(self)

    return ours


def _leaving(leave: Callable[..., Any]) -> Callable[..., Any]:
    def ours(self: Any, *error: Any) -> Any:
        try:
            return leave(self, *error)
        finally:
            profiled = self.__dict__.pop(KEPT, None)
            if profiled is not None:
                profiled.leave()

    return ours


def _around(profiling_context: Callable[..., Any]) -> Callable[..., Any]:
    @contextlib.contextmanager
    def ours(trainer: Any, name: str) -> Iterator[None]:
        profiled = _Profiled(f"{type(trainer).__name__}.{name}")
        with profiling_context(trainer, name):
            profiled.enter()
            try:
                yield
            finally:
                profiled.leave()

    return ours

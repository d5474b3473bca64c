"""The one door to the driver's library: every query passes through `query`, and no error leaves it."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pynvml

ABSENT_SECONDS = 60.0  # before a reading that a card does not have is asked for again
SLOW_CALL = 0.015  # seconds; queries take microseconds, those that measure something take tens of milliseconds
SLOW_SHARE = 0.02  # of the time: how much of it one slow query may take
SLOW_EVERY = (5.0, 10.0)  # seconds: the shortest and the longest time between two calls of a slow query
SLOW_BUDGET = 0.1  # seconds of slow queries in one round

# Queries that block for a measurement by design: 20 ms each.
BLOCKING = frozenset(("nvmlDeviceGetPcieThroughput",))

LOST = frozenset((pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED))
GONE = frozenset((pynvml.NVML_ERROR_UNINITIALIZED, pynvml.NVML_ERROR_DRIVER_NOT_LOADED))

# What will not be otherwise a second later.
_LASTING = frozenset(
    (
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_INVALID_ARGUMENT,
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_NOT_FOUND,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_DEPRECATED,
    )
)

Key = tuple[str, tuple[Any, ...]]


@dataclass(frozen=True)
class Handle:
    """The driver's handle of a device, as what it is: an address. The binding's own can be no key of a dictionary."""

    address: int

    @classmethod
    def of(cls, given: Any) -> Handle:
        return cls(ctypes.cast(given, ctypes.c_void_p).value or 0)

    @property
    def _as_parameter_(self) -> ctypes.c_void_p:  # what ctypes passes on in our place
        return ctypes.c_void_p(self.address)


def query(name: str, *arguments: Any) -> tuple[Any, int | None]:
    """The driver's answer, and None; or None, and the driver's code for why there is none."""
    function: Callable[..., Any] | None = getattr(pynvml, name, None)
    if function is None:
        return None, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
    try:
        return function(*arguments), None
    except pynvml.NVMLError as error:
        return None, getattr(error, "value", pynvml.NVML_ERROR_UNKNOWN)
    except UnicodeDecodeError:
        return None, pynvml.NVML_ERROR_UNKNOWN


@dataclass
class _Held:
    """The last answer of a slow query."""

    answer: Any = None
    failure: int | None = pynvml.NVML_ERROR_TIMEOUT
    due: float = float("-inf")


class Driver:
    """Asks with memory: what a card lacks is asked for rarely, what takes long in turns and never all at once."""

    def __init__(self) -> None:
        self.failure: int | None = None  # the driver's code, when the last question got no answer
        self.failures: set[int] = set()  # all codes since the owner emptied it
        self._now = float("-inf")
        self._absent: dict[Key, tuple[float, int]] = {}  # until when, and the code
        self._suspects: set[str] = set()  # queries that took long the last time
        self._slow: set[str] = set(BLOCKING)
        self._held: dict[Key, _Held] = {}

    def ask(self, name: str, *arguments: Any) -> Any:
        """The driver's answer; None where it, or this card, has none, with the reason in `failure`.

        The answer of a query that has proved slow is the one of its last turn: some seconds old.
        """
        self.failure = None
        key = (name, arguments)
        absent = self._absent.get(key)
        if absent is not None and self._now < absent[0]:
            return self._fail(absent[1])
        if name in self._slow:
            held = self._held.setdefault(key, _Held())
            return self._fail(held.failure) if held.failure is not None else held.answer
        answer, took = self._timed(key)
        if took <= SLOW_CALL:
            self._suspects.discard(name)
        elif name not in self._suspects:
            self._suspects.add(name)  # once may be chance: on a busy machine our thread, too, waits for a core
        else:
            self._slow.add(name)
            self._held[key] = _Held(answer, self.failure, self._now + _pause(took))
        return answer

    def ask_now(self, name: str, *arguments: Any) -> Any:
        """The same without memory, for questions whose answer must not be an old one."""
        answer, self.failure = query(name, *arguments)
        return self._fail(self.failure) if self.failure is not None else answer

    def begin(self, now: float) -> None:
        """Begin a round of questions at `now`: take the turns of slow queries, the longest due first."""
        self._now = now
        spent = 0.0
        while self._held and spent < SLOW_BUDGET:
            key = min(self._held, key=lambda key: self._held[key].due)
            if self._held[key].due > now:
                break
            answer, took = self._timed(key)
            spent += took
            if took < SLOW_CALL / 2 and key[0] not in BLOCKING and self.failure not in LOST:
                self._hasten(key[0])
            else:
                self._held[key] = _Held(answer, self.failure, now + _pause(took))

    def forget(self) -> None:
        """The handles are void: the driver, or a card, was opened anew."""
        self._absent.clear()
        self._held.clear()
        self._slow = set(BLOCKING)

    def _hasten(self, name: str) -> None:
        """A query was slow and is so no longer: the driver was waking a card, say."""
        self._slow.discard(name)
        self._held = {key: held for key, held in self._held.items() if key[0] != name}

    def _timed(self, key: Key) -> tuple[Any, float]:
        began = time.perf_counter()
        answer = self.ask_now(key[0], *key[1])
        took = time.perf_counter() - began
        if self.failure is not None:
            if self.failure in _LASTING:
                self._absent[key] = (self._now + ABSENT_SECONDS, self.failure)
        else:
            self._absent.pop(key, None)
        return answer, took

    def _fail(self, code: int) -> None:
        self.failure = code
        self.failures.add(code)


def _pause(took: float) -> float:
    return min(max(took / SLOW_SHARE, SLOW_EVERY[0]), SLOW_EVERY[1])

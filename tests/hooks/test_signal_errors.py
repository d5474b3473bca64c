"""An error that the program's own signal handler raises reaches the program, whatever line of ours it interrupts."""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from trainhooks.auto.instrumentation import call_safely
from trainhooks.device import deferred


class TimeLimit(Exception):
    """What a program raises when its time is up."""


def limit(*_: Any) -> None:
    raise TimeLimit


class Limiter:
    def __call__(self, number: int, frame: Any) -> None:
        raise TimeLimit

    def method(self, number: int, frame: Any) -> None:
        raise TimeLimit


class Interrupted:
    """A tensor on the host; the signal comes while it is read."""

    is_cpu = True

    def item(self) -> float:
        signal.raise_signal(signal.SIGALRM)
        return 1.0


class Broken:
    is_cpu = True

    def item(self) -> float:
        raise TimeLimit


@pytest.fixture(params=[limit, Limiter(), Limiter().method, functools.partial(limit, 1)])
def handler(request: pytest.FixtureRequest) -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, request.param)
    yield
    signal.signal(signal.SIGALRM, before)


READERS: list[Callable[[Any], Any]] = [
    lambda value: deferred.settle_metrics({"loss": value}),
    deferred.host_value,
    lambda value: call_safely(value.item),
]


@pytest.mark.parametrize("read", READERS)
def test_it_passes_through_ours(handler: None, read: Callable[[Any], Any]) -> None:
    with pytest.raises(TimeLimit):
        read(Interrupted())


@pytest.mark.parametrize("read", READERS)
def test_an_error_of_the_value_itself_does_not(handler: None, read: Callable[[Any], Any]) -> None:
    assert not read(Broken())

"""The public calls. Each only appends a small tuple to its thread's lane.

A background thread (`background_writer`) makes events of the tuples (`assembler`). The calls use few bytecodes and
objects: a training step leaves the caches cold, and then everything costs three times as much.
"""

from __future__ import annotations

import functools
from typing import (
    Any,
    AsyncIterator,
    Callable,
    ContextManager,
    Dict,
    Iterable,
    Iterator,
    Mapping,
    Optional,
    Set,
    TypeVar,
)

from trainhooks.compiled import no_timer, plain_items, record_nothing, traced_as
from trainhooks.device import deferred
from trainhooks.device.deferred import AMOUNT_TYPES, NUMBER_TYPES
from trainhooks.lane_entries import CANCEL, COUNT, END, FACTS, LOG, NEXT, NOTE, QUIT, SKIP, SPAN, STEP, Loop, host_clock
from trainhooks.program_errors import pass_on
from trainhooks.session import device, explicit_steps, here, open_lane, own_lane, started_put

# Flags of code objects; `inspect`, which names them too, takes milliseconds to import.
_GENERATOR, _COROUTINE, _ASYNC_GENERATOR = 0x20, 0x80, 0x200

Timer = ContextManager[None]  # may be entered any number of times


def decorate(timer: Timer, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` with `timer` around its body.

    A coroutine is timed to its end, what it awaits included; a generator only while it computes its next item.
    """
    flags = getattr(getattr(function, "__code__", None), "co_flags", 0)
    if flags & _COROUTINE:
        return functools.wraps(function)(_coroutine(timer, function))
    if flags & _GENERATOR:
        return functools.wraps(function)(_generator(timer, function))
    if flags & _ASYNC_GENERATOR:
        return functools.wraps(function)(_async_generator(timer, function))

    enter, leave = timer.__enter__, timer.__exit__

    @functools.wraps(function)
    def timed(*args: Any, **kwargs: Any) -> Any:
        enter()  # no `with`: dynamo traces methods of an object from outside its graph, but does not enter it
        try:
            return function(*args, **kwargs)
        finally:
            leave(None, None, None)

    return timed


def _coroutine(timer: Timer, function: Callable[..., Any]) -> Callable[..., Any]:
    async def timed(*args: Any, **kwargs: Any) -> Any:
        with timer:
            return await function(*args, **kwargs)

    return timed


def _generator(timer: Timer, function: Callable[..., Any]) -> Callable[..., Any]:
    def timed(*args: Any, **kwargs: Any) -> Iterator[Any]:
        inner = function(*args, **kwargs)
        resume, value = inner.send, None
        while True:
            try:
                with timer:
                    item = resume(value)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            try:
                resume, value = inner.send, (yield item)
            except BaseException as error:  # thrown in, or closed: the inner generator handles it
                resume, value = inner.throw, error

    return timed


def _async_generator(timer: Timer, function: Callable[..., Any]) -> Callable[..., Any]:
    async def timed(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        inner = function(*args, **kwargs)
        resume, value = inner.asend, None
        while True:
            try:
                with timer:
                    item = await resume(value)
            except StopAsyncIteration:
                return
            try:
                resume, value = inner.asend, (yield item)
            except BaseException as error:  # as above
                resume, value = inner.athrow, error

    return timed


T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class _Timed:
    """The common part of phases and spans: leaving them, and their use as a decorator."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        raise NotImplementedError

    @traced_as(record_nothing)
    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        try:
            here.put((None, host_clock()))
        except AttributeError:  # forked inside it: the entry was the parent's
            pass

    def __call__(self, function: F) -> F:
        return decorate(self, function)  # type: ignore[return-value]


class Phase(_Timed):
    """A named part of a step, as a context manager or a decorator. One object serves all its uses, in any thread."""

    __slots__ = ()

    @traced_as(record_nothing)
    def __enter__(self) -> None:
        try:
            here.put((self._name, host_clock()))
        except AttributeError:
            open_lane()((self._name, host_clock()))


_phases: Dict[str, Phase] = {}


@traced_as(no_timer)
def phase(name: str) -> Phase:
    """Time a part of the step: ``with th.phase("generation"): ...`` or ``@th.phase("reward")``.

    Phases nest, and time belongs to the innermost. Outside a step a phase is recorded as a span.

    Args:
        name: a common name where one fits (generation, log_probs, reward, execution, training...).
    """
    try:
        return _phases[name]
    except (KeyError, TypeError):  # new, or a name that cannot be one
        return _new_phase(_as_text(name))


def _new_phase(name: str) -> Phase:
    new = Phase(name)
    if len(_phases) < 2000:  # names made by the thousand (f"phase {i}") must not fill the memory
        _phases[name] = new
    return new


def _as_text(name: Any) -> str:
    try:
        return str(name)
    except Exception as error:  # a foreign __str__ may raise anything
        pass_on(error)
        return f"<{type(name).__name__}>"


class Span(_Timed):
    """A named span of time: loading, a checkpoint, an evaluation."""

    __slots__ = ()

    @traced_as(record_nothing)
    def __enter__(self) -> None:
        try:
            here.put((SPAN, host_clock(), self._name))
        except AttributeError:
            open_lane()((SPAN, host_clock(), self._name))


@traced_as(no_timer)
def span(name: str) -> Span:
    """Time work outside the steps, or rare in them: ``with th.span("checkpoint"): ...``; also a decorator.

    It is shown while it is open. Inside a step its time is also a phase of that step, of the same name.
    """
    return Span(_as_text(name))


class _Step:
    __slots__ = ("_loop",)

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def __enter__(self) -> None:
        put = explicit_steps()
        if device.watching:
            put = device.begins(here.lane, self._loop)
        put((STEP, host_clock(), self._loop))
        if deferred.waiting:
            deferred.put_arrived(put)

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        try:
            # A step that an exception ended did not do its work: it is not counted.
            here.put((END if kind is None else CANCEL, host_clock(), self._loop))
        except AttributeError:  # forked inside the step
            pass
        if device.watching:
            device.loop_left(self._loop)


@traced_as(no_timer)
def step(*, role: Optional[str] = None, stage: Optional[str] = None, epoch: Optional[float] = None) -> _Step:
    """Time one step of a loop that has no iterable: ``with th.step(role="generator", stage="3"): ...``

    Args:
        role: the model trained in this step, if several take turns; each role has its own baseline.
        stage: the stage of the training; each stage has its own baseline.
        epoch: only shown.
    """
    return _Step(Loop(role, stage, epoch))


@traced_as(plain_items)
def steps(
    iterable: Iterable[T],
    *,
    total: Optional[int] = None,
    role: Optional[str] = None,
    stage: Optional[str] = None,
    epoch: Optional[float] = None,
) -> Iterator[T]:
    """Iterate as over `iterable`; each item is one step, and the wait for the item is its phase `data`.

    Args:
        iterable: a data loader, a list, a generator...
        total: how many steps the whole run takes, if known; as `init(total_steps=...)`.
        role, stage, epoch: as in `step`.

    Returns:
        An iterator over the items. The step ends when the next item is asked for, or the loop is left.
    """
    if total is not None:
        started_put()((FACTS, {"total_steps": total}))
    return _steps(iterable, Loop(role, stage, epoch))


def _steps(iterable: Iterable[T], loop: Loop) -> Iterator[T]:
    put = explicit_steps()
    lane = own_lane()
    items = iter(iterable)
    number = 0
    try:
        while True:
            number += 1
            if device.watching:
                device.begins(lane, loop)((NEXT, host_clock(), loop, number))
                put = lane.put  # whether a step is timed changes the lane's `put`
            else:
                put((NEXT, host_clock(), loop, number))
            if deferred.waiting:
                deferred.put_arrived(put)
            try:
                item = next(items)
            except StopIteration:
                return
            put((None, host_clock()))
            yield item
    finally:
        put((QUIT, host_clock(), loop))
        if device.watching:
            device.loop_left(loop)


@traced_as(record_nothing)
def log(values: Optional[Mapping[str, Any]] = None, /, **metrics: Any) -> None:
    """Record metrics of the open step, or of the run if no step is open.

    Args:
        values: metrics whose names are not valid as keyword arguments: ``th.log({"loss/total": 0.5})``.
        metrics: numbers, or tensors of one element. A tensor on a GPU is copied without waiting and read later, at
            most ten times a second: of faster steps not every value is read, and the last ones may be missed.
            NaN and infinities are kept.
    """
    if values is not None:
        metrics = _merged(values, metrics)
    for value in metrics.values():
        if type(value) not in NUMBER_TYPES:
            metrics = deferred.settle_metrics(metrics)
            if not metrics:
                return
            break
    try:
        here.put((LOG, metrics))
    except AttributeError:
        open_lane()((LOG, metrics))


def _merged(values: Any, metrics: Dict[str, Any]) -> Dict[str, Any]:
    try:
        return {**{_as_text(name): value for name, value in dict(values).items()}, **metrics}
    except Exception as error:  # an object that is no mapping may raise anything
        pass_on(error)
        _note_once(f"log() takes names with numbers, not a {type(values).__name__}")
        return metrics


@traced_as(record_nothing)
def count(tokens: Optional[int] = None, padded_tokens: Optional[int] = None, samples: Optional[int] = None) -> None:
    """Add to the work of the open step; the rates (tokens/s, samples/s) come from these.

    Args:
        tokens: tokens without padding: a number, or a tensor of one element in host memory. A tensor on a GPU is
            left out, since reading it would wait: count on the batch before it is moved.
        padded_tokens: tokens as computed, padding included.
        samples: sequences, images, episodes...
    """
    if type(tokens) not in AMOUNT_TYPES or type(samples) not in AMOUNT_TYPES or type(padded_tokens) not in AMOUNT_TYPES:
        tokens, padded_tokens, samples = map(_host_amount, (tokens, padded_tokens, samples))
    try:
        here.put((COUNT, tokens, padded_tokens, samples))
    except AttributeError:
        open_lane()((COUNT, tokens, padded_tokens, samples))


def _host_amount(value: Any) -> Any:
    amount = deferred.host_value(value)
    if amount is None and value is not None:
        _note_once("count() was given a tensor that is not in host memory, or not one number: it is left out")
    return amount


@traced_as(record_nothing)
def skip(reason: str) -> None:
    """Mark the open step as skipped. Skipped steps are counted by reason and kept out of the baselines."""
    started_put()((SKIP, reason))


@traced_as(record_nothing)
def note(text: str) -> None:
    """Record a line of text that viewers show."""
    started_put()((NOTE, host_clock(), text))


_noted: Set[str] = set()


def _note_once(text: str) -> None:
    if text not in _noted and len(_noted) < 100:
        _noted.add(text)
        note(text)


@traced_as(record_nothing)
def init(
    name: Optional[str] = None,
    total_steps: Optional[int] = None,
    config: Optional[Dict[str, Any]] = None,
    start_step: Optional[int] = None,
) -> None:
    """Record the name and facts of the run. Optional; may be called again when more is known.

    Args:
        name: shown to users; `trainmon attach NAME` finds it.
        total_steps: how many steps the whole run takes; gives progress and time left.
        config: settings, e.g. ``vars(args)``. Values under names that look like secrets are masked.
        start_step: steps done before this process began, for a resumed run.
    """
    put = started_put()
    known = {"name": name, "total_steps": total_steps, "config": config, "start_step": start_step}
    put((FACTS, {key: value for key, value in known.items() if value is not None}))

"""The public calls. Each one appends a small tuple to its thread's deque, and that is all it does.

A background thread (`outbox`) makes events of the tuples (`assembler`). The calls are written for few bytecodes
and few objects, because a training step leaves the caches cold and everything costs three times its usual price.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, Iterator, Mapping, Optional, Set, TypeVar

from trainhooks import deferred
from trainhooks.clocks import host_clock
from trainhooks.deferred import COUNTED, PLAIN
from trainhooks.entries import CANCEL, COUNT, END, FACTS, LOG, NEXT, NOTE, QUIT, SKIP, SPAN, STEP, Loop
from trainhooks.session import device, here, open_lane, own_lane, started, steps_told

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class _Timed:
    """What phases and spans share: leaving, and serving as a decorator."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        raise NotImplementedError

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        try:
            here.put((None, host_clock()))
        except AttributeError:  # forked inside it: it was the parent's
            pass

    def __call__(self, function: F) -> F:
        from trainhooks.decorated import decorated  # by those who need it: the import stays quick

        return decorated(self, function)  # type: ignore[return-value]


class Phase(_Timed):
    """A named part of a step, as a context manager or a decorator. One object serves all its uses, in any thread."""

    __slots__ = ()

    def __enter__(self) -> None:
        try:
            here.put((self._name, host_clock()))
        except AttributeError:
            open_lane()((self._name, host_clock()))


_phases: Dict[str, Phase] = {}


def phase(name: str) -> Phase:
    """Time a part of the step: ``with th.phase("generation"): ...`` or ``@th.phase("reward")``.

    Phases nest, and time belongs to the innermost. Outside a step a phase is recorded as a span.

    Args:
        name: one of the field's own names where one fits (generation, log_probs, reward, execution, training...).
    """
    try:
        return _phases[name]
    except (KeyError, TypeError):  # new, or a name that cannot be one
        return _new_phase(_text(name))


def _new_phase(name: str) -> Phase:
    found = Phase(name)
    if len(_phases) < 2000:  # names made by the thousand (f"phase {i}") must not fill the memory
        _phases[name] = found
    return found


def _text(name: Any) -> str:
    try:
        return str(name)
    except Exception:  # a foreign __str__ may raise anything
        return f"<{type(name).__name__}>"


class Span(_Timed):
    """A stretch with a name: loading, a checkpoint, an evaluation."""

    __slots__ = ()

    def __enter__(self) -> None:
        try:
            here.put((SPAN, host_clock(), self._name))
        except AttributeError:
            open_lane()((SPAN, host_clock(), self._name))


def span(name: str) -> Span:
    """Time what lies outside the steps or is rare: ``with th.span("checkpoint"): ...``; also a decorator.

    Shown while it lasts. Inside a step its time is also a phase of that step, of the same name.
    """
    return Span(_text(name))


class _Step:
    __slots__ = ("_loop",)

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def __enter__(self) -> None:
        put = steps_told()
        if device.watching:
            put = device.begins(here.lane, self._loop)
        put((STEP, host_clock(), self._loop))
        if deferred.waiting:
            deferred.poll(put)

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        try:
            # A step that an exception ended did not do its work: it is not counted.
            here.put((END if kind is None else CANCEL, host_clock(), self._loop))
        except AttributeError:  # forked inside the step
            pass
        if device.watching:
            device.left(self._loop)


def step(*, role: Optional[str] = None, stage: Optional[str] = None, epoch: Optional[float] = None) -> _Step:
    """One step of a loop that has no iterable: ``with th.step(role="generator", stage="3"): ...``

    Args:
        role: who trains in this step, where several take turns; each role has a baseline of its own.
        stage: the stage of the training; likewise.
        epoch: shown, nothing more.
    """
    return _Step(Loop(role, stage, epoch))


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
        total: how many steps the whole run takes, where it is known; as `init(total_steps=...)`.
        role, stage, epoch: as in `step`.

    Returns:
        An iterator over the items. The step ends when the next item is asked for, or the loop is left.
    """
    if total is not None:
        started()((FACTS, {"total_steps": total}))
    return _steps(iterable, Loop(role, stage, epoch))


def _steps(iterable: Iterable[T], loop: Loop) -> Iterator[T]:
    put = steps_told()
    lane = own_lane()
    items = iter(iterable)
    number = 0
    try:
        while True:
            number += 1
            if device.watching:
                device.begins(lane, loop)((NEXT, host_clock(), loop, number))
                put = lane.put  # that step may be timed, and the one before may have been
            else:
                put((NEXT, host_clock(), loop, number))
            if deferred.waiting:
                deferred.poll(put)
            try:
                item = next(items)
            except StopIteration:
                return
            put((None, host_clock()))
            yield item
    finally:
        put((QUIT, host_clock(), loop))
        if device.watching:
            device.left(loop)


def log(values: Optional[Mapping[str, Any]] = None, /, **metrics: Any) -> None:
    """Record numbers: of the open step, or of the run where no step is open.

    Args:
        values: metrics whose names are no keywords: ``th.log({"loss/total": 0.5})``.
        metrics: numbers, or tensors of one element. A tensor on a GPU is copied without waiting and read later, ten
            times a second at most: of quicker steps not each value is read, and the last ones may be missed.
            NaN and infinities are kept: they are news.
    """
    if values is not None:
        metrics = _joined(values, metrics)
    for value in metrics.values():
        if type(value) not in PLAIN:
            metrics = deferred.settled(metrics)
            if not metrics:
                return
            break
    try:
        here.put((LOG, metrics))
    except AttributeError:
        open_lane()((LOG, metrics))


def _joined(values: Any, metrics: Dict[str, Any]) -> Dict[str, Any]:
    try:
        return {**{_text(name): value for name, value in dict(values).items()}, **metrics}
    except Exception:  # what is no mapping can refuse in many ways, and must not stop a training
        _note_once(f"log() takes names with numbers, not a {type(values).__name__}")
        return metrics


def count(tokens: Optional[int] = None, padded_tokens: Optional[int] = None, samples: Optional[int] = None) -> None:
    """Add to the work of the open step; the rates (tokens/s, samples/s) come from these.

    Args:
        tokens: tokens that carry meaning: a number, or a tensor of one element in host memory. One on a GPU is not
            waited for: count on the batch before it goes there.
        padded_tokens: tokens as computed, padding included.
        samples: sequences, images, episodes...
    """
    if type(tokens) not in COUNTED or type(samples) not in COUNTED or type(padded_tokens) not in COUNTED:
        tokens, padded_tokens, samples = map(_at_hand, (tokens, padded_tokens, samples))
    try:
        here.put((COUNT, tokens, padded_tokens, samples))
    except AttributeError:
        open_lane()((COUNT, tokens, padded_tokens, samples))


def _at_hand(value: Any) -> Any:
    found = deferred.at_hand(value)
    if found is None and value is not None:
        _note_once("count() was given a tensor that is not in host memory, or not one number: it is left out")
    return found


def skip(reason: str) -> None:
    """Say that the open step does no work, and why. It is counted by its reason, and kept out of the baselines."""
    started()((SKIP, reason))


def note(text: str) -> None:
    """Leave a line for the people who watch."""
    started()((NOTE, host_clock(), text))


_noted: Set[str] = set()


def _note_once(text: str) -> None:
    if text not in _noted and len(_noted) < 100:
        _noted.add(text)
        note(text)


def init(
    name: Optional[str] = None,
    total_steps: Optional[int] = None,
    config: Optional[Dict[str, Any]] = None,
    start_step: Optional[int] = None,
) -> None:
    """Name the run and say what is known of it. Optional, and may be called again when more is known.

    Args:
        name: shown to people; `trainmon attach NAME` finds it.
        total_steps: how many steps the whole run takes; gives progress and time left.
        config: settings, e.g. ``vars(args)``. Values under names that look like secrets are masked.
        start_step: steps done before this process began, for a resumed run.
    """
    put = started()
    known = {"name": name, "total_steps": total_steps, "config": config, "start_step": start_step}
    put((FACTS, {key: value for key, value in known.items() if value is not None}))

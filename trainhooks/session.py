"""The public calls. Each one appends a small tuple to its thread's deque, and that is all it does.

A background thread (`outbox`) makes events of the tuples (`assembler`). The calls are written for few bytecodes
and few objects, because a training step leaves the caches cold and everything costs three times its usual price.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from types import ModuleType
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Set, Tuple, TypeVar

from trainhooks import deferred
from trainhooks.clocks import host_clock
from trainhooks.deferred import COUNTED, PLAIN
from trainhooks.entries import AUTOMATIC, CANCEL, COUNT, END, FACTS, LOG, NEXT, NOTE, QUIT, SKIP, SPAN, STEP, Lane, Loop

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

EXIT_FLUSH = 1.0  # seconds that the end of the program may wait for the last lines
EXIT_OPEN = 5.0  # and for the first ones: a short program on a busy machine ends before its journal has been opened
DEBUG_VARIABLE = "TRAINMON_DEBUG"  # set, it lets the background thread's own errors be seen


Put = Callable[[Tuple[Any, ...]], None]


class _Here(threading.local):
    """This thread's lane. `put` is missing until the thread's first public call, `quiet_put` until one by `auto`."""

    lane: Lane
    put: Put
    quiet_put: Put


class _Stop:
    """As threading.Event for the one who waits, at a tenth of the price: that is done twenty times a second."""

    def __init__(self) -> None:
        self._held = threading.Lock()
        self._held.acquire()

    def set(self) -> None:
        try:
            self._held.release()
        except RuntimeError:  # it is set, and not yet seen
            pass

    def wait(self, seconds: float) -> bool:
        """Whether it was set; then it will not be again."""
        return self._held.acquire(timeout=seconds)


class Session:
    """This process's lanes, and whether its background thread has been started."""

    def __init__(self, forked: bool = False) -> None:
        self.lanes: List[Lane] = []
        self.started = False
        self.recording = False  # the background thread has opened its journal
        self.explicit = False  # the program tells its steps itself; what `auto` makes out is not wanted
        self.forked = forked
        self.pid = os.getpid()
        self.stop = _Stop()
        self.error: Optional[BaseException] = None  # what ended the program, once it ends
        self._lock = threading.Lock()

    def open_lane(self) -> Put:
        _here.put = put = self.quiet_lane()
        # A data loader's worker is no training: it stays silent unless it steps or calls init.
        if not self.forked and not _spawned_worker():
            self.start()
        return put

    def quiet_lane(self) -> Put:
        """This thread's lane, without starting anything: what it takes is kept until the process announces itself."""
        try:
            return _here.quiet_put
        except AttributeError:
            return self.new_lane().put

    def new_lane(self) -> Lane:
        _here.lane = lane = Lane()
        if gpu_clock is not None and not self.forked:
            gpu_clock.watch(lane)
        self.lanes.append(lane)
        _here.quiet_put = lane.put
        return lane

    def start(self) -> None:
        """Start the background thread, once. Never raises: a training without trainmon beats no training."""
        if self.started:
            return
        with self._lock:
            if self.started:
                return
            self.started = True
            try:
                thread = threading.Thread(target=_record, args=(self,), name="trainhooks", daemon=True)
                thread.start()
            except RuntimeError:  # no thread can be had (limits, the interpreter's end): then nothing is recorded
                return
            atexit.register(self._at_exit, thread)
            if _spawned_worker():  # a training started by multiprocessing: its end passes atexit by
                sys.modules["multiprocessing.util"].Finalize(None, self._at_exit, (thread,), exitpriority=-100)

    def _at_exit(self, thread: threading.Thread) -> None:
        if os.getpid() != self.pid:
            return
        if deferred.waiting:
            deferred.poll(_started())
        if gpu_clock is not None:
            gpu_clock.finish()
        error = sys.exc_info()[1] or getattr(sys, "last_value", None)
        if self.error is None and not (isinstance(error, SystemExit) and not error.code):
            self.error = error
        self.stop.set()
        thread.join(EXIT_FLUSH)
        if not self.recording:
            thread.join(EXIT_OPEN)


def _record(session: Session) -> None:
    """The background thread. It imports what it needs by itself, so that `import trainhooks` stays quick."""
    try:
        with _importing:
            from trainhooks.outbox import Outbox

            outbox = Outbox(session.lanes, session.stop.wait, lambda: session.error)
        outbox.open()
        session.recording = True
        outbox.run()
    except Exception:  # whatever goes wrong here is trainmon's own trouble; the training must not hear of it
        if os.environ.get(DEBUG_VARIABLE):
            raise


_here = _Here()
_session = Session()

# How long the GPU takes over each phase: only where it was asked for. Decided once, so that it costs nothing otherwise.
gpu_clock: Optional[ModuleType] = None
if os.environ.get("TRAINMON_GPU_CLOCK", "0") not in ("", "0"):
    from trainhooks import gpu_clock

# A fork waits until the background thread has imported what it needs, once in a program's life and some 50 ms at most.
# In its child a module that was being imported would stay locked for ever, and whoever imports it would hang.
_importing = threading.RLock()
IMPORT_WAIT = 2.0  # seconds; a file system that hangs must not hold the training


def _before_fork() -> None:
    _importing.acquire(timeout=IMPORT_WAIT)


def _after_fork_in_parent() -> None:
    try:
        _importing.release()
    except RuntimeError:  # it was not to be had in time
        pass


def _after_fork() -> None:
    global _here, _importing, _session
    _importing = threading.RLock()
    _here = _Here()
    _session = Session(forked=True)
    deferred.forget()
    if gpu_clock is not None:
        gpu_clock.forget()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork)


def _spawned_worker() -> bool:
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None


class _Timed:
    """What phases and spans share: leaving, and serving as a decorator."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        raise NotImplementedError

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        try:
            _here.put((None, host_clock()))
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
            _here.put((self._name, host_clock()))
        except AttributeError:
            _session.open_lane()((self._name, host_clock()))


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
            _here.put((SPAN, host_clock(), self._name))
        except AttributeError:
            _session.open_lane()((SPAN, host_clock(), self._name))


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
        put = _steps_told()
        put((STEP, host_clock(), self._loop))
        if deferred.waiting:
            deferred.poll(put)

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        try:
            # A step that an exception ended did not do its work: it is not counted.
            _here.put((END if kind is None else CANCEL, host_clock(), self._loop))
        except AttributeError:  # forked inside the step
            pass


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
        _started()((FACTS, {"total_steps": total}))
    return _steps(iterable, Loop(role, stage, epoch))


def _steps(iterable: Iterable[T], loop: Loop) -> Iterator[T]:
    put = _steps_told()
    items = iter(iterable)
    number = 0
    try:
        while True:
            number += 1
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


def _started() -> Put:
    """This thread's `put`, with the background thread running."""
    try:
        put = _here.put
    except AttributeError:
        put = _session.open_lane()
    if not _session.started:
        _session.start()
    return put


def _steps_told() -> Put:
    """As `_started`; and from here on the program tells its steps itself."""
    put = _started()
    if not _session.explicit:
        _session.explicit = True
        put((CANCEL, host_clock(), AUTOMATIC))
        for lane in list(_session.lanes):
            if lane.live is not None:
                lane.live.stop()
        _here.put = _here.quiet_put = put = _here.lane.put
    return put


def quiet_put() -> Put:
    """For `auto`: this thread's `put`. What goes through it is kept, unsent, until `announce`."""
    return _session.quiet_lane()


def own_lane() -> Lane:
    """For `auto`: this thread's lane itself."""
    try:
        return _here.lane
    except AttributeError:
        return _session.new_lane()


def put_through(tell: Put) -> None:
    """For `auto`: what this thread puts from here on goes through `tell`, in the public calls, too."""
    _here.quiet_put = tell
    if hasattr(_here, "put"):
        _here.put = tell


def announce() -> None:
    """For `auto`: this process is a training. Start the background thread."""
    if not _session.started:
        _session.start()


def explicit() -> bool:
    """For `auto`: whether the program tells its steps itself."""
    return _session.explicit


def log(values: Optional[Mapping[str, Any]] = None, /, **metrics: Any) -> None:
    """Record numbers: of the open step, or of the run where no step is open.

    Args:
        values: metrics whose names are no keywords: ``th.log({"loss/total": 0.5})``.
        metrics: numbers, or tensors of one element. A tensor on a GPU is copied without waiting and read later.
            NaN and infinities are kept: they are news.
    """
    if values is not None:
        metrics = _joined(values, metrics)
    for value in metrics.values():
        if type(value) not in PLAIN:
            metrics = deferred.settled(metrics)
            break
    try:
        _here.put((LOG, metrics))
    except AttributeError:
        _session.open_lane()((LOG, metrics))


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
        _here.put((COUNT, tokens, padded_tokens, samples))
    except AttributeError:
        _session.open_lane()((COUNT, tokens, padded_tokens, samples))


def _at_hand(value: Any) -> Any:
    found = deferred.at_hand(value)
    if found is None and value is not None:
        _note_once("count() was given a tensor that is not in host memory, or not one number: it is left out")
    return found


def skip(reason: str) -> None:
    """Say that the open step does no work, and why. It is counted by its reason, and kept out of the baselines."""
    _started()((SKIP, reason))


def note(text: str) -> None:
    """Leave a line for the people who watch."""
    _started()((NOTE, host_clock(), text))


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
    put = _started()
    known = {"name": name, "total_steps": total_steps, "config": config, "start_step": start_step}
    put((FACTS, {key: value for key, value in known.items() if value is not None}))

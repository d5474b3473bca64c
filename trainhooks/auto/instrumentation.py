"""The tools of framework adapters: timed phases and spans, wrappers for functions, and the state they share."""

from __future__ import annotations

import functools
import os
import sys
import threading
from types import ModuleType
from typing import Any, Callable, Dict, List, Optional, Set, TypeVar

from trainhooks import session
from trainhooks.auto import unseen
from trainhooks.device import deferred
from trainhooks.lane_entries import FACTS, LOG, NO_PHASE, SPAN, host_clock
from trainhooks.lane_entries import FORWARD as FORWARD_PHASE
from trainhooks.program_errors import DEBUG_VARIABLE, pass_on
from trainhooks.protocol.limits import MAX_METRICS

T = TypeVar("T")

EVAL, FORWARD = "eval", "forward"
MARK = "_trainmon"  # the attribute of our wrappers, so that nothing is wrapped twice


class FrameworkState:
    """What framework adapters report to the step tracker.

    Attributes:
        tracker: the `StepTracker` of this process; None until torch has been imported.
        plans: the framework has told of its training, and knows how long it is.
        logs_loss: the framework logs the loss itself, so the loss that backward starts from is not logged.
        counts_batches: the adapter says when a fetched batch is used (`batch_used`); it is counted then.
        open_evaluations: evaluations that a framework reported and that are open now in the tracker's thread: fetches
            in them make no step.
        open_phases: phases that a framework reported and that are open there (generation, log_probs): model calls in
            them are part of the phase.
        prefetched_batches: how many batches a framework may fetch before it uses the first of them.
        metrics: names of those that it reported, which a tracker then gets from it under another name.
    """

    __slots__ = (
        "counts_batches", "logs_loss", "metrics", "open_evaluations", "open_phases", "plans", "prefetched_batches",
        "tracker",
    )  # fmt: skip

    def __init__(self) -> None:
        self.tracker: Optional[Any] = None
        self.plans = False
        self.logs_loss = False
        self.counts_batches = False
        self.open_evaluations = 0
        self.open_phases = 0
        self.prefetched_batches = 0
        self.metrics: Set[str] = set()


framework = FrameworkState()


class _ThreadState(threading.local):
    def __init__(self) -> None:
        self.names: List[str] = []


_thread_state = _ThreadState()


def is_open(name: str) -> bool:
    """Return whether this thread is inside a section of that name."""
    return name in _thread_state.names


class Section:
    """A phase of a step, or a span, as a context manager.

    It is not recorded if the program reports its steps itself, inside a section of the same name, or inside an
    evaluation, which is recorded as a whole. A forward pass is not recorded either: the torch adapter does that.
    """

    __slots__ = ("_is_counted", "_is_span", "_name", "_put")

    def __init__(self, name: str, is_span: bool = False) -> None:
        self._name = name
        self._is_span = is_span
        self._put: Optional[session.Put] = None
        self._is_counted = False

    def __enter__(self) -> None:
        name, names = self._name, _thread_state.names
        if not (session.has_explicit_steps() or name == FORWARD or name in names or EVAL in names):
            self._put = put = session.quiet_put()
            put((SPAN, host_clock(), name) if self._is_span else (name, host_clock()))
        names.append(name)
        # After the entry: until then the tracker may put earlier entries. Another thread's work is no step's part.
        tracker = framework.tracker
        self._is_counted = tracker is None or tracker.thread == threading.get_ident()
        self._count_open(1)

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        if _thread_state.names:
            _thread_state.names.pop()
        self._count_open(-1)
        if self._put is not None:
            self._put((None, host_clock()))
        if value is not None:
            unseen.drop_own_frames(value)

    def _count_open(self, change: int) -> None:
        if not self._is_counted:
            return
        if self._name == EVAL:
            framework.open_evaluations += change
        elif not self._is_span and self._name != FORWARD:
            framework.open_phases += change


def phase(name: str) -> Section:
    """Return a context manager that times a phase of the step."""
    return Section(name)


def span(name: str) -> Section:
    """Return a context manager that times work outside the steps: loading, a checkpoint, an evaluation."""
    return Section(name, is_span=True)


def put_facts(**facts: Any) -> None:
    """Record facts of the run: settings and sizes, never values of the training."""
    session.quiet_put()((FACTS, {"facts": facts}))


def put_metrics(metrics: Dict[str, Any]) -> Dict[str, Any]:
    """Record metrics by their names, and return those that can be read. No tensor is waited for."""
    values = deferred.settle_metrics(dict(metrics))
    if values:
        if len(framework.metrics) < MAX_METRICS:
            framework.metrics.update(values)
        session.quiet_put()((LOG, values))
    return values


def training_begins(**known: Any) -> None:
    """Record that this process trains, with `total_steps`, `start_step`, `config` and `facts` (None: unknown).

    Without this call a process stays silent until its first steps show that it trains.
    """
    framework.plans = True
    session.quiet_put()((FACTS, {name: value for name, value in known.items() if value is not None}))
    session.announce()


def forward_begins() -> None:
    """Record a forward pass if the model's calls may not be observed, as in an optimizer's closure.

    If they are observed (known from the second step on), forward begins with them and is not counted twice.
    """
    if session.has_explicit_steps():
        return
    tracker = own_tracker()
    is_seen = tracker is not None and tracker.sees_model and tracker.last
    session.quiet_put()((NO_PHASE if is_seen else FORWARD_PHASE, host_clock()))


def step_begins() -> None:
    """Begin a step, if none is open, as a framework begins to prepare it before it fetches a batch."""
    tracker = own_tracker()
    if tracker is not None and tracker.last is not None and not framework.open_evaluations:
        tracker.prepares(host_clock())


def batch_used() -> None:
    """Count the oldest fetched batch now, as a framework that prefetches begins to use it."""
    tracker = own_tracker()
    if tracker is not None:
        tracker.batch_used()


def training_ended() -> None:
    """Drop fetched batches that were not used, and reset the framework's flags for loss and batches."""
    tracker = own_tracker()
    if tracker is not None:
        tracker.pending_batches.clear()
    framework.plans = framework.logs_loss = framework.counts_batches = False


def own_tracker() -> Any:
    """Return the step tracker, off its fast path, if it records the calling thread; else None."""
    tracker = framework.tracker
    if tracker is None or tracker.silent or tracker.thread != threading.get_ident():
        return None
    tracker.fast_path.leave()
    return tracker


def call_safely(function: Callable[..., Optional[T]], *args: Any) -> Optional[T]:
    """Return `function(*args)`, or None if it raises, as an object of a framework may."""
    try:
        return function(*args)
    except Exception as error:  # see above
        failed(error)
        return None


def failed(error: BaseException) -> None:
    """Take an error of our own: only the program's, or any while we look for mistakes, reaches the program."""
    pass_on(error)
    if os.environ.get(DEBUG_VARIABLE):
        raise error


def wrap(owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> bool:
    """Replace a function of a class or module by `make(original)`, once.

    Returns:
        Whether the replacement is in place; False if this version of the framework has no such function.
    """
    found = vars(owner).get(name)
    kind = type(found) if isinstance(found, (classmethod, staticmethod)) else None
    original = found.__func__ if isinstance(found, (classmethod, staticmethod)) else found
    if not callable(original):
        return False
    if not hasattr(original, MARK):
        wrapper: Any = make(original)
        wrapper.__code__ = unseen.hide_code(wrapper.__code__)
        functools.update_wrapper(wrapper, original)
        setattr(wrapper, MARK, True)
        _set_everywhere(owner, name, original, wrapper if kind is None else kind(wrapper))
    return True


def replace_function(owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
    """Replace an existing function by `wrapper`, which takes its name and docstring."""
    original = getattr(owner, name)
    _set_everywhere(owner, name, original, functools.wraps(original)(wrapper))


def _set_everywhere(owner: Any, name: str, original: Any, wrapper: Any) -> None:
    """Put `wrapper` in place of `original`, in a module's case wherever other modules have imported it.

    A function is pickled by its name, in the module where it is defined: `torch.save` is that of `torch.serialization`.
    What is found there must be the same object, whichever of the modules the program has it from.
    """
    setattr(owner, name, wrapper)
    if isinstance(owner, ModuleType):
        for module in list(sys.modules.values()):
            if type(module) is ModuleType and vars(module).get(name) is original:
                setattr(module, name, wrapper)


def time_functions(owner: Any, names: Dict[str, str], is_span: bool = True) -> None:
    """Time functions of a class or module as sections; `names` maps function names to section names."""
    for name, label in names.items():
        wrap(owner, name, functools.partial(_time_function, label, is_span))


def _time_function(label: str, is_span: bool, original: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with Section(label, is_span):
            return original(*args, **kwargs)

    return wrapper

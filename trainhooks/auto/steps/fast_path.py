"""The fast path: one fetch, one model call, one backward pass, one step of the only optimizer, in this order.

Most steps of most trainings are of this kind. After one of them, the next is recorded here, by a stage and a time at
each boundary, and put as a single entry at its end; the step tracker is not called. As soon as anything else happens,
the calls recorded so far are replayed to the tracker, and the step continues there. So only the tracker defines what a
step is; this path only detects when it does not apply.

The wrappers made here are called in place of torch's functions. They check and change the state inline, not by methods:
in a step of a millisecond every further call is measurable.
"""

from __future__ import annotations

import sys
import weakref
from threading import get_ident
from typing import Any, Callable, Optional, Tuple

from trainhooks import session
from trainhooks.auto import unseen
from trainhooks.auto.instrumentation import framework
from trainhooks.device import deferred
from trainhooks.lane_entries import SPAN, STANDARD, Lane, host_clock
from trainhooks.signal_errors import pass_on

Counts = Tuple[Optional[int], Optional[int], Optional[int]]  # tokens, padded tokens, samples
Call = Callable[..., Any]

# The stage of the open step. The order matters: a later stage has all the times of the earlier ones.
(
    OFF,  # nothing is recorded here
    FETCHING,
    FETCHED,
    IN_FORWARD,
    AFTER_FORWARD,
    IN_BACKWARD,
    AFTER_BACKWARD,
    IN_OPTIMIZER,
    AFTER_OPTIMIZER,  # a GPU may still be working: the step ends with the next event
    BETWEEN_STEPS,
) = range(10)
# Nanoseconds between two calls of the tracker's `on_step_end`, which rarely has news, and between checked steps: a part
# of the time since the first such step, within these bounds, so that short runs are checked, too.
MIN_INTERVAL, MAX_INTERVAL, INTERVAL_PART = 50_000_000, 1_000_000_000, 20

# By stage: the open phase, and the attribute with the time when it (or the step) was entered.
_OPEN: Tuple[Tuple[Optional[str], str], ...] = (
    (None, "_began"),
    ("data", "_began"),
    (None, "_fetched"),
    ("forward", "_forward_began"),
    (None, "_forward_ended"),
    ("backward", "_backward_began"),
    (None, "_backward_ended"),
    ("optimizer", "_optimizer_began"),
    (None, "_optimizer_ended"),
    (None, "_began"),
)


def _yes() -> bool:
    return True


class FastPath:
    """The open step's state on the fast path: its stage and times, in nanoseconds of the host clock.

    Only this module changes it. Others read its properties, and call `arm`, `leave` and `stop`.

    Attributes:
        model: the id of the model whose call is the forward pass; None if its calls are not observed.
        replaying: whether recorded calls are being replayed to the tracker.
    """

    __slots__ = (
        "_backward_began", "_backward_ended", "_before_backward", "_began", "_counts", "_fetched", "_first",
        "_forward_began", "_forward_ended", "_iterator", "_lane", "_last", "_loss", "_news_due", "_on_gpu",
        "_optimizer", "_optimizer_began", "_optimizer_ended", "_put", "_stage", "_thread", "_tracker",
        "model", "replaying",
    )  # fmt: skip

    def __init__(self, tracker: Any) -> None:
        self._tracker = tracker
        self.model: Optional[int] = None
        self.replaying = False

    def restart(self, lane: Lane) -> Call:
        """Reset, with the lane of the calling thread.

        Returns:
            The `put` for all other callers: it puts what was recorded here before their entries.
        """
        self._stage = OFF
        self._thread = thread = get_ident()
        self._lane = lane
        self._put = lane.entries.append  # not the lane's `put`: a step that is timed on the device leaves this path
        self._news_due = self._iterator = 0
        self._first = 0  # when a step ended here first
        self._optimizer: Optional[int] = None  # its id
        self._last: Optional[int] = None  # when the last step here ended; None: the tracker ended the last one
        self._before_backward = AFTER_FORWARD  # the stage from which a backward pass may begin
        self._on_gpu = False  # whether the optimizer's parameters are
        self._began = self._fetched = self._forward_began = self._forward_ended = 0
        self._backward_began = self._backward_ended = self._optimizer_began = self._optimizer_ended = 0
        self._counts: Optional[Counts] = None
        self._loss: Any = None  # a number, or one on its way from a GPU
        lane.live = self

        def put(entry: Tuple[Any, ...]) -> None:
            if get_ident() == thread == self._thread:
                if self._stage:
                    self.leave()
                if entry[0] == SPAN:
                    self._tracker.span_begins(entry[1])
            lane.put(entry)

        return put

    # For the tracker and the hooks

    @property
    def is_armed(self) -> bool:
        """Return whether steps are recorded here."""
        return self._stage != OFF

    @property
    def in_fetch(self) -> bool:
        """Return whether a fetch is under way here."""
        return self._stage == FETCHING

    @property
    def in_part(self) -> bool:
        """Return whether a model call or a backward pass is under way here, which other calls are part of."""
        return self._stage in (IN_FORWARD, IN_BACKWARD)

    @property
    def in_backward(self) -> bool:
        """Return whether a backward pass is under way here."""
        return self._stage == IN_BACKWARD

    def arm(self) -> None:
        """Expect a standard step next, if the step that just ended in the tracker was one."""
        tracker = self._tracker
        optimizer = tracker.optimizers.only
        if optimizer is None or tracker.fetches != 1 or tracker.backwards != 1 or tracker.forwards > 1:
            return
        if not tracker.loader_counts or tracker.calls_without_grad or tracker.skips or tracker.loss.scaled:
            return
        if tracker.pending_batches or tracker.nested or tracker.manual_update is not None:
            return
        if framework.logs_loss or framework.counts_batches or framework.open_evaluations or framework.open_phases:
            return
        if tracker.sees_model and self.model is None:
            return
        tracker.checks.pause()
        self._optimizer = optimizer
        self._on_gpu = tracker.optimizers.only_on_cpu != optimizer
        self._before_backward = AFTER_FORWARD if tracker.sees_model else FETCHED
        self._last = None
        self._forward_ended = 0  # stays so where no call is observed: forward then lasts until the backward pass
        self._stage = BETWEEN_STEPS

    def fetch_begins(self, iterator: int, t: int) -> bool:
        """Begin a step with its fetch; a previous step that waited for a GPU ends now.

        Returns:
            Whether the step is recorded here; a step that is timed on the device is not.
        """
        if self._stage == AFTER_OPTIMIZER:
            self.end_step(self._optimizer_ended, t)
            if self._stage == OFF:
                return False
        device = session.device
        if device.watching and not device.skips_step(self._lane):
            self.leave()
            return False
        if deferred.waiting:
            deferred.poll(self._put)
        self._began = t
        self._iterator = iterator
        self._stage = FETCHING
        return True

    def end_step(self, optimizer_ended: int, t: int) -> None:
        """End the step at `t`; its optimizer's step ended at `optimizer_ended`."""
        self._put(
            (
                STANDARD,
                self._began,
                self._fetched,
                self._forward_began,
                self._forward_ended or self._backward_began,
                self._backward_began,
                self._backward_ended,
                self._optimizer_began,
                optimizer_ended,
                t,
                self._loss,
                self._counts,
            )
        )
        self._last = t
        self._stage = BETWEEN_STEPS
        if t >= self._news_due:
            self._first = self._first or t
            self._news_due = t + min(MAX_INTERVAL, max(MIN_INTERVAL, (t - self._first) // INTERVAL_PART))
            if self._tracker.on_step_end is not None:
                self._tracker.on_step_end(self._put, False)
            self._tracker.checks.due()
            self.leave()

    def stop(self) -> None:
        """Drop what is recorded here. Called from any thread."""
        self._stage = OFF

    def leave(self) -> None:
        """Hand the open step over to the tracker: replay what was recorded so far."""
        stage, self._stage = self._stage, OFF
        if stage == OFF:
            return
        tracker = self._tracker
        if self._last is not None:
            tracker.last, self._last = self._last, None
        if stage == BETWEEN_STEPS:
            return
        if stage < IN_BACKWARD:
            self._loss = None  # the last step's
        grads_wanted, tracker.grads_wanted = tracker.grads_wanted, _yes  # True: else this path would not have applied
        self.replaying = True
        try:
            self._replay(stage, tracker)
        finally:
            self.replaying = False
            tracker.grads_wanted = grads_wanted

    def _replay(self, stage: int, tracker: Any) -> None:
        tracker.fetch_begins(self._iterator, self._began)
        if stage >= FETCHED:
            tracker.fetch_ends(self._iterator, self._counts, self._fetched)
        if stage >= IN_FORWARD and self._before_backward == AFTER_FORWARD:
            tracker.forward_begins(True, self._forward_began)
            tracker.leading_calls += tracker.called
            if stage >= AFTER_FORWARD:
                tracker.forward_ends(self._forward_ended)
        if stage >= IN_BACKWARD:
            tracker.backward_begins(None, self._backward_began)
            tracker.loss.value = self._loss
        if stage >= AFTER_BACKWARD:
            tracker.backward_ends(self._backward_ended)
        if stage >= IN_OPTIMIZER:
            tracker.optimizer_begins(self._optimizer, self._optimizer_began)
        if stage >= AFTER_OPTIMIZER:
            tracker.optimizer_ends(self._optimizer, None, self._optimizer_ended)

    def open(self) -> Optional[Tuple[int, Optional[str], int]]:
        """Return when the open step began, its open phase, and when that was entered, for the background thread.

        Returns:
            None if no step is open here; the phase is None between two phases.
        """
        stage = self._stage
        if stage == FETCHED == self._before_backward:  # model calls are not observed
            stage = IN_FORWARD
        phase, since = _OPEN[stage]
        if phase is None and since == "_began":
            return None
        return self._began, phase, getattr(self, since)

    # The wrappers. Each checks whether this path applies; if not, it calls one of the caller's functions.

    def loader_next(
        self, fetch: Call, counts: Call, slow_next: Call, fetch_fails: Call, inspect: Call
    ) -> Tuple[Call, Call]:
        """Wrap the iterators' `__next__`.

        Args:
            fetch: the original.
            counts: returns the `Counts` of a batch, or None.
            slow_next: called with the iterator if this path does not apply.
            fetch_fails: called with the iterator if `fetch` raised.
            inspect: called with batches that were not fetched on this path.

        Returns:
            The wrapper, and the function to call with iterator and batch after a fetch outside the wrapper.
        """
        tracker = self._tracker
        grads_wanted = tracker.grads_wanted

        def __next__(iterator: Any) -> Any:
            is_slow = self._stage < AFTER_OPTIMIZER or get_ident() != self._thread or not grads_wanted()
            if not is_slow:
                if self._stage == BETWEEN_STEPS:  # on the CPU
                    self._began = host_clock()
                    self._iterator = id(iterator)
                    self._stage = FETCHING
                else:
                    is_slow = not self.fetch_begins(id(iterator), host_clock())
            try:
                if is_slow:
                    return slow_next(iterator)
                batch = fetch(iterator)
            except BaseException as error:
                if not is_slow:
                    fetch_fails(iterator)
                unseen.in_traceback(error)
                raise
            fetched(iterator, batch)
            return batch

        def fetched(iterator: Any, batch: Any) -> None:
            try:
                if self._stage != FETCHING:
                    tracker.fetch_ends(id(iterator), counts(batch), host_clock())
                    inspect(batch)  # the first batches come this way
                    return
                self._fetched = self._forward_began = host_clock()  # forward begins here if no model is observed
                self._counts = found = counts(batch)
                self._stage = FETCHED
                if found is None:  # the tracker counts the model's inputs instead
                    self.leave()
            except Exception:  # a batch may be of any class, with any faults
                tracker.fail()

        return __next__, fetched

    def model_call(self, module: Any, calls: Any, is_compiling: Call, begins: Call) -> Call:
        """Return the function to call in place of a model's `_call_impl`.

        It reads the called module from torch's frame: copies of a module's attributes (DataParallel's replicas, a copy
        of its `__dict__`) hold this function as well.

        Args:
            module: the model.
            calls: an object whose `calls` counts them.
            is_compiling: whether dynamo traces the program; then there are no frames.
            begins: called with the module and its arguments if this path does not apply; returns the function to call
                if the tracker records the call, else None.
        """
        tracker = self._tracker
        grads_wanted = tracker.grads_wanted
        key = id(module)
        reference = weakref.ref(module)  # weak: its lifetime must not change
        frame = sys._getframe

        def called(*args: Any, **kwargs: Any) -> Any:
            if is_compiling():
                return reference()._call_impl(*args, **kwargs)  # type: ignore[union-attr]
            module = frame(1).f_locals["self"]
            if (
                self._stage == FETCHED
                and id(module) == self.model == key
                and module.training
                and grads_wanted()
                and get_ident() == self._thread
            ):
                self._forward_began = host_clock()
                self._stage = IN_FORWARD
                calls.calls += 1
                try:
                    result = module._call_impl(*args, **kwargs)
                except BaseException as error:
                    unseen.in_traceback(error)
                    raise
                if self._stage == IN_FORWARD:
                    self._forward_ended = host_clock()
                    self._stage = AFTER_FORWARD
                return result
            try:
                call = begins(module, args, kwargs)
            except Exception:  # it looks at whatever the program calls its model on
                tracker.fail()
                call = None
            try:
                result = (call or module._call_impl)(*args, **kwargs)
            except BaseException as error:
                unseen.in_traceback(error)
                raise
            if call is not None:
                tracker.forward_ends(host_clock())
            return result

        return called

    def backward(self, run: Call, tensor: type, is_traced: Call, begins: Call) -> Call:
        """Wrap `torch.autograd.backward`.

        Args:
            run: the original.
            tensor: torch.Tensor.
            is_traced: whether dynamo traces the program.
            begins: called with the loss and all arguments if this path does not apply; returns whether the tracker
                records the pass.
        """
        tracker = self._tracker

        def backward(*args: Any, **kwargs: Any) -> Any:
            if is_traced():
                return run(*args, **kwargs)
            loss: Any = args[0] if args else None
            if self._stage == self._before_backward and get_ident() == self._thread and type(loss) is tensor:
                try:
                    self._loss = deferred.loss_of(loss)
                except Exception as error:  # not one number, or a tensor of a foreign class
                    pass_on(error)
                    self._loss = None
                self._backward_began = host_clock()
                self._stage = IN_BACKWARD
            elif not begins(loss, args, kwargs):
                try:
                    return run(*args, **kwargs)
                except BaseException as error:
                    unseen.in_traceback(error)
                    raise
            try:
                return run(*args, **kwargs)
            except BaseException as error:
                unseen.in_traceback(error)
                raise
            finally:
                if self._stage == IN_BACKWARD:
                    self._backward_ended = host_clock()
                    self._stage = AFTER_BACKWARD
                else:
                    tracker.backward_ends(host_clock())

        return backward

    def optimizer_hooks(self, is_traced: Call, begins: Call, ends: Call) -> Tuple[Call, Call]:
        """Return the hooks for before and after an optimizer's step.

        Args:
            is_traced: whether dynamo traces the program.
            begins, ends: called with the optimizer if this path does not apply.
        """

        def before(optimizer: Any, args: Any, kwargs: Any) -> None:
            if is_traced():
                return
            if self._stage == AFTER_BACKWARD and id(optimizer) == self._optimizer:
                self._optimizer_began = host_clock()
                self._stage = IN_OPTIMIZER
            else:
                begins(optimizer)

        def after(optimizer: Any, args: Any, kwargs: Any) -> None:
            if is_traced():
                return
            if self._stage == IN_OPTIMIZER and id(optimizer) == self._optimizer:
                t = host_clock()
                if self._on_gpu:
                    self._optimizer_ended = t
                    self._stage = AFTER_OPTIMIZER
                else:
                    self.end_step(t, t)
            else:
                ends(optimizer)

        return before, after

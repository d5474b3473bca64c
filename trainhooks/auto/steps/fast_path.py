"""The fast path: a step whose calls come in the same order as those of the step before.

The step tracker notes the order in which a step fetches, calls its models, computes gradients and updates. Of the next
steps only the time of each call is recorded here, and the whole step is put at its end; the tracker is not called. As
soon as anything else happens, the calls recorded so far are replayed to the tracker, and the step continues there. So
only the tracker defines what a step is; this path only detects when it does not apply.

The wrappers made here are called in place of torch's functions. They check and change the state inline, not by methods:
in a step of a millisecond every further call is measurable.
"""

from __future__ import annotations

import sys
import weakref
from threading import get_ident
from typing import Any, Callable, List, Optional, Tuple

from trainhooks import session
from trainhooks.auto import unseen
from trainhooks.auto.instrumentation import call_safely, framework
from trainhooks.auto.steps.step_order import (
    BACKWARD,
    BACKWARD_ENDED,
    CALLED,
    FETCH,
    FETCHED,
    ODD,
    OFF,
    OPTIMIZER,
    OPTIMIZER_ENDED,
    SCALER,
    SCALER_ENDED,
    Counts,
    StepOrder,
    is_served,
)
from trainhooks.device import deferred
from trainhooks.lane_entries import SPAN, Lane, host_clock
from trainhooks.program_errors import pass_on

Call = Callable[..., Any]


def _true() -> bool:
    return True


class FastPath:
    """The open step's state on the fast path: the times of its calls so far, in nanoseconds of the host clock.

    Only this module changes it. Others read its properties, and call `arm`, `leave` and `stop`.

    Attributes:
        replaying: whether recorded calls are being replayed to the tracker.
    """

    __slots__ = (
        "_backwards", "_began", "_calls", "_counts", "_counts_inputs", "_entries", "_iterator", "_lags", "_lane",
        "_last", "_next", "_on_gpu", "_optimizer", "_order", "_scaled", "_starts", "_thread", "_times", "_tracker",
        "replaying", "steps",
    )  # fmt: skip

    def __init__(self, tracker: Any) -> None:
        self._tracker = tracker
        self.replaying = False
        self.steps = 0  # that have ended, here and in the tracker

    def restart(self, lane: Lane) -> Call:
        """Reset, with the lane of the calling thread.

        Returns:
            The `put` for all other callers: it puts what was recorded here before their entries.
        """
        self._next = OFF  # the call that is expected; OFF: nothing is recorded here
        self._thread = thread = get_ident()
        self._lane = lane
        self._entries = lane.entries  # not the lane's `put`: a step that is timed on the device leaves this path
        self._order: Optional[StepOrder] = None
        self._calls: Tuple[int, ...] = ()  # its calls, and the first one once more
        self._counts_inputs = False  # those of models are counted; else batches
        self._optimizer: Optional[int] = None  # its id
        self._on_gpu = False  # its parameters are: it may still be working, so a step ends with the next event
        self._lags = False  # the tracker's step ends so
        self._starts = False  # the next call begins a step
        self._last: Optional[int] = None  # when the last step here ended; None: the tracker ended the last one
        self._began = self._iterator = self._backwards = 0  # of the open step, as all that follows
        self._scaled = 0  # whether the optimizer's step in that of a scaler began (1), and ended (2)
        self._times: List[int] = []
        self._counts: List[Optional[Counts]] = []  # of its batches, or its inputs
        lane.live = self

        def put(entry: Tuple[Any, ...]) -> None:
            if get_ident() == thread == self._thread:
                if self._times or self._lags:
                    self.leave()
                self._tracker.order.append(ODD)
                if entry[0] == SPAN:
                    self._tracker.span_begins(entry[1])
            lane.put(entry)

        return put

    @property
    def in_fetch(self) -> bool:
        """Return whether a fetch is under way here."""
        return self._next == FETCHED

    @property
    def in_part(self) -> bool:
        """Return whether a model call or a backward pass is under way here, which other calls are part of."""
        return self._next in (CALLED, BACKWARD_ENDED)

    @property
    def in_backward(self) -> bool:
        """Return whether a backward pass is under way here."""
        return self._next == BACKWARD_ENDED

    def arm(self) -> None:
        """Expect the next step to be like the tracker's last one, which has ended, or lags on a GPU."""
        tracker = self._tracker
        optimizer = tracker.optimizers.only
        calls = tuple(tracker.order)
        if optimizer is None or not is_served(calls) or not (tracker.loader_counts or not tracker.fetches):
            return
        if tracker.calls_without_grad or tracker.skips or tracker.no_grad_streak or tracker.rollout_streak:
            return
        if tracker.pending_batches or tracker.nested or tracker.manual_update is not None or tracker.generations.looks:
            return
        if framework.logs_loss or framework.counts_batches or framework.open_evaluations or framework.open_phases:
            return
        if calls != self._calls[:-1]:
            self._order, self._calls = StepOrder(calls), (*calls, calls[0])
        self._counts_inputs = not tracker.loader_counts
        self._optimizer = optimizer
        self._on_gpu = self._lags = tracker.open
        self._last = None
        self._times, self._counts = [], []
        self._starts = True
        self._next = calls[0]

    def _begins(self, t: int) -> bool:
        """Begin a step at `t`; a previous step that waited for a GPU ends now.

        Returns:
            Whether the step is recorded here; one that is timed on the device, or checked, is not.
        """
        if self._lags:
            self._lags = False
            self._tracker.end(t)
            if self._tracker.checks.left:
                self._next = OFF
        elif self._times:
            self.end_step(t)
        if self._next == OFF:
            return False
        device = session.device
        if device.watching and not device.skips_step(self._lane):
            self.leave()
            return False
        if deferred.waiting:
            deferred.put_arrived(self._entries.append)
        # Without a fetch, a step begins where the last one ended.
        self._began = t if self._on_gpu or self._calls[0] == FETCH else self._last or self._tracker.last or t
        self._backwards = self._scaled = 0
        self._starts = False
        return True

    def end_step(self, t: int) -> None:
        """End the step, all of whose calls are made, at `t`."""
        tracker, order, times, counts = self._tracker, self._order, self._times, self._counts
        assert order is not None
        self._times, self._counts = [], []
        loss = None if tracker.loss.value is None else tracker.loss.of_step(self._backwards, order.batches, 1)
        tracker.loss.step_ends()
        self._entries.extend(order.entries(self._began, times, counts, loss, t))
        self._last = t
        self.steps += 1
        if t >= tracker.checks.due:
            if tracker.on_step_end is not None:
                tracker.on_step_end(self._entries.append, False)
            tracker.checks.arm(t)
            self.leave()

    def stop(self) -> None:
        """Record nothing more here. Called from any thread."""
        self._next = OFF

    def drop(self) -> None:
        """Drop what is recorded here of the open step."""
        self._next = OFF
        self._lags = False
        self._last = None
        self._times, self._counts = [], []

    def leave(self) -> None:
        """Hand the open step over to the tracker: replay what was recorded so far."""
        expected, self._next = self._next, OFF
        if expected == OFF:
            return
        tracker = self._tracker
        if self._last is not None:
            tracker.last, self._last = self._last, None
            tracker.rollouts.learned = True
        times, self._times = self._times, []
        if not times:
            return
        grads_wanted, tracker.grads_wanted = tracker.grads_wanted, _true  # True: else this path would not have applied
        self.replaying = True
        try:
            self._replay(times, tracker)
        finally:
            self.replaying = False
            tracker.grads_wanted = grads_wanted

    def _replay(self, times: List[int], tracker: Any) -> None:
        optimizer = self._optimizer
        counts = iter(self._counts)
        for call, t in zip(self._calls, times):
            if call == FETCH:
                tracker.fetch_begins(self._iterator, t)
            elif call == FETCHED:
                tracker.fetch_ends(self._iterator, next(counts, None), t)
            elif call == CALLED:
                tracker.forward_ends(t)
            elif call == BACKWARD:
                tracker.backward_begins(None, t)  # its loss has been taken
            elif call == BACKWARD_ENDED:
                tracker.backward_ends(t)
            elif call == OPTIMIZER:
                tracker.optimizer_begins(optimizer, t)
            elif call == SCALER:
                tracker.scaler_begins(optimizer, t)
                if self._scaled:
                    tracker.optimizer_begins(optimizer, t)
                if self._scaled > 1:
                    tracker.optimizer_ends(optimizer, None, t)
            elif call == OPTIMIZER_ENDED:
                tracker.optimizer_ends(optimizer, None, t)
            elif call == SCALER_ENDED:
                tracker.scaler_ends(optimizer, None, True, t)
            elif tracker.model_called(call, t):
                tracker.count(next(counts, None))

    def open(self) -> Optional[Tuple[int, Optional[str], int]]:
        """Return when the open step began, its open phase, and when that was entered, for the background thread.

        Returns:
            None if no step is open here; the phase is None between two phases.
        """
        order, began = self._order, self._began
        phase = None if self._next == OFF or order is None else order.open_phase(self._times)
        return None if phase is None else (began, *phase)

    # The wrappers. Each checks whether this path applies; if not, it calls one of the caller's functions.

    def loader_next(
        self, fetch: Call, counts: Call, slow_next: Call, fetch_fails: Call, inspect: Call
    ) -> Tuple[Call, Call]:
        """Wrap the iterators' `__next__`.

        Args:
            fetch: the original.
            counts: returns the `Counts` of an iterator's batch, or None.
            slow_next: called with the iterator if this path does not apply.
            fetch_fails: called with the iterator if `fetch` raised.
            inspect: called with batches that were not fetched on this path.

        Returns:
            The wrapper, and the function to call with iterator and batch after a fetch outside the wrapper.
        """
        tracker = self._tracker
        grads_wanted = tracker.grads_wanted

        def __next__(iterator: Any) -> Any:
            is_fast = False
            try:
                t = host_clock()
                is_fast = (
                    self._next == FETCH
                    and get_ident() == self._thread
                    and grads_wanted()
                    and (self._begins(t) if self._starts else id(iterator) == self._iterator)
                )
                if is_fast:
                    self._iterator = id(iterator)
                    self._times.append(t)
                    self._next = FETCHED
            except BaseException:
                tracker.fail()
            try:
                if not is_fast:
                    return slow_next(iterator)
                batch = fetch(iterator)
            except BaseException as error:
                if is_fast:
                    fetch_fails(iterator)
                unseen.drop_own_frames(error)
                raise
            fetched(iterator, batch)
            return batch

        def fetched(iterator: Any, batch: Any) -> None:
            try:
                if self._next != FETCHED:
                    tracker.fetch_ends(id(iterator), counts(iterator, batch), host_clock())
                    inspect(batch)  # the first batches come this way
                    return
                times = self._times
                times.append(host_clock())
                found = counts(iterator, batch)
                self._counts.append(found)
                self._next = self._calls[len(times)]
                if found is None:  # the tracker counts the model's inputs instead
                    self.leave()
            except BaseException:  # a batch may be of any class, with any faults
                tracker.fail()

        return __next__, fetched

    def model_call(self, module: Any, calls: Any, counts: Call, is_compiling: Call, begins: Call) -> Call:
        """Return the function to call in place of a model's `_call_impl`.

        It reads the called module from torch's frame: copies of a module's attributes (DataParallel's replicas, a copy
        of its `__dict__`) hold this function as well.

        Args:
            module: the model.
            calls: an object whose `calls` counts them.
            counts: returns the `Counts` of the model's inputs, or None.
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
            call = times = None
            try:
                t = host_clock()
                if (
                    (self._next == key or self._next == -key)
                    and id(module) == key
                    and (module.training or tracker.learns_in_eval)
                    and grads_wanted()
                    and get_ident() == self._thread
                    and (not self._starts or self._begins(t))
                ):
                    if self._counts_inputs and self._next == key:
                        self._counts.append(call_safely(counts, args, kwargs))
                    times = self._times
                    times.append(t)
                    self._next = CALLED
                    calls.calls += 1
                else:
                    call = begins(module, args, kwargs)
            except BaseException:  # it looks at whatever the program calls its model on
                tracker.fail()
            try:
                result = (call or module._call_impl)(*args, **kwargs)
            except BaseException as error:
                unseen.drop_own_frames(error)
                raise
            try:
                if times is not None:
                    if self._next == CALLED and self._times is times:
                        times.append(host_clock())
                        self._next = self._calls[len(times)]
                elif call is not None:
                    tracker.forward_ends(host_clock())
            except BaseException:
                tracker.fail()
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
            is_ours = False
            try:
                loss: Any = args[0] if args else None
                if (
                    self._next == BACKWARD
                    and get_ident() == self._thread
                    and type(loss) is tensor
                    and (not self._starts or self._begins(host_clock()))
                ):
                    try:
                        tracker.loss.add(loss, self._backwards)
                    except Exception as error:  # not one number, or a tensor of a foreign class
                        pass_on(error)
                        tracker.loss.add(None, self._backwards)
                    self._backwards += 1
                    self._times.append(host_clock())
                    self._next = BACKWARD_ENDED
                    is_ours = True
                else:
                    is_ours = begins(loss, args, kwargs)
            except BaseException:
                tracker.fail()
            try:
                return run(*args, **kwargs)
            except BaseException as error:
                unseen.drop_own_frames(error)
                raise
            finally:
                try:
                    if is_ours and self._next == BACKWARD_ENDED:
                        times = self._times
                        times.append(host_clock())
                        self._next = self._calls[len(times)]
                    elif is_ours:
                        tracker.backward_ends(host_clock())
                except BaseException:
                    tracker.fail()

        return backward

    def optimizer_hooks(self, is_traced: Call, begins: Call, ends: Call) -> Tuple[Call, Call]:
        """Return the hooks for before and after an optimizer's step.

        Args:
            is_traced: whether dynamo traces the program.
            begins, ends: called with the optimizer if this path does not apply.
        """

        tracker = self._tracker

        def before(optimizer: Any, args: Any, kwargs: Any) -> None:
            if is_traced():
                return
            try:
                if self._next == OPTIMIZER and id(optimizer) == self._optimizer:
                    self._times.append(host_clock())
                    self._next = OPTIMIZER_ENDED
                elif self._next == SCALER_ENDED and id(optimizer) == self._optimizer:
                    self._scaled = 1
                else:
                    begins(optimizer)
            except BaseException:
                tracker.fail()

        def after(optimizer: Any, args: Any, kwargs: Any) -> None:
            if is_traced():
                return
            try:
                if self._next == OPTIMIZER_ENDED and id(optimizer) == self._optimizer:
                    self._updated(host_clock())
                elif self._next == SCALER_ENDED and id(optimizer) == self._optimizer:
                    self._scaled = 2
                else:
                    ends(optimizer)
            except BaseException:
                tracker.fail()

        return before, after

    def _updated(self, t: int) -> None:
        """Take the end of the optimizer's step, with which a step ends that no GPU may be working on."""
        self._times.append(t)
        self._next = self._calls[0]
        self._starts = True
        if not self._on_gpu:
            self.end_step(t)

    def loss_scaled(self, loss: Any) -> bool:
        """Take a loss that a scaler multiplies. Return whether the step is recorded here."""
        if self._next != BACKWARD or self._starts:
            return False
        self._tracker.loss.scale(loss, self._backwards)
        return True

    def scaler_begins(self, key: int) -> bool:
        """Take the begin of a scaler's step; `key` is the optimizer's id. Return whether it is recorded here."""
        if self._next != SCALER or key != self._optimizer:
            return False
        self._tracker.loss.uses_scaler()
        self._times.append(host_clock())
        self._next = SCALER_ENDED
        return True

    def scaler_ends(self) -> bool:
        """Take the end of a scaler's step. Return whether it is recorded here; one that the scaler skipped is not."""
        if self._next != SCALER_ENDED or self._scaled < 2:
            return False
        self._updated(host_clock())
        return True

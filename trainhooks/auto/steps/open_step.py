"""The open step of a thread: its begin, its end, or its change into an evaluation.

`step_tracker` drives it.
"""

from __future__ import annotations

import atexit
import sys
from collections import deque
from threading import get_ident
from typing import Any, Callable, Deque, List, Optional, Set

from trainhooks import lane_entries, session
from trainhooks.auto.instrumentation import call_safely, framework
from trainhooks.auto.models.update_checks import UpdateChecks
from trainhooks.auto.rl.generations import Generations
from trainhooks.auto.rl.own_decoding import DecodedRow
from trainhooks.auto.rl.rollouts import GENERATION, ROLLOUT, Rollouts
from trainhooks.auto.steps.fast_path import FastPath
from trainhooks.auto.steps.parameter_updates import ManualUpdate, Optimizers
from trainhooks.auto.steps.plan import passes
from trainhooks.auto.steps.step_loss import StepLoss
from trainhooks.auto.steps.step_order import Counts, new_order
from trainhooks.device import cuda, deferred
from trainhooks.lane_entries import AUTOMATIC, CANCEL, COUNT, END, LOG, RENAME, SKIP, SPAN, STEP, host_clock
from trainhooks.program_errors import is_programs
from trainhooks.protocol.vocabulary import SCALER_OVERFLOW

MIN_UNSEEN_UPDATES = 3  # updates after gradients without an optimizer's hook; from then on these are the steps
MAX_PENDING = 64  # counts of batches that were fetched and not yet used
MIN_STREAK = 3  # steps in a row with model calls without gradients before them; from then on these belong to the step


class Guard:
    """`with guard:` runs a part of ours: of its errors none reaches the program but the program's own."""

    __slots__ = ("_tracker",)

    def __init__(self, tracker: OpenStep) -> None:
        self._tracker = tracker

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Optional[BaseException], trace: Any) -> bool:
        return error is not None and self._tracker.takes(error)


class OpenStep:
    """The state of one thread's step, as far as its calls of torch show it.

    Args:
        grads_wanted: returns whether gradients are recorded: torch.is_grad_enabled.
    """

    __slots__ = (  # more attributes than Python keeps together in an ordinary object
        "ahead", "announced", "backwards", "began", "caches", "call_counts", "called", "calls_without_grad", "checks",
        "entered", "eval_began", "eval_grads", "eval_iterator", "eval_last", "evaluating", "exhausted", "fast_path",
        "fetched_again", "fetches", "forwards", "fresh", "generated", "generations", "gradients", "grads_wanted",
        "guard", "has_gradients", "in_backward", "in_forward", "iterator", "lane", "last", "leading_calls",
        "learns_in_eval", "loader_counts", "loss", "manual_update", "nested", "no_grad_seen", "no_grad_streak",
        "on_gpu", "on_step_end", "open", "opened_by", "optimizers", "order", "pending_batches", "put",
        "rollout_seen", "rollout_streak", "rollouts", "sees_model", "silent", "skips", "stepped", "stepped_at",
        "thread", "unseen_updates",
    )  # fmt: skip

    def __init__(self, grads_wanted: Callable[[], bool]) -> None:
        self.grads_wanted = grads_wanted
        self.optimizers = Optimizers()
        self.sees_model = False  # the model's calls are observed; else forward is the gap between data and backward
        self.silent = False  # nothing is recorded: the program reports its steps itself, or the tracker failed
        # Called at the end of steps with a `put` and False, and at the end of the program with True.
        self.on_step_end: Optional[Callable[[session.Put, bool], None]] = None
        self.guard = Guard(self)
        self.fast_path = FastPath(self)
        self.reset()

    def reset(self) -> None:
        """Reset all state, for the calling thread: at first, and in a forked child."""
        self.checks = UpdateChecks()
        self.lane = lane = session.own_lane()
        lane.follower = self  # in steps timed on the device, entries pass through the device lane
        self.put = lane.put
        session.route_thread(self.fast_path.restart(lane))
        self.thread = get_ident()
        self.optimizers.forget_only()
        self.announced = False  # the process is known to train
        self.last: Optional[int] = None  # when the last step, or what was recorded after it, ended
        self.began = 0
        self.open = False
        self.order = new_order()  # of this step's calls, for the fast path
        self.stepped: Set[int] = set()  # optimizers that have stepped in this step
        self.stepped_at = 0  # when the last of them ended
        self.on_gpu = False  # whether its work may go on after that
        self.entered = 0  # optimizers' steps inside a scaler's, or another optimizer's, so far
        self.nested: List[int] = []  # optimizers whose step is under way, innermost last
        self.fetches = 0
        self.iterator = 0  # of the last fetch, by its id
        self.fetched_again = False  # it was fetched from again without gradients in between
        self.exhausted = False  # it ended without gradients since the last fetch
        self.opened_by: Optional[int] = None  # when the creation of an iterator ended, if the step began with it
        self.forwards = 0
        self.leading_calls = 0  # of `forwards`, those of the model whose inputs are counted
        self.calls_without_grad = 0  # model calls without gradients or in evaluation mode
        self.learns_in_eval = False  # the last gradients were of model calls in evaluation mode
        self.caches = False  # batches go through the model without gradients first, several of them, then with them
        self.in_forward = False
        self.called = False  # a model call of the open step is under way, whose end ends its forward phase
        self.backwards = 0
        self.gradients = 0  # with those of `torch.autograd.grad`
        self.has_gradients = False  # gradients have been computed in this step
        self.in_backward = False
        self.unseen_updates = 0
        self.manual_update: Optional[ManualUpdate] = None  # where there is neither an optimizer nor a loader
        self.loss = StepLoss()
        self.rollouts = Rollouts(self)
        self.generations = Generations(self)
        self.generated = False  # to learn from, since the last update
        self.skips = 0
        self.evaluating = False
        self.eval_grads = False  # its last model call was in evaluation mode, with gradients
        self.eval_iterator: Optional[int] = None  # None: it has ended
        self.eval_began = self.eval_last = 0  # times of its begin, and of its last event
        self.no_grad_seen = False  # model calls without gradients since the last step
        self.no_grad_streak = 0  # steps in a row that had such calls before them
        self.rollout_seen = False  # the same for calls in training mode, on a GPU
        self.rollout_streak = 0
        self.pending_batches: Deque[Counts] = deque(maxlen=MAX_PENDING)  # fetched and not yet used
        self.ahead = 0  # of these, those that were there when the last step ended: it fetched them for the next one
        self.loader_counts = False
        self.call_counts: Optional[Counts] = None  # of the last model call that gradients may be computed for
        self.fresh = True  # the next model call is the first of a batch

    def begin(self, t: int) -> None:
        """Begin a step; `t` may lie in the past, back to the end of the last one."""
        if self.silent or session.has_explicit_steps():
            self.silent = True
            return
        self.fast_path.stop()
        if session.device.watching and not self.fast_path.replaying:
            session.device.begins(self.lane, AUTOMATIC)
        put = self.put
        put((STEP, t, AUTOMATIC))
        if deferred.waiting:
            deferred.put_arrived(put)
        self.open = True
        self.began = t
        self.order.clear()
        self.fetches = self.forwards = self.calls_without_grad = self.backwards = self.gradients = self.skips = 0
        self.leading_calls = 0
        self.fetched_again = self.exhausted = self.has_gradients = False
        self.fresh = True
        self.call_counts = None
        self.no_grad_streak = self.no_grad_streak + 1 if self.no_grad_seen else 0
        self.rollout_streak = self.rollout_streak + 1 if self.rollout_seen else 0
        self.no_grad_seen = self.rollout_seen = False

    def end(self, t: int) -> None:
        """End the step. Work that a GPU may still be doing belongs to it, so it ends with the next event."""
        if not self.on_gpu and self.stepped:
            t = self.stepped_at
        put = self.put
        self.rollouts.step_ends()
        if self.loss.value is not None:
            # With other models' calls among them, calls say nothing of how many batches there were.
            calls = self.forwards if self.forwards == self.leading_calls else 0
            loss = self.loss.of_step(self.backwards, (calls, self.fetches), len(self.stepped))
            if loss is not None:
                put((LOG, {"loss": loss}))
        self.loss.step_ends()
        if self.skips and self.skips >= len(self.stepped):
            put((SKIP, SCALER_OVERFLOW))
        if self.pending_batches and not framework.counts_batches:
            while len(self.pending_batches) > 1:  # all but a batch that may have been fetched ahead
                put((COUNT, *self.pending_batches.popleft()))
        if self.leading_calls > 1:
            put((COUNT, None, None, None, self.leading_calls))
        put((END, t, AUTOMATIC))
        self.ahead = len(self.pending_batches)
        self.fast_path.steps += 1
        self.open = self.called = False
        self.last = t
        self.sees_model = self.forwards > 0
        if not self.optimizers.only_on_cpu:
            self.optimizers.step_ended(self.stepped, has_fetches=self.fetches > 0)
            if not self.announced:
                self._announce()
        self.stepped.clear()
        checks = self.checks
        if checks.left:
            if self.on_step_end is not None:
                self.on_step_end(put, False)
            checks.step_ended(t, self.no_grad_streak >= MIN_STREAK)
        elif t >= checks.due:
            checks.arm(t)
        if not (checks.left or self.on_gpu) and self.announced:
            self.fast_path.arm()

    def cancel(self, t: int) -> None:
        """Cancel the open step: nothing of it is counted."""
        self.put((CANCEL, t, AUTOMATIC))
        self.open = self.called = False
        self.rollouts.step_canceled()

    def finish(self) -> None:
        """End the open evaluation, or the step whose optimizers have stepped, at the end of the program."""
        is_elsewhere = get_ident() != self.thread and not self._has_ended()
        if is_elsewhere or not self.announced or self.silent:
            return
        self.fast_path.leave()
        call_safely(self.checks.finish)  # while the lane still takes entries
        call_safely(passes.finish)
        if self.evaluating:
            self.evaluation_ends(self.eval_last)
        elif self.open and (self.stepped or (self.unseen_updates and self.has_gradients)):
            self.on_gpu = False
            self.end(host_clock() if self.manual_update is None else self.manual_update.ended)
        self.rollouts.finish()
        call_safely(self.generations.finish)
        if self.on_step_end is not None:
            self.on_step_end(self.put, True)

    def fail(self) -> None:
        """Record no steps from here on, after an error of ours; an exception of the program is raised again."""
        error = sys.exc_info()[1]
        if error is not None and not self.takes(error):
            raise error

    def takes(self, error: BaseException) -> bool:
        """Do as `fail` says, and return whether that error was ours."""
        self._drop()
        if is_programs(error):
            return False
        self.silent = True
        session.part_failed("steps", error)
        return True

    def _drop(self) -> None:
        """Drop the open step, of which something is missing."""
        t = host_clock()
        self.fast_path.drop()
        if self.open:
            self.cancel(t)
        if self.last is not None:
            self.last = t
        self.in_forward = self.in_backward = False
        self.nested.clear()
        self.stepped.clear()

    def adopt(self) -> bool:
        """Move to the calling thread, where an optimizer steps, unless another one trains. Return whether it moved."""
        if self.follow():
            return True
        if self.announced or self.silent:
            return False
        session.device.release()
        self.reset()
        return True

    def follow(self) -> bool:
        """Move to the calling thread if its own has ended: a program may run each step, or each training, in a new one.

        Returns:
            Whether it moved. The lane goes on, whose last step has ended.
        """
        if self.silent or not self._has_ended():
            return False
        self.fast_path.leave()
        if self.open:
            self.end(self.stepped_at) if self.stepped else self.cancel(host_clock())
        session.device.release()
        self.thread, self.lane.thread = get_ident(), lane_entries.this_thread()
        self.put = self.lane.put
        session.route_thread(self.fast_path.restart(self.lane))
        return True

    def _has_ended(self) -> bool:
        """Return whether its thread has ended. The number of one that has may be another's by now."""
        return not lane_entries.is_alive(self.lane.thread) and self.thread not in sys._current_frames()

    def _announce(self) -> None:
        if self.optimizers.none_stepped and self.unseen_updates < MIN_UNSEEN_UPDATES:
            return
        self.announced = True
        session.announce()
        atexit.register(self.finish)  # runs before the session's own, which was registered earlier
        if session.is_child():  # atexit does not run in such a process
            sys.modules["multiprocessing.util"].Finalize(None, self.finish, exitpriority=-99)

    def _ensure_open(self, t: int) -> bool:
        """End the open step if all its updates are made, and begin one if none is open, as work on the model begins.

        Returns:
            Whether a step is open now.
        """
        if self.open:
            if self.stepped:
                if self.optimizers.all_in(self.stepped):
                    self.end(t)
            elif self.has_gradients and not self.fetches:  # else the next fetch ends it
                update = self.manual_update
                if update is not None:
                    if self.optimizers.none and update.updated():
                        self._end_unseen(t if self.may_lag() else update.ended)
                elif self._updated_unseen():
                    self._end_unseen(t)
        if not self.open:
            self.begin(self.since(t))
        return self.open

    def _updated_unseen(self) -> bool:
        optimizers = self.optimizers
        return optimizers.none_stepped and not self.nested and optimizers.parameters_changed()

    def _end_unseen(self, t: int) -> None:
        """End a step whose update no optimizer's hook reported: manual, or by a compiled optimizer."""
        if not self.unseen_updates:
            self.optimizers.without_update.ended()
        self.unseen_updates += 1
        self.generated = False
        self.end(t)

    def may_lag(self) -> bool:
        """Return whether a GPU may still be working on the last call when that has returned."""
        return self.on_gpu or (self.optimizers.none_stepped and cuda.started_cuda() is not None)

    def since(self, t: int) -> int:
        """Return when a step began whose first event is at `t`: at the end of the last one.

        On a GPU the last step ends with the next event, so work in between (an evaluation, a checkpoint) ended by `t`.
        """
        return t if self.on_gpu else self.last or t

    def span_begins(self, t: int) -> None:
        """End the open evaluation or finished step, as a span (a checkpoint, a framework's evaluation) begins."""
        if self.silent or self.in_forward or self.in_backward or self.nested:
            return
        if self.evaluating:
            if t >= self.eval_last:  # else the span is recorded in hindsight
                self.evaluation_ends(t)
        elif t >= self.stepped_at:
            self.end_if_done(t)

    def end_if_done(self, t: int) -> None:
        """End a step that is open only because a GPU may still be working, as work outside of steps begins."""
        if self.open and self.on_gpu and self.stepped and self.optimizers.all_in(self.stepped):
            self.end(t)
            self.fast_path.stop()  # the next step decides itself whether it is timed on the device

    def evaluation_begins(self, t: int, iterator: int) -> None:
        self.fast_path.stop()
        self.put((SPAN, t, ROLLOUT.name if self.generated else "eval"))
        self.evaluating = True
        self.eval_began = t
        self.eval_grads = False
        self.eval_iterator = iterator
        self.eval_last = t

    def generates(self) -> None:
        """Record that a call begins whose results are learned from."""
        if self.evaluating:
            if self.eval_iterator:
                self.put((RENAME, ROLLOUT.name))  # what is fetched without gradients are prompts
            else:
                self.evaluation_ends(host_clock())
        self._takes_prompts()

    def _takes_prompts(self) -> None:
        """Note that what was fetched are prompts, and that no call from here to the learning evaluates."""
        self.generated = True
        if not framework.counts_batches:
            while len(self.pending_batches) > self.ahead:
                self.pending_batches.pop()
            self.loader_counts = False

    def decodes(self, row: DecodedRow, is_known: bool) -> None:
        """Record that the model writes sequences, without gradients, in a loop of the program's own.

        Args:
            is_known: else it may be an evaluation of single numbers; see `has_decoded`.
        """
        if self.nested or framework.open_phases or framework.open_evaluations:
            return  # a framework's own generation has its name
        self.generations.decodes(row)
        if not is_known:
            return
        is_learned = self.generations.is_learned(row)
        if is_learned:
            self._takes_prompts()
        if self.evaluating and not self.eval_iterator and self.eval_began < row.began:
            self.put((None, row.began))  # what came before
            self.evaluating = False
        self._writes(row.began, is_learned)

    def has_decoded(self, row: DecodedRow) -> None:
        """Record that the model has written these sequences, as it is about to learn from some that are as long."""
        if not (self.nested or framework.open_phases or framework.open_evaluations):
            self._writes(row.began, self.generations.is_learned(row))

    def _writes(self, since: int, is_learned: bool) -> None:
        self.end_if_done(since)
        if self.open:
            if is_learned and not self.has_gradients:
                self.rollouts.writes(since)
            return
        if not self.evaluating:
            self.evaluation_begins(since, 0)
        self.put((RENAME, GENERATION.name if is_learned else "eval"))

    def decoded(self, t: int) -> None:
        """Record that the model has written so far, by a method that is no call of its own."""
        if self.evaluating:
            self.eval_last = t
        else:
            self.rollouts.wrote(t)

    def only_evaluates(self) -> bool:
        """Return whether the open step computes gradients for its results alone, as those of an energy are forces."""
        return self.calls_without_grad > 0 and not (self.forwards or self.backwards or self.stepped)

    def _becomes_evaluation(self, t: int) -> None:
        """Turn the open step into an evaluation."""
        self.cancel(t)
        while len(self.pending_batches) > self.ahead:
            self.pending_batches.pop()
        self.evaluation_begins(self.began, self.iterator)
        self.eval_last = t

    def evaluation_ends(self, t: int) -> None:
        """End the evaluation with its last event, as something else begins at `t`.

        If a GPU may have been working since then, it ends at `t`: the program has waited for its results.
        """
        t = max(t, self.eval_last) if self.may_lag() else self.eval_last
        self.put((None, t))
        self.evaluating = False
        if not self.open:
            self.last = t

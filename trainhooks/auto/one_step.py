"""The step that is open on a thread, and how it begins, ends or turns out to be an evaluation. `steps` drives it."""

from __future__ import annotations

import atexit
import os
import sys
from collections import deque
from threading import get_ident
from typing import Any, Callable, Deque, List, Optional, Set, Tuple

from trainhooks import cuda, deferred, session
from trainhooks.auto import claims
from trainhooks.auto.by_hand import ByHand
from trainhooks.auto.optimizers import Optimizers
from trainhooks.auto.usual import OFF, Usual
from trainhooks.clocks import host_clock
from trainhooks.entries import AUTOMATIC, CANCEL, COUNT, END, LOG, SKIP, SPAN, STEP

Counts = Tuple[Optional[int], Optional[int], Optional[int]]

CYCLES = 3  # updates that gradients led to and that no optimizer's hook told: then these are the steps
OVERFLOW = "gradient overflow (loss scaler)"
MAX_WAITING = 64  # counts of batches that were fetched and not yet used


class OneStep:
    """What is known of the step of one thread, as far as its calls of torch tell.

    Args:
        grads_wanted: whether gradients are being recorded: torch.is_grad_enabled.
    """

    __slots__ = (  # more attributes than Python keeps together in an ordinary object
        "backwards",
        "began",
        "by_hand",
        "called_on",
        "cycles",
        "entered",
        "eval_last",
        "eval_source",
        "evaluating",
        "exhausted",
        "fetched_again",
        "fetches",
        "forwards",
        "fresh",
        "grads_wanted",
        "habit",
        "in_backward",
        "in_forward",
        "lane",
        "last",
        "learnt",
        "loader_counts",
        "looked",
        "looks",
        "loss",
        "many_backwards",
        "nested",
        "news",
        "on_gpu",
        "open",
        "opened_by",
        "optimizers",
        "put",
        "rolled_out",
        "rollouts",
        "rooted",
        "scaled",
        "silent",
        "skips",
        "source",
        "stepped",
        "stepped_at",
        "thread",
        "told",
        "usual",
        "waiting",
    )

    def __init__(self, grads_wanted: Callable[[], bool]) -> None:
        self.grads_wanted = grads_wanted
        self.optimizers = Optimizers()
        self.rooted = False  # the model's own calls are seen; else forward is the gap between data and backward
        self.silent = False  # the program tells its steps itself, or we failed
        self.news: Optional[Callable[[session.Put, bool], None]] = None  # asked at the end of steps, and of it all
        self.told = False  # the process has been announced
        self.usual = Usual(self)
        self.reset()

    def reset(self) -> None:
        """Begin anew in the calling thread: at first, and in a forked child."""
        self.lane = lane = session.own_lane()
        lane.follower = self  # in steps that are timed on the device something stands before the lane
        self.put = lane.put
        session.put_through(self.usual.watch(lane))
        self.thread = get_ident()
        self.optimizers.only = self.optimizers.sole = 0
        self.last = 0  # when the last step, or what was told after it, ended
        self.began = 0
        self.open = False
        self.stepped: Set[int] = set()  # optimizers that have stepped in this step
        self.stepped_at = 0  # when the last of them ended
        self.on_gpu = False  # and its work may go on after that
        self.entered = 0  # optimizers' steps inside a scaler's, or another optimizer's, so far
        self.nested: List[int] = []  # optimizers whose step is under way, innermost last
        self.fetches = 0
        self.source = 0  # the iterator of the last fetch
        self.fetched_again = False  # it was asked again, and nothing was learnt in between
        self.exhausted = False  # it ended, likewise
        self.opened_by = 0  # when the making of an iterator ended that the step was begun for
        self.forwards = 0
        self.looks = 0  # model calls that nothing can be learnt from
        self.in_forward = False
        self.backwards = 0
        self.learnt = False  # gradients have been asked for in this step
        self.in_backward = False
        self.cycles = 0
        self.by_hand: Optional[ByHand] = None  # where there is neither an optimizer nor a loader
        self.loss: Any = None  # a number, or one on its way from a GPU
        self.many_backwards = False
        self.scaled = False  # a loss scaler is at work: the loss that is seen is not the program's
        self.skips = 0
        self.evaluating = False
        self.eval_source = 0
        self.eval_last = 0
        self.habit = 0
        self.looked = False  # since the last step
        self.rollouts = 0  # as `habit`, of calls in the mode of training, on a GPU
        self.rolled_out = False
        self.waiting: Deque[Counts] = deque(maxlen=MAX_WAITING)  # of batches fetched and not yet used
        self.loader_counts = False
        self.called_on: Optional[Counts] = None  # by the last model call that gradients may be asked for
        self.fresh = True  # the next model call is the first of a batch
        self.told = False

    # The step

    def begin(self, t: int) -> None:
        """A step begins; `t` may lie in the past, back to the end of the last one."""
        if self.silent or session.explicit():
            self.silent = True
            return
        self.usual.stage = OFF
        if session.device.watching and not self.usual.replaying:
            session.device.begins(self.lane, AUTOMATIC)
        put = self.put
        put((STEP, t, AUTOMATIC))
        if deferred.waiting:
            deferred.poll(put)
        self.open = True
        self.began = t
        self.fetches = self.forwards = self.looks = self.backwards = self.skips = 0
        self.fetched_again = self.exhausted = self.learnt = False
        self.fresh = True
        self.called_on = None
        self.habit = self.habit + 1 if self.looked else 0
        self.rollouts = self.rollouts + 1 if self.rolled_out else 0
        self.looked = self.rolled_out = False

    def end(self, t: int) -> None:
        """The step is done. Work that a GPU may still be at counts as the step's: it ends at what comes next."""
        if not self.on_gpu and self.stepped:
            t = self.stepped_at
        put = self.put
        if self.loss is not None:
            if self.backwards == 1 and not self.scaled:
                put((LOG, {"loss": self.loss}))
            self.loss = None
        if self.skips and self.skips >= len(self.stepped):
            put((SKIP, OVERFLOW))
        if self.waiting and not claims.counts:
            while len(self.waiting) > 1:  # all but a batch that may have been fetched ahead
                put((COUNT, *self.waiting.popleft()))
        if self.forwards > 1:
            put((COUNT, None, None, None, self.forwards))
        put((END, t, AUTOMATIC))
        self.open = False
        self.last = t
        self.many_backwards = self.backwards > 1
        self.rooted = self.forwards > 0
        if not self.optimizers.sole:
            self.optimizers.step_ended(self.stepped, patient=self.fetches > 0)
            self.stepped.clear()
            if not self.told:
                self._announce()
        if self.news is not None:
            self.news(put, False)
        if self.told:
            self.usual.consider(self)

    def _updated_unseen(self) -> bool:
        optimizers = self.optimizers
        return optimizers.none_stepped and not self.nested and optimizers.updated()

    def _end_cycle(self, t: int) -> None:
        """Gradients were asked for, and an update followed that no optimizer's hook told: by hand, or compiled."""
        self.cycles += 1
        self.end(t)

    def cancel(self, t: int) -> None:
        self.put((CANCEL, t, AUTOMATIC))
        self.open = False

    def finish(self) -> None:
        """The program ends: so does a step whose optimizers have stepped."""
        if get_ident() != self.thread or not self.told or self.silent:
            return
        if self.usual.stage:
            self.usual.hand_over()
        if self.evaluating:
            self._evaluation_ends(self.eval_last)
        elif self.open and (self.stepped or (self.cycles and self.learnt)):
            self.on_gpu = False
            self.end(host_clock() if self.by_hand is None else self.by_hand.ended)
        if self.news is not None:
            self.news(self.put, True)

    def fail(self) -> None:
        """Something in a program or a torch that was not foreseen: from here on nothing is told."""
        self.silent = True
        self.usual.stop()
        if self.open:
            self.cancel(host_clock())
        if os.environ.get(session.DEBUG_VARIABLE):
            sys.excepthook(*sys.exc_info())

    def adopt(self) -> bool:
        """An optimizer steps in another thread. It is the training, where none has been seen so far."""
        if self.told or self.silent:
            return False
        session.device.release()
        self.reset()
        return True

    def _announce(self) -> None:
        if self.optimizers.none_stepped and self.cycles < CYCLES:
            return
        self.told = True
        session.announce()
        atexit.register(self.finish)  # runs before the session's own, which was registered earlier
        process = sys.modules.get("multiprocessing.process")
        if process is not None and process.parent_process() is not None:  # its end passes atexit by
            sys.modules["multiprocessing.util"].Finalize(None, self.finish, exitpriority=-99)

    def _in_step(self, t: int) -> bool:
        """Work on the model begins: the last step has ended if its updates are all made. Whether a step is open now."""
        if self.open:
            if self.stepped:
                if self.optimizers.all_in(self.stepped):
                    self.end(t)
            elif self.learnt and not self.fetches:  # else the next fetch ends it
                if self.by_hand is not None:
                    if self.optimizers.none and self.by_hand.updated():
                        self._end_cycle(t if self.lags() else self.by_hand.ended)
                elif self._updated_unseen():
                    self._end_cycle(t)
        if not self.open:
            self.begin(self.since(t))
        return self.open

    # On a GPU

    def lags(self) -> bool:
        """Whether what was called last may still be under way when its call returns: a GPU works at it."""
        return self.on_gpu or (self.optimizers.none_stepped and cuda.started() is not None)

    def since(self, t: int) -> int:
        """When a step began of which the first thing is heard at `t`: as the last one ended. On a GPU that was told
        when it was, and what was done since (an evaluation, a checkpoint) was ended by `t`.
        """
        return t if self.on_gpu else self.last or t

    def span_begins(self, t: int) -> None:
        """Somebody tells a span (a checkpoint, a framework's evaluation), which is no part of what went before."""
        if self.silent or self.in_forward or self.in_backward or self.nested:
            return
        if self.evaluating:
            if t >= self.eval_last:  # else it is told in hindsight
                self._evaluation_ends(t)
        elif t >= self.stepped_at:
            self.end_if_done(t)

    def end_if_done(self, t: int) -> None:
        """Something begins that is no part of a step: one ends here that has only been open for what a GPU is at."""
        if self.open and self.on_gpu and self.stepped and self.optimizers.all_in(self.stepped):
            self.end(t)
            self.usual.stage = OFF  # whether the next step is timed on the device is asked where that begins

    # Evaluation

    def _evaluate(self, t: int, source: int) -> None:
        self.usual.stage = OFF
        self.put((SPAN, t, "eval"))
        self.evaluating = True
        self.eval_source = source
        self.eval_last = t

    def _becomes_evaluation(self, t: int) -> None:
        """What was begun as a step shows itself an evaluation."""
        self.cancel(t)
        self.waiting.clear()
        self._evaluate(self.began, self.source)
        self.eval_last = t

    def _evaluation_ends(self, t: int) -> None:
        """Something else begins at `t`. The evaluation ended with the last thing heard of it, or, where a GPU may have
        been at it since, and the program has waited for its figures, now.
        """
        t = max(t, self.eval_last) if self.lags() else self.eval_last
        self.put((None, t))
        self.evaluating = False
        if not self.open:
            self.last = t

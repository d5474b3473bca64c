"""Steps and phases made out from what every training does: fetch, forward, backward, optimizer step.

One `Steps` watches one thread. It is told what happens and puts entries into the thread's lane; it never looks around
by itself. What a fetch is for shows only afterwards, so a step is begun at its fetch and taken back if nothing is
learnt from it. Written for few bytecodes: all of this is in the training's way.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections import deque
from threading import get_ident
from typing import Any, Callable, Deque, List, Optional, Set, Tuple

from trainhooks import deferred, session
from trainhooks.auto import claims
from trainhooks.auto.optimizers import Optimizers
from trainhooks.clocks import host_clock
from trainhooks.entries import AUTOMATIC, CANCEL, COUNT, END, GROUND, LOG, SKIP, SPAN, STEP

Counts = Tuple[Optional[int], Optional[int], Optional[int]]

HABIT = 3  # steps in a row that each had model calls without gradients before them: then these belong to the step
CYCLES = 3  # updates that gradients led to and that no optimizer's hook told: then these are the steps
OVERFLOW = "gradient overflow (loss scaler)"
AT_ONCE = 1_000_000  # nanoseconds between the making of an iterator and its first use, in a `for`
MAX_WAITING = 64  # counts of batches that were fetched and not yet used


class Steps:
    """What one thread's training is doing, as far as its calls of torch tell.

    Args:
        grads_wanted: whether gradients are being recorded: torch.is_grad_enabled.
    """

    __slots__ = (  # more attributes than Python keeps together in an ordinary object
        "backwards",
        "began",
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
        "rooted",
        "scaled",
        "silent",
        "skips",
        "source",
        "stepped",
        "stepped_at",
        "thread",
        "told",
        "waiting",
    )

    def __init__(self, grads_wanted: Callable[[], bool]) -> None:
        self.grads_wanted = grads_wanted
        self.optimizers = Optimizers()
        self.rooted = False  # the model's own calls are seen; else forward is the gap between data and backward
        self.silent = False  # the program tells its steps itself, or we failed
        self.news: Optional[Callable[[session.Put, bool], None]] = None  # asked at the end of steps, and of it all
        self.told = False  # the process has been announced
        self.reset()

    def reset(self) -> None:
        """Begin anew in the calling thread: at first, and in a forked child."""
        self.put = session.quiet_put()
        self.thread = get_ident()
        self.optimizers.sole = 0
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
        self.loss: Any = None  # a number, or one on its way from a GPU
        self.many_backwards = False
        self.scaled = False  # a loss scaler is at work: the loss that is seen is not the program's
        self.skips = 0
        self.evaluating = False
        self.eval_source = 0
        self.eval_last = 0
        self.habit = 0
        self.looked = False  # since the last step
        self.waiting: Deque[Counts] = deque(maxlen=MAX_WAITING)  # of batches fetched and not yet used
        self.loader_counts = False
        self.fresh = True  # the next model call is the first of a batch
        self.told = False

    # The step

    def begin(self, t: int) -> None:
        """A step begins; `t` may lie in the past, back to the end of the last one."""
        if self.silent or session.explicit():
            self.silent = True
            return
        put = self.put
        put((STEP, t, AUTOMATIC))
        if deferred.waiting:
            deferred.poll(put)
        self.open = True
        self.began = t
        self.fetches = self.forwards = self.looks = self.backwards = self.skips = 0
        self.fetched_again = self.exhausted = self.learnt = False
        self.fresh = True
        self.habit = self.habit + 1 if self.looked else 0
        self.looked = False

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
        if self.waiting:
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
        if self.evaluating:
            self._evaluation_ends()
        elif self.open and (self.stepped or (self.cycles and self.learnt)):
            self.on_gpu = False
            self.end(host_clock())
        if self.news is not None:
            self.news(self.put, True)

    def fail(self) -> None:
        """Something in a program or a torch that was not foreseen: from here on nothing is told."""
        self.silent = True
        if self.open:
            self.cancel(host_clock())
        if os.environ.get(session.DEBUG_VARIABLE):
            sys.excepthook(*sys.exc_info())

    def adopt(self) -> bool:
        """An optimizer steps in another thread. It is the training, where none has been seen so far."""
        if self.told or self.silent:
            return False
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

    # Data

    def fetch_begins(self, source: int) -> None:
        """A batch is asked for."""
        t = host_clock()
        self.in_forward = False
        if self.nested:
            self.nested.clear()  # one that was left by an exception
        if self.open:
            if self.stepped:
                self.end(t)
            elif self.learnt:
                if self.optimizers.none or self._updated_unseen():
                    self._end_cycle(t)
            elif self.fetches:
                self._look_back(source, t)
            elif self.opened_by:
                if t - self.opened_by < AT_ONCE:
                    self.opened_by = 0
                    return
                self.cancel(t)
            self.opened_by = 0
        if claims.aside or self.silent:
            return
        if not self.grads_wanted():
            if self.evaluating:
                self.eval_source = source
            else:
                self._evaluate(t, source)
            return
        if self.evaluating:
            if source == self.eval_source:
                return
            self._evaluation_ends()
        if not self.open:
            self.begin(t)
            if not self.open:
                return
        self.put((GROUND, t, "data"))

    def iterator_made(self) -> None:
        """What began as a fetch was the making of an iterator, with its workers: part of the first wait."""
        if self.open and not self.fetches:
            self.opened_by = host_clock()
        elif self.evaluating:
            self.eval_last = host_clock()

    def fetch_ends(self, source: int, counts: Optional[Counts]) -> None:
        """A batch has come."""
        t = host_clock()
        if self.evaluating:
            self.eval_last = t
        elif self.open:
            self.put((GROUND, t, None if self.rooted else "forward"))
            self.fetches += 1
            self.source = source
            if counts is not None:
                self.loader_counts = True
                self.waiting.append(counts)

    def fetch_fails(self, source: int) -> None:
        """No batch came: the iterator ended, or failed."""
        t = host_clock()
        if self.evaluating:
            if source == self.eval_source:
                self.eval_last = t
                self._evaluation_ends()
        elif self.open and not self.learnt and not self.stepped:
            if not self.fetches:
                self.cancel(t)
            elif self.looks or (self.fetched_again and self.told):
                self._becomes_evaluation(t)
                self._evaluation_ends()
            else:
                self.exhausted = True
        elif self.open:
            self.put((GROUND, t, None))

    def batch_used(self) -> None:
        """A framework takes up the batch that was fetched first."""
        claims.counts = bool(self.waiting)  # else what it makes of its batches is counted where the model is called
        if self.waiting:
            self.put((COUNT, *self.waiting.popleft()))

    def _look_back(self, source: int, t: int) -> None:
        """A batch is asked for, and nothing has been learnt from the last one."""
        if source == self.source:
            self.fetched_again = self.fetches > claims.ahead
            if self.looks:
                self._becomes_evaluation(t)
        elif self.looks or self.fetched_again or self.exhausted:
            self._becomes_evaluation(t)

    # Evaluation

    def _evaluate(self, t: int, source: int) -> None:
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

    def _evaluation_ends(self) -> None:
        self.put((None, self.eval_last))
        self.evaluating = False
        if not self.open:
            self.last = self.eval_last

    # The model

    def forward_begins(self, in_training: bool) -> bool:
        """The model is called. Returns whether its inputs are asked for, to be counted."""
        if self.in_backward or self.in_forward or self.silent:
            return False
        self.in_forward = True
        if claims.aside or claims.told:
            return False
        grads = self.grads_wanted()
        if not (grads and in_training):
            if not self.evaluating:
                self._look(grads, in_training)
            return False
        if self.evaluating:
            self._evaluation_ends()
        t = host_clock()
        if self.open:
            if self.stepped:
                if self.optimizers.all_in(self.stepped):
                    self.end(t)
            elif self.learnt and self._updated_unseen():
                self._end_cycle(t)
        if not self.open:
            self.begin(self.last or t)
            if not self.open:
                return False
        self.put((GROUND, t, "forward"))
        self.forwards += 1
        if claims.counts:
            return False
        if self.waiting:
            self.put((COUNT, *self.waiting.popleft()))
            return False
        # A batch may go through the model again before its gradients are asked for, or in an optimizer's closure.
        return self.fresh and not self.loader_counts

    def count(self, counts: Optional[Counts]) -> None:
        self.fresh = False
        if counts is not None:
            self.put((COUNT, *counts))

    def _look(self, grads: bool, in_training: bool) -> None:
        """A model call that nothing can be learnt from: an evaluation, or a part of the step."""
        if self.open and self.stepped and self.optimizers.all_in(self.stepped):
            self.end(host_clock())
        if self.open:
            self.looks += 1
        elif not (grads or in_training or self.nested):
            self.looked = True
            if self.habit < HABIT:
                self._evaluate(host_clock(), 0)

    # Gradients

    def backward_begins(self, loss: Any = None) -> None:
        """A backward pass begins.

        Args:
            loss: the one tensor that it starts from, where its value may be read.
        """
        self.gradient_begins()
        if not self.open:
            return
        if self.backwards == 0:
            if loss is not None and not (self.many_backwards or self.scaled or claims.loss):
                self.loss = loss.item() if loss.is_cpu else deferred.settled({"loss": loss})["loss"]
        elif self.loss is not None:
            self._forget_loss()
        self.backwards += 1

    def gradient_begins(self) -> None:
        """Gradients are asked for."""
        t = host_clock()
        self.in_backward = True
        self.in_forward = False
        if self.evaluating:
            self._evaluation_ends()
        if self.open:
            if self.stepped:
                if self.optimizers.all_in(self.stepped):
                    self.end(t)
            elif self.learnt and self._updated_unseen():
                self._end_cycle(t)
        if not self.open:
            self.begin(self.last or t)
            if not self.open:
                return
        self.put((GROUND, t, "backward"))
        if not self.learnt and self.optimizers.none_stepped:
            self.optimizers.updated()  # from here on
        self.learnt = True
        self.fresh = not self.nested
        if self.waiting and not (self.forwards or claims.counts):
            while self.waiting:
                self.put((COUNT, *self.waiting.popleft()))

    def backward_ends(self) -> None:
        self.in_backward = False
        if self.open:
            self.put((GROUND, host_clock(), "optimizer" if self.nested else None))
            if self.stepped and not self.nested and self.optimizers.all_in(self.stepped):
                self._all_stepped()  # in the backward pass itself

    def _forget_loss(self) -> None:
        value, self.loss = self.loss, None
        if type(value) is deferred.Deferred and value in deferred.waiting:
            deferred.waiting.remove(value)

    # Optimizers

    def optimizer_begins(self, key: int) -> None:
        """An optimizer's step begins; `key` is its id."""
        nested = self.nested
        if nested:
            if key not in nested:
                nested.append(key)
                self.entered += 1
                return
            nested.clear()  # its last step was left by an exception
        nested.append(key)
        if self.in_backward:
            return
        t = host_clock()
        self.in_forward = False
        if self.evaluating:
            self._evaluation_ends()
        if self.open and self.stepped and (key in self.stepped or self.optimizers.all_in(self.stepped)):
            self.end(t)
        if not self.open:
            self.begin(self.last or t)
            if not self.open:
                return
        self.put((GROUND, t, "optimizer"))

    def optimizer_ends(self, key: int, optimizer: Any) -> None:
        nested = self.nested
        if nested:
            nested.pop()
            if nested:
                return
        if not self.open:
            return
        optimizers = self.optimizers
        if key == optimizers.sole and not self.in_backward:
            self.end(host_clock())
            return
        self.stepped_at = host_clock()
        self.stepped.add(key)
        self.on_gpu = optimizers.has_stepped(key, optimizer)
        if self.in_backward:
            return
        if optimizers.all_in(self.stepped):
            self._all_stepped()
        else:
            self.put((GROUND, self.stepped_at, None))

    def _all_stepped(self) -> None:
        if self.on_gpu:
            self.put((GROUND, self.stepped_at, None))
            if not self.told:
                self._announce()
        else:
            self.end(self.stepped_at)

    def scaler_begins(self, key: int) -> None:
        """A loss scaler looks at the gradients, and lets the optimizer step or not."""
        self.scaled = True
        self.optimizer_begins(-key)

    def scaler_ends(self, key: int, optimizer: Any, has_stepped: bool) -> None:
        if not has_stepped:
            self.skips += 1
        self.optimizer_ends(key, optimizer)

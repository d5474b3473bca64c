"""Steps and phases made out from what every training does: fetch, forward, backward, optimizer step.

One `Steps` watches one thread. It is told what happens and puts entries into the thread's lane; it never looks around
by itself. What a fetch is for shows only afterwards, so a step is begun at its fetch and taken back if nothing is
learnt from it. Written for few bytecodes: all of this is in the training's way.
"""

from __future__ import annotations

from typing import Any, Optional

from trainhooks import deferred
from trainhooks.auto import by_hand, claims
from trainhooks.auto.one_step import Counts as Counts
from trainhooks.auto.one_step import OneStep
from trainhooks.clocks import host_clock
from trainhooks.entries import BACKWARD, COUNT, DATA, FORWARD, NOTHING, OPTIMIZER, Ground

HABIT = 3  # steps in a row that each had model calls without gradients before them: then these belong to the step
EXHAUSTED = -1  # in place of an iterator
AT_ONCE = 1_000_000  # nanoseconds between the making of an iterator and its first use, in a `for`

REPLAY = Ground("step")  # a graph that holds all of it


class Steps(OneStep):
    """What one thread's training does, call by call of torch."""

    __slots__ = ()

    # Data

    def fetch_begins(self, source: int, t: int) -> None:
        """A batch is asked for."""
        self.in_forward = False
        if self.nested:
            self.nested.clear()  # one that was left by an exception
        if self.open:
            if self.stepped:
                self.end(t)
                if self.usual.stage and self.grads_wanted() and self.usual.fetch_begins(source, t):
                    return
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
            if self.evaluating and self.eval_source == EXHAUSTED:
                self._evaluation_ends(t)
            if self.evaluating:
                self.eval_source = source
            else:
                self._evaluate(t, source)
            return
        if self.evaluating:
            if source == self.eval_source:
                return
            self._evaluation_ends(t)
        if not self.open:
            self.begin(t)
            if not self.open:
                return
        self.put((DATA, t))

    def iterator_made(self) -> None:
        """What began as a fetch was the making of an iterator, with its workers: part of the first wait."""
        if self.open and not self.fetches:
            self.opened_by = host_clock()
        elif self.evaluating:
            self.eval_last = host_clock()

    def fetch_ends(self, source: int, counts: Optional[Counts], t: int) -> None:
        """A batch has come."""
        if self.evaluating:
            self.eval_last = t
        elif self.open:
            self.put((NOTHING if self.rooted else FORWARD, t))
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
                self.eval_source = EXHAUSTED  # its figures, or a batch that was fetched ahead, may be to come
        elif self.open and not self.learnt and not self.stepped:
            if not self.fetches:
                self.cancel(t)
            elif self.looks or (self.fetched_again and self.told):
                self._becomes_evaluation(t)
                self.eval_source = EXHAUSTED
            else:
                self.exhausted = True
        elif self.open:
            self.put((NOTHING, t))

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

    # The model

    def forward_begins(self, in_training: bool, t: int) -> bool:
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
            self._evaluation_ends(t)
        if not self._in_step(t):
            return False
        self.put((FORWARD, t))
        self.forwards += 1
        if claims.counts:
            return False
        if self.waiting:
            self.put((COUNT, *self.waiting.popleft()))
            return False
        # A batch may go through the model again before its gradients are asked for, or in an optimizer's closure.
        return self.fresh and not self.loader_counts

    def forward_ends(self) -> None:
        self.in_forward = False
        if self.evaluating:
            self.eval_last = host_clock()

    def count(self, counts: Optional[Counts]) -> None:
        """What the model is called on. Kept until gradients are asked for: an agent is also asked what to do next."""
        self.called_on = counts

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
            elif self.on_gpu:
                self._begin_early()
        elif self.on_gpu and not (grads or self.nested):
            self.rolled_out = True
            if self.rollouts >= HABIT:
                self._begin_early()

    def _begin_early(self) -> None:
        """A step begins with model calls without gradients. Nothing shows that later: begins are not told in hindsight
        on a GPU. Where batches are fetched, it begins there.
        """
        if not self.fetches:
            self.begin(host_clock())
            self.looks += 1

    # Gradients

    def backward_begins(self, loss: Any, t: int) -> None:
        """A backward pass begins.

        Args:
            loss: the one tensor that it starts from, where its value may be read.
            t: when.
        """
        self.gradient_begins(t)
        if not self.open:
            return
        if self.backwards == 0:
            if loss is not None and not (self.many_backwards or self.scaled or claims.loss):
                self.loss = deferred.loss_of(loss)
        elif self.loss is not None:
            self._forget_loss()
        self.backwards += 1
        if self.optimizers.none_stepped and loss is not None:
            self._watch_by_hand(loss)

    def _watch_by_hand(self, loss: Any) -> None:
        if not self.optimizers.none or self.fetches:
            self.by_hand = None
        elif self.by_hand is None or not self.by_hand.alive:
            self.by_hand = by_hand.watch(loss)

    def gradient_begins(self, t: int) -> None:
        """Gradients are asked for."""
        self.in_backward = True
        self.in_forward = False
        if self.evaluating:
            self._evaluation_ends(t)
        if not self._in_step(t):
            return
        self.put((BACKWARD, t))
        if not self.learnt and self.optimizers.none_stepped:
            self.optimizers.updated()  # from here on
        self.learnt = True
        if self.called_on is not None and not self.stepped:  # else it shows in `optimizer_begins`
            self.put((COUNT, *self.called_on))
            self.called_on = None
        self.fresh = not self.nested
        if self.waiting and not (self.forwards or claims.counts):
            while self.waiting:
                self.put((COUNT, *self.waiting.popleft()))

    def backward_ends(self, t: int) -> None:
        self.in_backward = False
        if self.open:
            self.put((OPTIMIZER if self.nested else NOTHING, t))
            if self.by_hand is not None:
                self.by_hand.backward_ended(t)
            if self.stepped and not self.nested and self.optimizers.all_in(self.stepped):
                self._all_stepped()  # in the backward pass itself

    def _forget_loss(self) -> None:
        value, self.loss = self.loss, None
        if type(value) is deferred.Deferred:
            value.wanted = False

    # CUDA graphs

    def capture_begins(self, t: int) -> bool:
        """What is called from here on is not done, but captured. Returns whether we keep silent meanwhile."""
        if self.silent or self.in_forward or self.in_backward or self.nested:
            return False  # a part of a compiled model, say: nothing of it is heard
        if self.evaluating:
            self._evaluation_ends(t)
        else:
            self.end_if_done(t)
        self.optimizers.updated()  # from here on
        self.silent = True
        return True

    def capture_ends(self) -> bool:
        """Returns whether an optimizer's step was captured: then each replay is one."""
        self.silent = False
        return self.optimizers.updated()

    def replay_begins(self, t: int) -> None:
        """A graph that holds an optimizer's step is replayed: gradients and all. What lies in it cannot be seen."""
        if self.evaluating:
            self._evaluation_ends(t)
        if self.open and self.stepped:
            self.end(t)
        if not self.open:
            self.begin(self.since(t))
            if not self.open:
                return
        self.put((REPLAY, t))
        self.learnt = True
        self.forwards = self.forwards or 1
        while self.waiting and not claims.counts:
            self.put((COUNT, *self.waiting.popleft()))

    def replay_ends(self, t: int) -> None:
        if self.open:
            self.on_gpu = True
            self.optimizers.all_stepped(self.stepped)
            self.stepped_at = t
            self._all_stepped()

    # Optimizers

    def optimizer_begins(self, key: int, t: int) -> None:
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
        self.in_forward = False
        if self.evaluating:
            self._evaluation_ends(t)
        # After an optimizer has stepped, others learn from the same batch; where it steps again, that was a new one.
        called_on, self.called_on = self.called_on if key in self.stepped else None, None
        if self.open and self.stepped and (key in self.stepped or self.optimizers.all_in(self.stepped)):
            self.end(t)
        if not self.open:
            self.begin(self.since(t))
            if not self.open:
                return
        if called_on is not None:
            self.put((COUNT, *called_on))
        self.put((OPTIMIZER, t))

    def optimizer_ends(self, key: int, optimizer: Any, t: int) -> None:
        nested = self.nested
        if nested:
            nested.pop()
            if nested:
                return
        if not self.open:
            return
        optimizers = self.optimizers
        if key == optimizers.sole and not self.in_backward:
            self.end(t)
            return
        self.stepped_at = t
        self.stepped.add(key)
        self.on_gpu = optimizers.has_stepped(key, optimizer)
        if self.in_backward:
            return
        if optimizers.all_in(self.stepped):
            self._all_stepped()
        else:
            self.put((NOTHING, self.stepped_at))

    def _all_stepped(self) -> None:
        if self.on_gpu:
            self.put((NOTHING, self.stepped_at))
            if not self.told:
                self._announce()
        else:
            self.end(self.stepped_at)

    def scaler_begins(self, key: int, t: int) -> None:
        """A loss scaler looks at the gradients, and lets the optimizer step or not."""
        self.scaled = True
        self.optimizer_begins(-key, t)

    def scaler_ends(self, key: int, optimizer: Any, has_stepped: bool, t: int) -> None:
        if not has_stepped:
            self.skips += 1
        self.optimizer_ends(key, optimizer, t)

"""Detect steps and phases from what every training does: fetch, forward, backward, optimizer step.

One `StepTracker` follows one thread: hooks call it, and it puts entries into the thread's lane. The purpose of a fetch
is known only afterwards, so a step begins at its fetch and is canceled if no gradients follow. Written for few
bytecodes: all of this runs on the training thread.
"""

from __future__ import annotations

from typing import Any, Optional

from trainhooks.auto.instrumentation import call_safely, framework
from trainhooks.auto.steps import step_order
from trainhooks.auto.steps.open_step import MIN_STREAK, OpenStep
from trainhooks.auto.steps.parameter_updates import ManualUpdate
from trainhooks.auto.steps.step_order import Counts
from trainhooks.lane_entries import BACKWARD, COUNT, DATA, FORWARD, NO_PHASE, OPTIMIZER, PhaseMarker, host_clock

MAX_ITERATOR_GAP = 1_000_000  # nanoseconds between the creation of an iterator and its first use, in a `for`
MAX_LOSS_NODES = 256  # nodes of a loss's graph that are searched for a parameter: the last layer's are near

REPLAY = PhaseMarker("step")  # a CUDA graph that holds the whole step


class StepTracker(OpenStep):
    """Record one thread's training, call by call of torch. All times are nanoseconds of the host clock."""

    __slots__ = ()

    def fetch_begins(self, iterator: int, t: int) -> None:
        """Record the begin of a fetch."""
        self.in_forward = False
        self.rollouts.held.clear()
        if self.nested:
            self.nested.clear()  # the step was left by an exception
        if self.open:
            if self.stepped:
                self.end(t)
            elif self.has_gradients:
                if self.only_evaluates():
                    self._becomes_evaluation(t)
                elif self.optimizers.none or self._updated_unseen():
                    self._end_unseen(t)
            elif self.fetches:
                self._fetch_follows_fetch(iterator, t)
            elif self.opened_by:
                if t - self.opened_by < MAX_ITERATOR_GAP:
                    self.opened_by = None
                    return
                self.cancel(t)
            self.opened_by = None
        if framework.open_evaluations or self.silent:
            return
        if not self.grads_wanted():
            if self.evaluating and self.eval_iterator is None:
                self.evaluation_ends(t)
            if self.evaluating:
                self.eval_iterator = iterator
            else:
                self.evaluation_begins(t, iterator)
            return
        if self.evaluating:
            if iterator == self.eval_iterator:
                return
            self.evaluation_ends(t)
        if not self.open:
            self.begin(t)
            if not self.open:
                return
        if self.rollouts.open:
            self.rollouts.end()
        self.put((DATA, t))
        is_another = self.fetches and iterator != self.iterator
        self.order.append(step_order.ODD if is_another else step_order.FETCH)

    def forget_unused(self) -> None:
        """Forget the batches of an iterator that another one follows: looked at, or left out, they were not used."""
        if not (self.open and (self.forwards or self.has_gradients)):
            while len(self.pending_batches) > max(self.ahead, framework.prefetched_batches):
                del self.pending_batches[self.ahead]

    def iterator_made(self) -> None:
        """Record that the fetch was the creation of an iterator with its workers, which is part of the first wait."""
        if self.open and not self.fetches:
            self.opened_by = host_clock()
        elif self.evaluating:
            self.eval_last = host_clock()

    def fetch_ends(self, iterator: int, counts: Optional[Counts], t: int) -> None:
        """Record the end of a fetch; `counts` is None if the batch could not be counted."""
        if self.evaluating:
            self.eval_last = t
        elif self.open:
            self.put((NO_PHASE if self.sees_model else FORWARD, t))
            self.order.append(step_order.FETCHED)
            self.fetches += 1
            self.iterator = iterator
            if counts is not None:
                self.loader_counts = True
                self.pending_batches.append(counts)

    def fetch_fails(self, iterator: int) -> None:
        """Record a fetch without a batch: the iterator ended, or failed."""
        t = host_clock()
        if self.evaluating:
            if iterator == self.eval_iterator:
                self.eval_last = t
                self.eval_iterator = None  # its results, or a batch that was fetched ahead, may follow
        elif self.open and not self.stepped and (not self.has_gradients or self.only_evaluates()):
            if not self.fetches:
                self.cancel(t)
            elif not self.generated and (self.calls_without_grad or (self.fetched_again and self.announced)):
                self._becomes_evaluation(t)
                self.eval_iterator = None
            else:
                self.exhausted = True
        elif self.open:
            self.put((NO_PHASE, t))

    def batch_used(self) -> None:
        """Count the batch that was fetched first, as a framework begins to use it."""
        # Without a pending batch, the inputs are counted at the model's call.
        framework.counts_batches = bool(self.pending_batches)
        if self.pending_batches:
            self.put((COUNT, *self.pending_batches.popleft()))

    def _fetch_follows_fetch(self, iterator: int, t: int) -> None:
        """Record a fetch after a fetch without gradients in between; the step may be an evaluation."""
        if self.generated:
            return
        if iterator == self.iterator:
            self.fetched_again = self.fetches > framework.prefetched_batches
            if self.calls_without_grad:
                self._becomes_evaluation(t)
        elif self.calls_without_grad or self.fetched_again or self.exhausted:
            self._becomes_evaluation(t)

    def forward_begins(self, in_training: bool, t: int) -> bool:
        """Record the begin of a model call. Return whether its inputs are to be counted."""
        if self.in_backward or self.in_forward or self.silent:
            return False
        self.in_forward = True
        self.called = False
        if framework.open_evaluations or framework.open_phases:
            return False
        grads = self.grads_wanted()
        if in_training:
            self.learns_in_eval = self.learns_in_eval and not grads
        elif grads and self.learns_in_eval:
            in_training = True
        if not (grads and in_training):
            if self.open and self.fetches and self.caches and in_training:
                self.put((FORWARD, t))
                self.order.append(step_order.ODD)
            elif self.evaluating:
                self.eval_grads = grads and not in_training
            else:
                self._called_without_grad(grads, in_training)
            return False
        if self.rollouts.holds(t):
            self.called = True
            return self.fresh and not (self.loader_counts or framework.counts_batches)
        if not self._forward_begins(t):
            return False
        self.called = True
        if framework.counts_batches:
            return False
        if self.pending_batches:
            self.put((COUNT, *self.pending_batches.popleft()))
            return False
        # A batch may go through the model again before its backward pass, or in an optimizer's closure.
        return self.fresh and not self.loader_counts

    def _forward_begins(self, t: int) -> bool:
        """Record the begin of a model call that is the learning's. Return whether a step is open."""
        if self.evaluating:
            self.evaluation_ends(t)
        if not self._ensure_open(t):
            return False
        if self.rollouts.open:
            self.rollouts.end()
        if self.rollouts.held:
            self.rollouts.put_held()
        self.put((FORWARD, t))
        self.forwards += 1
        return True

    def model_called(self, call: int, t: int) -> bool:
        """Record the begin of a model call that the fast path recorded. Return whether its inputs are to be counted."""
        is_counted = self.forward_begins(not self.learns_in_eval, t)
        self.takes_call(call, is_leader=call > 0)
        return is_counted and call > 0

    def takes_call(self, call: int, is_leader: bool) -> None:
        """Note which model was called in training, by its place in a step's order."""
        if self.rollouts.held:
            self.rollouts.held[-1][2:] = call, is_leader
            return
        self.order.append(call)
        self.leading_calls += is_leader

    def forward_ends(self, t: int) -> None:
        """Record the end of a model call. What follows (a loss, an environment) is not forward."""
        self.in_forward = False
        if self.called and self.rollouts.held:
            self.called = False
            self.rollouts.held[-1][1] = t
        elif self.evaluating:
            self.eval_last = t
        elif self.called:
            self.called = False
            self.put((NO_PHASE, t))
            self.order.append(step_order.CALLED)
        elif self.open and self.caches:
            self.put((NO_PHASE, t))
        else:
            self.rollouts.wrote(t)

    def count(self, counts: Optional[Counts]) -> None:
        """Keep the counts of the model's inputs until gradients are computed: a policy is also called for rollouts."""
        self.call_counts = counts

    def _called_without_grad(self, grads: bool, in_training: bool) -> None:
        """Record a model call without gradients or in evaluation mode: an evaluation, or part of the step."""
        if self.open and self.stepped and self.optimizers.all_in(self.stepped):
            self.end(host_clock())
        rollouts = self.rollouts
        if rollouts.has_environment and not grads and (rollouts.collects or self.last is None):
            rollouts.acts(host_clock())
        elif self.open:
            self.calls_without_grad += 1
        elif not (grads or in_training or self.nested):
            self.no_grad_seen = True
            if self.no_grad_streak < MIN_STREAK:
                self.evaluation_begins(host_clock(), 0)
            elif self.on_gpu:
                self._begin_early()
        elif self.on_gpu and not (grads or self.nested):
            self.rollout_seen = True
            if self.rollout_streak >= MIN_STREAK:
                self._begin_early()

    def _begin_early(self) -> None:
        """Begin a step at a model call without gradients, as on a GPU it cannot begin in hindsight.

        If batches are fetched, the step begins there instead.
        """
        if not self.fetches:
            self.begin(host_clock())
            self.calls_without_grad += 1

    def prepares(self, t: int) -> None:
        """Record that a framework prepares the next step: it generates what the step trains on."""
        if self.evaluating or self.in_forward or self.in_backward or self.nested:
            return
        if self.open and self.stepped and self.optimizers.all_in(self.stepped):
            self.end(t)
        if not self.open:
            self.begin(self.since(t))

    def backward_begins(self, loss: Any, t: int) -> None:
        """Record the begin of a backward pass.

        Args:
            loss: the tensor that it starts from; None if its value may not be read.
            t: when it began.
        """
        self.gradient_begins(t, step_order.BACKWARD)
        if not self.open:
            return
        if not (framework.logs_loss or self.fast_path.replaying):
            self.loss.add(loss, self.backwards, again=bool(self.nested))
        self.backwards += 1
        if self.optimizers.none_stepped and not (self.unseen_updates or self.nested):
            self.optimizers.gradients_computed()
        if self.optimizers.none_stepped and loss is not None:
            if not self.optimizers.none or self.fetches:
                self.manual_update = None
            elif self.manual_update is None or not self.manual_update.alive:
                parameter = near_parameter(loss)
                self.manual_update = None if parameter is None else ManualUpdate(parameter)

    def gradient_begins(self, t: int, call: int = step_order.ODD) -> None:
        """Record that gradients are computed from `t` on; `call` is what does so in the step's order."""
        self.in_backward = True
        self.in_forward = False
        modes = self.checks.modes
        if self.evaluating:
            if self.eval_grads and call == step_order.ODD:
                modes.gradient_begins()
                return
            self.evaluation_ends(t)
        held, counts = self.rollouts.held, self.call_counts
        if not self._ensure_open(held[0][0] if held else t):
            return
        if self.rollouts.open:
            self.rollouts.end()
        if held:
            self.rollouts.put_held()
            self.call_counts = counts
        self.put((BACKWARD, t))
        self.order.append(call)
        if modes.pending and not self.forwards and call == step_order.BACKWARD:  # else forces, of a validation, too
            self.learns_in_eval = True
        if self.checks.left or modes.pending:
            modes.gradient_begins()
        self.gradients += 1
        if not self.has_gradients and self.optimizers.none_stepped:
            self.optimizers.parameters_changed()  # from here on
        self.has_gradients = True
        if self.call_counts is not None and not self.stepped:  # else `optimizer_begins` decides
            self.put((COUNT, *self.call_counts))
            self.call_counts = None
        self.fresh = not self.nested
        if self.pending_batches and not (self.forwards or framework.counts_batches):
            while self.pending_batches:
                self.put((COUNT, *self.pending_batches.popleft()))

    def backward_ends(self, t: int) -> None:
        self.in_backward = False
        if self.checks.left:
            call_safely(self.checks.backward_ends)
        if self.evaluating:
            self.eval_last = t
        elif self.open:
            self.put((OPTIMIZER if self.nested else NO_PHASE, t))
            self.order.append(step_order.BACKWARD_ENDED)
            if self.manual_update is not None:
                self.manual_update.backward_ended(t)
            if self.stepped and not self.nested and self.optimizers.all_in(self.stepped):
                self._all_stepped()  # the optimizers stepped in the backward pass itself

    def capture_begins(self, t: int) -> bool:
        """Note that calls are captured from here on, not executed. Return whether recording pauses meanwhile."""
        if self.silent or self.in_forward or self.in_backward or self.nested:
            return False  # part of a compiled model, for example, which makes no calls here
        if self.evaluating:
            self.evaluation_ends(t)
        else:
            self.end_if_done(t)
        self.optimizers.parameters_changed()  # from here on
        self.silent = True
        return True

    def capture_ends(self) -> bool:
        """Return whether an optimizer's step was captured: then each replay is a step."""
        self.silent = False
        return self.optimizers.parameters_changed()

    def replay_begins(self, t: int) -> None:
        """Record the begin of a replay of a graph with an optimizer's step; its parts are not visible."""
        if self.evaluating:
            self.evaluation_ends(t)
        if self.open and self.stepped:
            self.end(t)
        if not self.open:
            self.begin(self.since(t))
            if not self.open:
                return
        self.put((REPLAY, t))
        self.order.append(step_order.ODD)
        self.has_gradients = True
        self.forwards = self.forwards or 1
        while self.pending_batches and not framework.counts_batches:
            self.put((COUNT, *self.pending_batches.popleft()))

    def replay_ends(self, t: int) -> None:
        if self.open:
            self.on_gpu = True
            self.optimizers.all_stepped(self.stepped)
            self.stepped_at = t
            self._all_stepped()

    def optimizer_begins(self, key: int, t: int) -> None:
        """Record the begin of an optimizer's step; `key` is the optimizer's id."""
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
            self.evaluation_ends(t)
        # Other optimizers step on the same batch; if one steps again, the batch is a new one.
        call_counts, self.call_counts = self.call_counts if key in self.stepped else None, None
        if self.open and self.stepped and (key in self.stepped or self.optimizers.all_in(self.stepped)):
            self.end(t)
        if not self.open and self.optimizers.is_late(key):
            return  # its gradients were those of the step that has ended
        if not self.open:
            self.begin(self.since(t))
            if not self.open:
                return
        if call_counts is not None:
            self.put((COUNT, *call_counts))
        if self.rollouts.open:
            self.rollouts.end()
        self.put((OPTIMIZER, t))
        self.order.append(step_order.OPTIMIZER if key > 0 else step_order.SCALER)

    def optimizer_ends(self, key: int, optimizer: Any, t: int) -> None:
        nested, is_scalers = self.nested, False
        self.generated = False
        if nested:
            is_scalers = nested.pop() < 0
            if nested:
                return
        if not self.open:
            if optimizer is not None and self.optimizers.is_late(key):
                self.optimizers.record_step(key, optimizer)
            return
        self.order.append(step_order.OPTIMIZER_ENDED if not is_scalers else step_order.SCALER_ENDED)
        optimizers = self.optimizers
        if key == optimizers.only_on_cpu and not self.in_backward:
            self.end(t)
            return
        self.stepped_at = t
        self.stepped.add(key)
        self.on_gpu = optimizers.record_step(key, optimizer)
        if self.in_backward:
            return
        if optimizers.all_in(self.stepped):
            self._all_stepped()
        else:
            self.put((NO_PHASE, self.stepped_at))

    def _all_stepped(self) -> None:
        if self.on_gpu:
            self.put((NO_PHASE, self.stepped_at))
            if not self.announced:
                self._announce()
            if self.announced and self.checks.left <= 1 and not self.fast_path.replaying:
                self.fast_path.arm()  # which ends this step with the next event
        else:
            self.end(self.stepped_at)

    def loss_scaled(self, loss: Any) -> None:
        """Record that a loss scaler multiplies a loss, from which the next backward pass starts."""
        if not (framework.logs_loss or self.in_backward):
            self.loss.scale(loss, self.backwards if self.open and not self.stepped else 0)

    def scaler_begins(self, key: int, t: int) -> None:
        """Record the begin of a loss scaler's step, which may skip the optimizer's."""
        self.loss.uses_scaler()
        self.optimizer_begins(-key, t)

    def scaler_ends(self, key: int, optimizer: Any, has_stepped: bool, t: int) -> None:
        if not has_stepped:
            self.skips += 1
        self.optimizer_ends(key, optimizer, t)


def near_parameter(loss: Any) -> Optional[Any]:
    """Return a parameter that this loss depends on; None if none is near."""
    nodes, seen = [loss.grad_fn], 0
    while nodes and seen < MAX_LOSS_NODES:
        node = nodes.pop()
        if node is None:
            continue
        seen += 1
        parameter = getattr(node, "variable", None)
        if parameter is not None:
            return parameter
        nodes.extend(inner for inner, _ in reversed(node.next_functions))
    return None

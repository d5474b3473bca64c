"""The usual step: one fetch, one call of the model, one backward pass, one step of the only optimizer, in this order.

Nearly every step of nearly every training is one. Once a step was, the next one is taken down here, by a number and a
time at each boundary, and told by a single entry at its end; `steps` hears nothing of it. As soon as anything else
happens, what was taken down so far is played to `steps` as if it had happened there, and the step goes on there. So
there is one place that knows what a step is, and this one only has to know when it does not know.

The stages are set where torch is hooked, not by methods of this class: a call more is what this is here to save.
"""

from __future__ import annotations

from threading import get_ident
from typing import Any, Callable, Optional, Tuple

from trainhooks import deferred, session
from trainhooks.auto import claims
from trainhooks.entries import SPAN, USUAL, Lane

# What is going on; what comes next is what the hooks ask for.
(
    OFF,  # nothing is taken down
    FETCHING,
    FETCHED,
    CALLING,  # the model
    CALLED,
    LEARNING,  # in the backward pass
    LEARNT,
    STEPPING,  # the optimizer
    STEPPED,  # a GPU may still be at it: the step ends at what comes next
    READY,  # between two steps
) = range(10)
Counts = Tuple[Optional[int], Optional[int], Optional[int]]
NEWS = 1_000_000_000  # nanoseconds between two looks at what is seldom new

_PHASES: Tuple[Tuple[Optional[str], str], ...] = (
    (None, "began"),
    ("data", "began"),
    (None, "fetched"),
    ("forward", "called"),
    ("forward", "called"),
    ("backward", "learning"),
    (None, "learnt"),
    ("optimizer", "stepping"),
    (None, "stepped"),
    (None, "began"),
)


def _yes() -> bool:
    return True


class Usual:
    """What was taken down of the open step: stage and times in nanoseconds of the host clock.

    Attributes:
        root: the id of the model whose call is the forward pass; 0: that one is not seen.
        key: the id of the optimizer.
        before_learning: the stage from which a backward pass may begin.
        on_gpu: whether the optimizer's parameters are on a GPU.
        replaying: `steps` is being told what has happened before.
        last: when the last step ended that was taken down here; 0: none was since `steps` told one.
    """

    __slots__ = (
        "_due",
        "_lane",
        "_put",
        "_steps",
        "before_learning",
        "began",
        "called",
        "counts",
        "fetched",
        "key",
        "last",
        "learning",
        "learnt",
        "loss",
        "on_gpu",
        "replaying",
        "root",
        "source",
        "stage",
        "stepped",
        "stepping",
        "thread",
    )

    def __init__(self, steps: Any) -> None:
        self._steps = steps
        self.root = 0
        self.replaying = False

    def watch(self, lane: Lane) -> Callable[[Tuple[Any, ...]], None]:
        """Begin anew, with the lane of the calling thread.

        Returns:
            What everybody else is to put entries with: what was taken down so far goes before them.
        """
        self.stage = OFF
        self.thread = thread = get_ident()
        self._lane = lane
        self._put = lane.ops.append  # a step that is timed on the device is not told here
        self._due = self.key = self.source = self.last = 0
        self.before_learning = CALLED
        self.on_gpu = False
        self.began = self.fetched = self.called = self.learning = self.learnt = self.stepping = self.stepped = 0
        self.counts: Optional[Counts] = None
        self.loss: Any = None  # a number, or one on its way from a GPU
        lane.live = self

        def tell(entry: Tuple[Any, ...]) -> None:
            if get_ident() == thread == self.thread:
                if self.stage:
                    self.hand_over()
                if entry[0] == SPAN:
                    self._steps.span_begins(entry[1])
            lane.put(entry)

        return tell

    def consider(self, steps: Any) -> None:
        """A step has ended that `steps` told. If it was a usual one, the next is expected to be one, too."""
        key = steps.optimizers.only
        if not key or steps.fetches != 1 or steps.backwards != 1 or steps.forwards > 1 or not steps.loader_counts:
            return
        if steps.looks or steps.skips or steps.scaled or steps.waiting or steps.nested or steps.by_hand is not None:
            return
        if claims.loss or claims.counts or claims.aside or claims.told:
            return
        if steps.rooted and not self.root:
            return
        self.key = key
        self.on_gpu = steps.optimizers.sole != key
        self.before_learning = CALLED if steps.rooted else FETCHED
        self.last = 0
        self.stage = READY

    def fetch_begins(self, source: int, t: int) -> bool:
        """A batch is asked for, and with that a step has ended that a GPU may have been at.

        Returns:
            Whether the step that begins is taken down here. One that is timed on the device is told by `steps`.
        """
        if self.stage == STEPPED:
            self.end(self.stepped, t)
        device = session.device
        if device.watching and not device.passes(self._lane):
            self.hand_over()
            return False
        if deferred.waiting:
            deferred.poll(self._put)
        self.began = t
        self.source = source
        self.stage = FETCHING
        return True

    def end(self, stepped: int, t: int) -> None:
        """The step is done: the optimizer's was at `stepped`, and it ends at `t`."""
        self._put(
            (
                USUAL,
                self.began,
                self.fetched,
                self.called,
                self.learning,
                self.learnt,
                self.stepping,
                stepped,
                t,
                self.loss,
                self.counts,
            )
        )
        self.last = t
        self.stage = READY
        if t >= self._due:
            self._due = t + NEWS
            if self._steps.news is not None:
                self._steps.news(self._put, False)

    def stop(self) -> None:
        """What is taken down is not wanted any more. Called from any thread."""
        self.stage = OFF

    def hand_over(self) -> None:
        """Something else happens: `steps` goes on from here, as if it had heard of everything so far."""
        stage, self.stage = self.stage, OFF
        steps = self._steps
        if self.last:
            steps.last, self.last = self.last, 0
        if stage in (OFF, READY):
            return
        if stage < LEARNING:
            self.loss = None  # the last step's
        grads_wanted, steps.grads_wanted = steps.grads_wanted, _yes  # they were, or this were no usual step
        self.replaying = True
        try:
            self._replay(stage, steps)
        finally:
            self.replaying = False
            steps.grads_wanted = grads_wanted

    def _replay(self, stage: int, steps: Any) -> None:
        steps.fetch_begins(self.source, self.began)
        if stage >= FETCHED:
            steps.fetch_ends(self.source, self.counts, self.fetched)
        if stage >= CALLING and self.before_learning == CALLED:
            steps.forward_begins(True, self.called)
            if stage >= CALLED:
                steps.forward_ends()
        if stage >= LEARNING:
            steps.backward_begins(None, self.learning)
            steps.loss = self.loss
        if stage >= LEARNT:
            steps.backward_ends(self.learnt)
        if stage >= STEPPING:
            steps.optimizer_begins(self.key, self.stepping)
        if stage >= STEPPED:
            steps.optimizer_ends(self.key, None, self.stepped)

    # For the background thread

    def open(self) -> Optional[Tuple[int, Optional[str], int]]:
        """What is open: since when the step is, its phase, if it is in one, and since when that is; None: no step."""
        stage = self.stage
        if stage == FETCHED == self.before_learning:  # no model is seen
            stage = CALLED
        phase, since = _PHASES[stage]
        if phase is None and since == "began":
            return None
        return self.began, phase, getattr(self, since)

"""Rollouts: the time in which a program steps its environments to collect what it trains on.

The adapters of environment libraries report resets and steps of the outermost environment. A rollout lasts from the
first model call without gradients, or the first environment step, to the last environment step before the learning.
Some programs act by calls with gradients. What such a call is for shows in what follows, an environment step or
gradients; in these programs it is held until then.

An evaluation steps an environment that the learner never sees. Which one that is shows in how it is used: what the
learner sees goes on after an update where it stopped, and an evaluation begins with a reset, beside it. Where no
environment goes on, as all are stepped in whole episodes, those that were stepped before the first update collect, but
for those that are left out of some of the later ones, while all others go on. A program that makes new ones for each
update collects with these. Until that is known, the steps are kept back.
"""

from __future__ import annotations

from typing import Any, List, Optional, Set, Tuple

from trainhooks.auto.instrumentation import framework
from trainhooks.auto.rl import acting
from trainhooks.auto.rl.instances import EVALUATES, TRAINS, UNDECIDED, Counts, Instance
from trainhooks.auto.steps.step_order import CALLED, ODD
from trainhooks.lane_entries import AGGREGATE, AUTOMATIC, CANCEL, FORWARD, NO_PHASE, PhaseMarker, host_clock

ROLLOUT, GENERATION = PhaseMarker(acting.ROLLOUT), PhaseMarker("generation")
MAX_KEPT_BACK = 4096  # environments that are looked at at the end; a program steps fewer
NEW_BLOCKS = 2  # updates in a row from new environments alone; before one an evaluation may stand alone
MIN_ENOUGH = 3  # updates from the same environments without others: these are no collection of changing tasks
MAX_HELD = 64  # calls with gradients: more before an environment step are the learning's
MAX_BESIDE = 64  # threads whose steps are put at the end, too


class Rollouts:
    """The rollouts of one tracker's thread. Times are nanoseconds of the host clock.

    Attributes:
        has_environment: an environment has been reset or stepped.
        collects: the program trains on what its environments return.
        open: a rollout is open, as the phase of the open step; or, without an environment, a generation.
        writing: it is a generation.
        learned: the program has learned since the last environment step.
        acts_with_gradients: a model call with gradients was followed by an environment step.
        acted_at: when the last environment step of a rollout ended.
        held: such calls since then: begin, end, which model's (see `step_order`), and whether that leads.
    """

    __slots__ = (
        "_acting_since", "_alone", "_always", "_block", "_enough", "_first", "_goes_on", "_is_bare", "_kept_back",
        "_new_blocks", "_parted", "_renews", "_stepped", "_tracker", "acted_at", "acts_with_gradients", "beside",
        "collects", "has_environment", "held", "learned", "open", "writing",
    )  # fmt: skip

    def __init__(self, tracker: Any) -> None:
        self._tracker = tracker
        self.has_environment = self.collects = self.open = self.learned = self.writing = False
        self.acts_with_gradients = False
        self.held: List[List[int]] = []
        self.beside: List[acting.Acting] = []
        self._acting_since: Optional[int] = None  # the first model call without gradients since the last rollout
        self.acted_at = 0
        self._is_bare = False  # the open step began with the rollout, in which nothing has been stepped yet
        self._block = 1  # the steps between two updates
        self._stepped: List[Instance] = []  # in the open step
        self._kept_back: List[Instance] = []  # undecided
        self._goes_on = False  # an environment goes on where it stopped
        self._renews = False  # each update has environments of its own
        self._new_blocks = 0
        self._alone: List[Instance] = []  # those of such blocks, until that is known
        self._always: Optional[Set[Instance]] = None  # those that were stepped before each update so far
        self._enough = 0  # updates before which there were no others
        self._first: List[Tuple[Instance, int]] = []  # stepped before the newest, and their steps then
        self._parted = 0  # when the last of them had been stepped

    def acts(self, t: int) -> None:
        """Record a model call without gradients, which may choose an action."""
        if self.open:
            return
        if self.collects and not self._tracker.open:
            self._begin(t)
        elif self._acting_since is None:
            self._acting_since = t

    def holds(self, t: int) -> bool:
        """Record the begin of a model call with gradients. Return whether it is held, as it may choose an action."""
        tracker = self._tracker
        if not self.acts_with_gradients or tracker.nested or len(self.held) >= MAX_HELD:
            return False
        if tracker.open and (tracker.fetches or (tracker.has_gradients and not tracker.stepped)):
            return False
        self.held.append([t, t, ODD, False])
        return True

    def put_held(self) -> None:
        """Put the calls that were held into the open step: they were the learning's."""
        tracker = self._tracker
        for began, ended, call, is_leader in self.held:
            if began >= tracker.began:
                tracker.put((FORWARD, began))
                tracker.put((NO_PHASE, ended))
                tracker.order.extend((call, CALLED))
                tracker.forwards += 1
                tracker.leading_calls += is_leader
        self.held.clear()

    def env_resets(self, instance: Instance, t: int) -> None:
        """Record the begin of an environment's reset."""
        self.has_environment = True
        tracker = self._tracker
        if framework.open_evaluations or framework.open_phases:
            return
        if tracker.in_forward or tracker.in_backward or tracker.nested:
            return
        self._learning_ends(t)
        self._count_block()
        instance.reset_block = self._block
        if instance.use == EVALUATES:
            self._evaluate(t)

    def env_step_begins(self, instance: Instance, t: int) -> bool:
        """Record the begin of an environment's step. Return whether it is counted."""
        tracker = self._tracker
        if framework.open_evaluations or framework.open_phases:
            return False
        may_change = self.learned or self._is_bare or tracker.evaluating or self.held
        if self.open and not may_change and instance.block == self._block and instance.use != EVALUATES:
            return True  # as most are
        self.has_environment = True
        if self.writing:
            self.end()
        if tracker.open and tracker.order and tracker.order[-1] == CALLED:
            self.acts_with_gradients = True
        if not self.open:
            if tracker.in_forward or tracker.in_backward or tracker.nested:
                return False
            self._learning_ends(t)
        if self.held:
            self._acting_since = self._acting_since or self.held[0][0]
            self.held.clear()
        self._count_block()
        if instance.block != self._block:
            self._meets(instance)
        if instance.use == EVALUATES:
            self._evaluate(t)
            return True
        self.collects = True
        self._is_bare = False
        if tracker.evaluating:
            tracker.evaluation_ends(t)
        if not self.open:
            since, self._acting_since = self._acting_since or t, None
            self._begin(since)
            self._is_bare = False
        return self.open

    def env_step_ends(self, instance: Instance, t: int) -> None:
        """Record the end of an environment's step."""
        tracker = self._tracker
        if tracker.evaluating:
            tracker.eval_last = t
        else:
            self.acted_at = t

    def _learning_ends(self, t: int) -> None:
        """End a step in which optimizers have stepped, as an environment is used again."""
        tracker = self._tracker
        if tracker.open and tracker.stepped and (self.collects or tracker.optimizers.all_in(tracker.stepped)):
            tracker.end(t)

    def _count_block(self) -> None:
        if self.learned:
            self.learned = False
            self._block += 1

    def _meets(self, instance: Instance) -> None:
        """Judge an environment by its first step of a block."""
        is_new, instance.block = not instance.block, self._block
        instance.blocks += 1
        if self._stepped and not self._goes_on:
            self._first = [(one, one.counts.steps) for one in self._stepped if one.use != EVALUATES]
            self._parted = self.acted_at
        self._stepped.append(instance)
        if instance.use == TRAINS:
            return
        if not is_new and instance.is_midway():
            instance.use = TRAINS
            self._goes_on = True
        elif self._block > 1 and not self.collects:
            instance.use = EVALUATES  # the program trains on other data
        elif self._renews and is_new:
            instance.use = TRAINS
        elif instance.reset_block == self._block and (self._goes_on or (is_new and self._block > 1)):
            instance.use = EVALUATES
        elif instance.use == UNDECIDED and is_new and len(self._kept_back) < MAX_KEPT_BACK:
            self._kept_back.append(instance)

    def _evaluate(self, t: int) -> None:
        """Begin an evaluation, if none is open; the model call before it was its own."""
        tracker = self._tracker
        if tracker.evaluating:
            return
        if self._is_bare and self.open:
            tracker.cancel(t)
            tracker.evaluation_begins(tracker.began, 0)
        else:
            tracker.end_if_done(t)
            tracker.evaluation_begins(self._acting_since or t, 0)
        self._acting_since = None

    def collection_begins(self, t: int) -> None:
        """Record that a framework begins to collect."""
        tracker = self._tracker
        if not (self.open or tracker.evaluating or tracker.in_backward or tracker.nested):
            self.collects = True
            if tracker.open and tracker.stepped:
                tracker.end(t)
            self._begin(t)
            self._is_bare = False

    def collection_ends(self, t: int) -> None:
        """Record that a framework has collected."""
        if self.open:
            self.acted_at = t
            self.end()

    def _begin(self, t: int) -> None:
        tracker = self._tracker
        self._is_bare = not tracker.open
        if not tracker.open:
            tracker.begin(tracker.since(t))
        if tracker.open:
            tracker.put((ROLLOUT, t))
            self.open = True

    def writes(self, since: int) -> None:
        """Record that the model writes sequences since then, in the open step."""
        if not self.open:
            self._tracker.put((GENERATION, since))
            self.acted_at = since
            self.open = self.writing = True

    def wrote(self, t: int) -> None:
        """Record the end of a model call without gradients, which may be a part of what is written."""
        if self.writing:
            self.acted_at = t

    def end(self) -> None:
        """End the open rollout with its last environment step, as the learning begins."""
        if self._first:
            self._sets_apart()
        self.open = self.writing = False
        self._acting_since = None
        self._tracker.put((NO_PHASE, self.acted_at))

    def _sets_apart(self) -> None:
        """Take what was stepped in whole episodes before the newest environment, which goes on, for an evaluation."""
        first, self._first = self._first, []
        tracker, newest = self._tracker, self._stepped[-1] if self._stepped else None
        if newest is None or not (newest.is_midway() or self._goes_on):
            return
        if not tracker.open or tracker.has_gradients or tracker.may_lag() or self._parted <= tracker.began:
            return
        if any(one.is_midway() or one.counts.steps != steps for one, steps in first):
            return
        tracker.put((CANCEL, host_clock(), AUTOMATIC))
        tracker.open = False
        tracker.evaluation_begins(tracker.began, 0)
        tracker.eval_last = self._parted
        tracker.evaluation_ends(self._parted)
        tracker.begin(self._parted)
        tracker.put((ROLLOUT, self._parted))

    def step_ends(self) -> None:
        """Put what was counted in the step that ends."""
        if self.open:
            self.end()
        self.learned = True
        self._acting_since = None
        if not self._stepped:
            return
        stepped, self._stepped = self._stepped, []
        self._judge(stepped)
        counts = Counts()
        for instance in stepped:
            instance.ends_at_limit()
            if instance.use == TRAINS or (instance.use == UNDECIDED and len(self._kept_back) <= 1):
                counts.take(instance.counts)
        if metrics := counts.metrics():
            self._tracker.put((AGGREGATE, metrics, {}))

    def _judge(self, stepped: List[Instance]) -> None:
        """Judge environments as an update has been made with what was stepped before it."""
        collecting = {instance for instance in stepped if instance.use != EVALUATES}
        if collecting and not self._goes_on:
            always = collecting if self._always is None else collecting & self._always
            if always != self._always:
                self._always, self._enough = always, 0
            self._enough += always == collecting
            if self._enough == MIN_ENOUGH:
                for instance in self._kept_back:
                    if instance not in always and instance.use == UNDECIDED:
                        instance.use = EVALUATES
        if any(instance.use != EVALUATES for instance in stepped):
            self._new_blocks = 0
            self._alone = []
        elif self.collects and not self._goes_on:
            self._new_blocks += 1
            self._alone += stepped
            if self._new_blocks == NEW_BLOCKS:
                self._renews = True
                for instance in self._alone:
                    instance.use = TRAINS
                stepped += [instance for instance in self._alone if instance not in stepped]
                self._alone = []
        if self._goes_on:
            return
        for instance in stepped:
            if instance.use == UNDECIDED and instance.blocks > 1 and instance in (self._always or ()):
                instance.use = TRAINS

    def acts_alone(self, t: int) -> Optional[acting.Acting]:
        """Return what goes on to take the environment steps of this thread, if it has learned nothing for a while."""
        tracker = self._tracker
        if not (tracker.open and self.open) or t - tracker.began < acting.MIN_ACTING or not acting.learns_nothing():
            return None
        alone = acting.Acting(None, tracker.began)
        for instance in self._stepped:
            alone.counts.take(instance.counts)
        tracker.cancel(t)
        self._stepped, self._kept_back = [], []
        return alone

    def works_beside(self, t: int) -> acting.Acting:
        """Return what takes the environment steps of another thread."""
        if len(self.beside) >= MAX_BESIDE:  # of threads that have ended
            first = self.beside.pop(0)
            self.beside[0].counts.take(first.counts)
        self.beside.append(acting.Acting(self, t))
        return self.beside[-1]

    def step_canceled(self) -> None:
        """Forget the counts of a step that is not recorded."""
        self.open = self.writing = False
        self._first = []
        for instance in self._stepped:
            if instance.use != EVALUATES:
                instance.counts.clear()
        self._stepped = [instance for instance in self._stepped if instance.use == EVALUATES]

    def finish(self) -> None:
        """Put what was kept back, at the end of the program, what was stepped last, and what others have not put."""
        counts = Counts()
        for instance in {*self._kept_back, *self._stepped}:
            instance.ends_at_limit()
            if instance.use == TRAINS or (instance.use == UNDECIDED and not self._goes_on):
                counts.take(instance.counts)
        for beside in self.beside:
            counts.take(beside.counts)  # the last half second's
        if metrics := counts.metrics():
            if self._tracker.open:  # nothing learns from it any more
                self._tracker.cancel(host_clock())
            self._tracker.put((AGGREGATE, metrics, {}))

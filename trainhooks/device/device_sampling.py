"""Choose the steps that the device lane times, and the few of these at whose begin the device is delayed.

Sampling keeps the cost of timing within BUDGET. Never each k-th step: a program that logs each 20th would always or
never be seen logging. Of each block of steps one is timed, at random, and stands for the block. The random numbers come
from a generator of our own; the program's are left alone.

Where the host launches more slowly than the device works, an interval between two marks
holds idle time too, and events alone cannot tell how much. In a step before which the device was held up until the host
had queued it, kernels run back to back: what was queued before the device reached it is time in which it was busy. The
device does nothing useful meanwhile, so this is done in a few steps of one rank, and only where it can show something.
Whether the host did get ahead is checked for each interval (`delay_report`). A step that waits for the device, or that
queues more than the device takes, shows nothing. The background thread decides how long a delay is (`learn`, `took`);
the training thread queues it (`queue`).
"""

from __future__ import annotations

import math
import os
from collections import deque
from statistics import median
from typing import Any, Deque, Dict, List, NamedTuple, Optional, Tuple

from trainhooks.device import cuda
from trainhooks.lane_entries import NANOSECOND, host_clock

BUDGET = 0.005  # of the step time, on average
# What is measured around our own calls is less than what they cost: caches are cold afterwards, and a timed step goes
# the slow way through `auto`.
COST_SAFETY_FACTOR = 2.0
FIRST_STEPS = 3  # timed one after the other, to learn what timing costs
MIN_TRIES = 10  # at that, where some cannot be timed
MAX_BLOCK = 1000  # steps
DECAY = 7 / 8  # of what is known of the step time is kept when new steps are added
MAX_UNTIMED_NS = 5_000_000_000  # without a timed step; then a new block is drawn, since steps have changed
MAX_COST_RATIO = 10  # of a step's cost to the mean: above, the thread had to wait for its core
_MASK = (1 << 64) - 1


class Sampling:
    """Choose the steps to time, from what timing costs and how long steps are. Times in nanoseconds."""

    __slots__ = (
        "_cost",
        "_done",
        "_every",
        "_overdue",
        "_random",
        "_rest_of_block",
        "_since",
        "_skip",
        "_steps",
        "_steps_since",
        "_total_ns",
        "_tries",
    )

    def __init__(self) -> None:
        self._random = int.from_bytes(os.urandom(8), "little")
        self._every = 1  # size of the block of the next timed step
        self._skip = 0  # steps until that one
        self._rest_of_block = 0  # steps after it
        self._since = 0  # when the last timed step began, or a new block was drawn
        self._overdue = 0  # how long after that a new block is drawn without a timed step
        self._total_ns = 0.0  # of intervals between timed steps, the older ones decayed; and of their steps
        self._steps = 0.0
        self._steps_since = 0  # steps that began since `_since`
        self._cost = 0.0  # mean of a timed step
        self._done = self._tries = 0

    @property
    def every(self) -> int:
        """Return how many steps the next timed one stands for."""
        return self._every

    def due(self, now: int) -> bool:
        """Return whether the step that begins now is to be timed. Asked once a step; `begins` follows if it is."""
        if not self._skip:
            return True
        if now - self._since > self._overdue:
            self._total_ns = self._steps = 0.0  # the known step time is outdated
            self._add(now)
            self._rest_of_block = 0
            self._draw()
        else:
            self._skip -= 1
        self._steps_since += 1
        return False

    def begins(self, now: int) -> int:
        """Note that a timed step begins. Return how many steps it stands for."""
        every = self._every
        self._add(now)
        self._steps_since += 1
        self._tries += 1
        self._draw()
        return every

    def add_cost(self, cost: int) -> None:
        """Add what a timed step cost the training thread."""
        self._done += 1
        known = self._cost
        if known and self._done > 1:  # else it is the cost of steps that could not be timed
            cost = min(cost, int(MAX_COST_RATIO * known))
        self._cost = known + (cost - known) / min(self._done, 8)

    def add_failure(self, cost: int) -> None:
        """Add the cost of a step that could not be timed: all that is known as long as none can."""
        if not self._done:
            self._cost = max(self._cost, float(cost))

    def settle(self, nanoseconds: int) -> None:
        """Time no step for so long: the ones that come are not typical."""
        self._skip += math.ceil(nanoseconds * max(1.0, self._steps) / self._total_ns) if self._total_ns else 1

    def _add(self, now: int) -> None:
        """Add the interval up to now and the steps that began in it to what is known of the step time."""
        if self._since:
            self._total_ns = DECAY * self._total_ns + (now - self._since)
            self._steps = DECAY * self._steps + self._steps_since
        self._since = now
        self._steps_since = 0

    def _draw(self) -> None:
        """Choose the next timed step, at random in the next block."""
        step = self._total_ns / max(1.0, self._steps)
        self._every = every = self._block_size(step)
        place = self._below(every)
        self._skip = self._rest_of_block + place
        self._rest_of_block = every - 1 - place
        self._overdue = max(MAX_UNTIMED_NS, int(4 * every * step))

    def _block_size(self, step: float) -> int:
        if (self._done < FIRST_STEPS and self._tries < MIN_TRIES) or not step or not self._cost:
            return 1
        return max(1, min(MAX_BLOCK, math.ceil(COST_SAFETY_FACTOR * self._cost / (BUDGET * step))))

    def _below(self, most: int) -> int:
        """Return a random number from 0 to `most` - 1."""
        self._random = (self._random * 6364136223846793005 + 1442695040888963407) & _MASK
        return (self._random >> 33) % most


MAX_DELAYS = 8  # of a run that showed something: their spread shows how reliable they are
MAX_VOID_DELAYS = 3  # in a row that showed nothing, after which there are no more delays: each costs time
MAX_TRIES = 16  # in all
MAX_DELAY_NS = 50_000_000  # a host that takes longer to queue a step is not worth a delay
MAX_DELAY_SHARE = 0.001  # of the time since the previous delay: a fifth of what timing steps may cost
MIN_SPACING_NS = 5_000_000_000  # between two delays
MIN_STEPS_LEARNED = 8  # typical steps that show how long the host takes, most of them no first ones
MAX_STEPS_LEARNED = 16  # that are kept
DELAY_FACTOR, EXTRA_DELAY_NS = 1.25, 500_000  # a delay is that much longer than required
MAX_CERTAIN_SHARE = 0.9  # of a typical step in which the device is certainly busy: beyond, little is left to find out
MIN_FREE_MEMORY_SHARE = 0.1  # of the device's memory: work in the queue may keep blocks from being reused
MAX_UNSURE_SHARE = 0.1  # of a typical step, in which the host was not certainly ahead: beyond, the delay was void
MIN_DELAY_RATIO = 0.8  # of a delay's length to the wanted one; below, its length is why it showed nothing
# The host is ahead for some steps afterwards. Where a typical step leaves the device idle for more than a thirtieth of
# the time, the delay is made up for after thirty times its length; where it leaves less, the difference is that small.
SETTLE_FACTOR = 30
# Until a delay was measured: below the clocks of busy GPUs, so that the first one is too short rather than too long.
CYCLES_PER_NS = 1.0
MIN_CYCLES_PER_NS, MAX_CYCLES_PER_NS = 0.2, 4.0

WAITING = "on: no step is delayed yet"
ON = "on"
OTHER_RANK = "off: rank 0 alone is delayed"
MISSING = "off: this torch cannot delay a device"
NO_MEMORY = "not now: less than 10% of the device's memory is free"
LONG = "not now: the host takes longer than 50 ms to queue a step"
BUSY = "not now: the device is certainly busy for 90% of the time"
NEVER_AHEAD = "ended: the host never got ahead; the steps wait for the device, or queue more than it takes"
DONE = "ended: enough steps were delayed"
GIVEN_UP = "ended: too few of the delayed steps could be timed"


class Work(NamedTuple):
    """A step's certain work, in nanoseconds.

    Attributes:
        certain: begins and ends of intervals in which the queue certainly held work, from the begin of the step on.
        lag: how far the device was behind the host at most.
        unreached: when the host made each mark, and until when, by the host's clock, the device had not reached it.
    """

    certain: List[Tuple[int, int]]
    lag: int
    unreached: List[Tuple[int, int]]

    def is_certain_at(self, t: int) -> bool:
        """Return whether the queue certainly held work at this time of the host's clock."""
        return any(made <= t < until for made, until in self.unreached)


class Queued(NamedTuple):
    """A delay queued behind the first mark of a step. Times in nanoseconds of the host clock."""

    event: Any  # recorded behind the delay
    at: int  # when the host recorded it
    cycles: int
    wanted: int


class Delayed(NamedTuple):
    """A delay that the device has passed, and the milliseconds that it took."""

    milliseconds: float
    at: int
    cycles: int
    wanted: int


class DelayReport(NamedTuple):
    """What a delayed step shows: seconds by phase."""

    busy: Dict[str, float]
    unsure: Dict[str, float]  # intervals in which the device may have waited for the host


class Delay:
    """Decide when to delay the device and for how long. `status` is shown to users."""

    def __init__(self) -> None:
        self.status = WAITING
        self._wanted = 0  # nanoseconds; 0: not now
        self._since = 0  # when the last delay was queued or put off; at first, when the first step was timed
        self._rate = CYCLES_PER_NS
        self._required: Deque[int] = deque(maxlen=MAX_STEPS_LEARNED)  # of typical steps
        self._lengths: Deque[int] = deque(maxlen=MAX_STEPS_LEARNED)  # by the device
        self._useful = self._void_in_row = self._tries = 0
        self._ended = False

    # The training thread

    def due(self, now: int) -> bool:
        """Return whether the timed step that begins now is to be delayed."""
        if not self._since:
            self._since = now
        wanted = self._wanted
        return (
            0 < wanted <= MAX_DELAY_SHARE * (now - self._since)
            and now - self._since >= MIN_SPACING_NS
            and self._tries < MAX_TRIES
        )

    def queue(self, event: Any, stream: Any) -> Optional[Queued]:
        """Delay the current stream and record the event behind that; None where it may not be. CUDA must be quiet."""
        self._since = host_clock()
        if cuda.free_memory() < MIN_FREE_MEMORY_SHARE:
            self.status = NO_MEMORY
            return None
        wanted = self._wanted
        cycles = int(wanted * self._rate)
        if not cuda.delay_stream(cycles):
            self._end(MISSING)
            return None
        self.status = ON
        self._tries += 1
        at = host_clock()
        event.record(stream)
        return Queued(event, at, cycles, wanted)

    # The background thread

    def learn(self, host: List[int], device: List[int], work: Work, device_sets_pace: bool) -> None:
        """Learn from a typical step.

        Args:
            host, device: when each mark was made, and when the device reached it; the device's from 0 on.
            work: its certain work.
            device_sets_pace: whether such steps certainly keep the device busy: a delay would show nothing.
        """
        if self._ended or not device[-1]:
            return
        if self._tries >= MAX_TRIES:
            self._end(GIVEN_UP)
            return
        self._required.append(required_delay(host, device, work))
        self._lengths.append(device[-1])
        if len(self._required) < MIN_STEPS_LEARNED:
            return
        wanted = int(DELAY_FACTOR * median(self._required)) + EXTRA_DELAY_NS
        if device_sets_pace:
            self._put_off(BUSY)
        elif wanted > MAX_DELAY_NS:
            self._put_off(LONG)
        else:
            self._wanted = wanted
            if self.status in (BUSY, LONG):
                self.status = WAITING

    def add_delayed_step(self, delay: Delayed, report: Optional[DelayReport]) -> None:
        """Add a delayed step that was timed; None: it shows nothing."""
        nanoseconds = _nanoseconds(delay)
        if nanoseconds > 0:
            self._rate = min(MAX_CYCLES_PER_NS, max(MIN_CYCLES_PER_NS, delay.cycles / nanoseconds))
        if report is not None:
            if sum(report.unsure.values()) * NANOSECOND <= MAX_UNSURE_SHARE * median(self._lengths):
                self._useful += 1
                self._void_in_row = 0
            elif nanoseconds >= MIN_DELAY_RATIO * delay.wanted:
                self._void_in_row += 1
        if self._useful >= MAX_DELAYS:
            self._end(DONE)
        elif self._void_in_row >= MAX_VOID_DELAYS:
            self._end(NEVER_AHEAD)

    def refuse(self) -> None:
        """End all delays: this process is not rank 0."""
        self._end(OTHER_RANK)

    def _put_off(self, why: str) -> None:
        self._wanted, self.status = 0, why

    def _end(self, why: str) -> None:
        self._ended = True
        self._put_off(why)


def required_delay(host: List[int], device: List[int], work: Work) -> int:
    """Return for how many nanoseconds the device must be delayed so that the host is ahead at each mark of a step.

    The host must have made each mark when the device reaches the one before. The device's certain work up to then
    counts; what it may work besides does not.
    """
    longest = 0
    for place in range(1, len(host)):
        done = sum(max(0, min(until, device[place - 1]) - begin) for begin, until in work.certain)
        longest = max(longest, host[place] - host[0] - done)
    return longest


def after_delay(times: List[int], delay: Delayed) -> List[int]:
    """Return when the device reached each mark, from the end of the delay on; 0 for the first."""
    return [max(0, t - _nanoseconds(delay)) for t in times]


def with_delay_mark(host: List[int], device: List[int], delay: Delayed) -> Tuple[List[int], List[int]]:
    """Return the marks of a step, by host and device, with the one behind the delay."""
    return [host[0], delay.at, *host[1:]], [device[0], _nanoseconds(delay), *device[1:]]


def delay_report(host: List[int], times: List[int], names: List[str], work: Work) -> DelayReport:
    """Return the intervals that were certainly queued in time, in which the device was busy throughout, and the others.

    Args:
        host, times: when each mark of the step was made, and when the device reached it, from the delay's end on.
        names: what goes on from each mark but the last.
        work: of all marks, with the one behind the delay.
    """
    busy: Dict[str, float] = {}
    unsure: Dict[str, float] = {}
    for place, name in enumerate(names):
        seconds = (times[place + 1] - times[place]) / NANOSECOND
        # Up to just before the mark was made, so that an earlier one is what the device had still to reach.
        if seconds:
            table = busy if work.is_certain_at(host[place + 1] - 1) else unsure
            table[name] = table.get(name, 0.0) + seconds
    return DelayReport(busy, unsure)


def _nanoseconds(delay: Delayed) -> int:
    return int(delay.milliseconds * 1e6)

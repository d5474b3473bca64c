"""A short delay of the device at the begin of a few timed steps: the host gets ahead, and kernels run back to back.

Off by default. Where the host launches more slowly than the device works, an interval between two marks holds idle
time, too, and events alone cannot tell how much. In a step before which the device was held up for as long as the host
takes to queue it, they can: what was queued before the device came by is time in which it was busy, and nothing else.

The device does nothing of use meanwhile, so this is done in a few steps of one rank, seldom, and only where it can
tell something. Whether the host did get ahead is never assumed: `told` looks at each interval for itself. A step that
waits for the device, or that queues more than the device takes, tells nothing.

The background thread says how long a delay is wanted (`learn`, `took`); the thread that trains queues it (`queue`).
"""

from __future__ import annotations

import os
from collections import deque
from statistics import median
from typing import TYPE_CHECKING, Any, Deque, Dict, List, NamedTuple, Optional, Tuple

from trainhooks import cuda
from trainhooks.clocks import NANOSECOND, host_clock

if TYPE_CHECKING:
    from trainhooks.device_queue import Work  # not loaded with `import trainhooks`: the background thread has it

VARIABLE = "TRAINMON_GPU_DELAY"  # 1: on

MOST = 8  # delays of a run that told something: their spread shows how far they can be relied on
VOID = 3  # in a row that told nothing, after which there are no more: each costs the training its delay
TRIES = 16  # in all, whatever came of them
LONGEST = 50_000_000  # nanoseconds of a delay; a host that takes longer for a step is not worth one
SHARE = 0.001  # of the time since the delay before: a fifth of what timing steps may cost
SPACING = 5_000_000_000  # nanoseconds between two, at least
ENOUGH = 8  # usual steps that say how long the host takes, most of them no first ones
KEPT = 16  # of them
MARGIN, SPARE = 1.25, 500_000  # a delay is that much longer than needed, as a factor and in nanoseconds
CERTAIN = 0.9  # of usual steps that the device is busy for certain: there is little left to find out
FREE = 0.1  # of the device's memory: work that waits in the queue may keep blocks from being used again
UNSURE = 0.1  # of a usual step, in which the host was not certainly ahead: it tells nothing then
# The host is ahead for some steps afterwards. Where a usual step leaves the device idle for more than a thirtieth of
# the time, the delay is made up for after thirty times its length; where it leaves less, the difference is that small.
SETTLE = 30
# Cycles in a nanosecond, until a delay was measured: below the clocks of GPUs that work, so the first is too short
# rather than too long.
CYCLES = 1.0
FEWEST_CYCLES, MOST_CYCLES = 0.2, 4.0

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


class Queued(NamedTuple):
    """A delay behind the first mark of a step."""

    event: Any  # recorded behind it
    at: int  # when the host recorded that
    cycles: int
    wanted: int  # nanoseconds


class Delayed(NamedTuple):
    """The same, once the device has come by."""

    milliseconds: float
    at: int
    cycles: int
    wanted: int


class Told(NamedTuple):
    """What a delayed step tells: seconds by phase."""

    busy: Dict[str, float]
    unsure: Dict[str, float]  # intervals in which the device may have waited for the host


class Delay:
    """When to delay the device, and for how long.

    Attributes:
        said: what is to be told about it.
    """

    def __init__(self) -> None:
        self.said = WAITING
        self._wanted = 0  # nanoseconds; 0: not now
        self._since = 0  # when the last delay was queued or put off; at first, when the first step was timed
        self._rate = CYCLES
        self._needed: Deque[int] = deque(maxlen=KEPT)  # of usual steps
        self._lengths: Deque[int] = deque(maxlen=KEPT)  # by the device
        self._certain: Deque[float] = deque(maxlen=KEPT)
        self._told = self._void = self._tries = 0
        self._ended = False

    # The thread that trains

    def due(self, now: int) -> bool:
        """Whether the timed step that begins now is to be delayed."""
        if not self._since:
            self._since = now
        wanted = self._wanted
        return 0 < wanted <= SHARE * (now - self._since) and now - self._since >= SPACING and self._tries < TRIES

    def queue(self, event: Any, stream: Any) -> Optional[Queued]:
        """Hold up the current stream and record the event behind that; None where it may not be. CUDA must be quiet."""
        self._since = host_clock()
        if cuda.free_memory() < FREE:
            self.said = NO_MEMORY
            return None
        wanted = self._wanted
        cycles = int(wanted * self._rate)
        if not cuda.delay(cycles):
            self._end(MISSING)
            return None
        self.said = ON
        self._tries += 1
        at = host_clock()
        event.record(stream)
        return Queued(event, at, cycles, wanted)

    # The background thread

    def learn(self, host: List[int], device: List[int], work: Work) -> None:
        """A usual step: when each mark was made, and when the device came by, from 0 on; what was certain of it."""
        if self._ended or not device[-1]:
            return
        if self._tries >= TRIES:
            self._end(GIVEN_UP)
            return
        self._needed.append(needed(host, device, work))
        self._lengths.append(device[-1])
        self._certain.append(sum(until - begin for begin, until in work.certain) / device[-1])
        if len(self._needed) < ENOUGH:
            return
        wanted = int(MARGIN * median(self._needed)) + SPARE
        if median(self._certain) >= CERTAIN:
            self._put_off(BUSY)
        elif wanted > LONGEST:
            self._put_off(LONG)
        else:
            self._wanted = wanted
            if self.said in (BUSY, LONG):
                self.said = WAITING

    def took(self, delay: Delayed, told: Optional[Told]) -> None:
        """A delayed step was timed; None: nothing can be told of it."""
        nanoseconds = _nanoseconds(delay)
        if nanoseconds > 0:
            self._rate = min(MOST_CYCLES, max(FEWEST_CYCLES, delay.cycles / nanoseconds))
        if told is not None:
            if sum(told.unsure.values()) * NANOSECOND <= UNSURE * median(self._lengths):
                self._told += 1
                self._void = 0
            elif nanoseconds >= 0.8 * delay.wanted:  # else it was its length that was wrong
                self._void += 1
        if self._told >= MOST:
            self._end(DONE)
        elif self._void >= VOID:
            self._end(NEVER_AHEAD)

    def refuse(self) -> None:
        """This process is not the first of its job."""
        self._end(OTHER_RANK)

    def _put_off(self, why: str) -> None:
        self._wanted, self.said = 0, why

    def _end(self, why: str) -> None:
        self._ended = True
        self._put_off(why)


def wanted() -> Optional[Delay]:
    """None unless the environment asks for delays."""
    asked = os.environ.get(VARIABLE, "0").lower() in ("1", "true", "yes", "on")
    return Delay() if asked else None


def needed(host: List[int], device: List[int], work: Work) -> int:
    """For how long the device must be held up at the begin of a step, so that the host is ahead at each mark.

    The host has to have made each mark when the device comes by the one before. What the device certainly works by
    then counts; what it may work besides does not.
    """
    longest = 0
    for place in range(1, len(host)):
        done = sum(max(0, min(until, device[place - 1]) - begin) for begin, until in work.certain)
        longest = max(longest, host[place] - host[0] - done)
    return longest


def since_delay(times: List[int], delay: Delayed) -> List[int]:
    """When the device came by each mark, from the end of the delay on; by the first: then, too."""
    return [max(0, each - _nanoseconds(delay)) for each in times]


def with_delay(host: List[int], device: List[int], delay: Delayed) -> Tuple[List[int], List[int]]:
    """The marks of a step with the one behind the delay."""
    return [host[0], delay.at, *host[1:]], [device[0], _nanoseconds(delay), *device[1:]]


def told(host: List[int], times: List[int], names: List[str], work: Work) -> Told:
    """What was certainly queued in time, interval by interval: the device was busy all through these.

    Args:
        host, times: when each mark of the step was made, and when the device came by, from the delay's end on.
        names: what goes on from each mark on, but the last.
        work: of all marks, with the one behind the delay.
    """
    busy: Dict[str, float] = {}
    unsure: Dict[str, float] = {}
    for place, name in enumerate(names):
        seconds = (times[place + 1] - times[place]) / NANOSECOND
        # Up to just before it was made, so that it is an earlier mark which the device had still to come by.
        if seconds:
            table = busy if work.is_certain_at(host[place + 1] - 1) else unsure
            table[name] = table.get(name, 0.0) + seconds
    return Told(busy, unsure)


def _nanoseconds(delay: Delayed) -> int:
    return int(delay.milliseconds * 1e6)

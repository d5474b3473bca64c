"""Decide which steps are traced, and trace them: begun and ended by the training thread, between two steps.

A step longer than a second is traced by parts (`parts`), which begin and end where its phases do (`at_mark`).

The background thread decides (`is_due`, `arm`), the training thread acts (`at_boundary`), and the background thread
reads what was recorded (`finished`). A trace costs the training thread time when it ends, so there are few: one step
first, whose number of events says how many steps the next may hold; then one again after half an hour. What they cost
is measured in place. A trace that a person asks for (`ask`) keeps to no such budget, but to all that forbids a trace.
"""

from __future__ import annotations

import sys
import time
from threading import get_ident, main_thread
from typing import Any, List, NamedTuple, Optional, Tuple

from trainhooks.device import cuda
from trainhooks.lane_entries import CANCEL, END, NANOSECOND, NEXT, QUIT, SPAN, Lane, PhaseMarker, host_clock
from trainhooks.program_errors import pass_on
from trainhooks.tracing import is_wanted, profiler, wants_operators
from trainhooks.tracing.parts import Parts
from trainhooks.tracing.profiler import Session

FIRST_STEP = 10  # before it, libraries load, caches fill and memory is allocated
STEPS = 3  # of a trace
FIRST_LONG_STEP = 3  # likewise, where each is longer than a second: its phases are known from the one before
MAX_STEP_NS = NANOSECOND  # steps that are longer in the mean are not traced as a whole
# After the end of a part, for the device to reach it: what is launched meanwhile is what the driver's queue holds.
MAX_LAG_NS = 10 * NANOSECOND
MAX_MARKS = 512  # of a part
MAX_WAITED = 2  # steps in which the part that is armed does not begin
MAX_TRACE_NS = NANOSECOND  # after which a trace ends at the next boundary
MAX_EVENTS = 10_000
# Of a step: what a launch of its forward pass stands for, its backward and the call beside each kernel included; and
# nanoseconds for an event when a trace ends, on a slow host.
EVENTS_A_LAUNCH = 7
EVENT_NS = 20_000
MAX_ASKED_TRACE_NS = 60 * NANOSECOND  # as MAX_TRACE_NS, of a trace that was asked for
MAX_ASKED_EVENTS = 100_000  # of the same, by the trace before: they take some hundred bytes each until they are read
MAX_PAUSE_NS = 300_000_000  # that the first trace may stop the training thread for, or any one without a GPU
MAX_LATER_PAUSE_NS = 60_000_000  # likewise, of those after it on a GPU, by what the one before took
FOREVER = 1 << 62  # the end of a trace that has not ended
MAX_WAIT_NS = 500_000_000  # that a profiler of the program's waits for a trace in another thread to end
MAX_DETACH_NS = 100_000_000  # after the end of a trace, until the device can be traced by somebody else
POLL_SECONDS = 0.002
MIN_FREE_MEMORY_SHARE = 0.1  # of the device's memory: with less free, no step is traced
MAX_VOID = 3  # traces without a whole step, after which there are no more
SPACING_NS = 1_800 * NANOSECOND  # between two traces, once there are two
PACE_NS = 30 * NANOSECOND  # over which the pace is known
MIN_PACE_CHANGE = 1.5  # times as fast or as slow as when it was traced: then the next trace is due sooner
MIN_SPACING_NS = NANOSECOND  # between the first and the second, and between two tries
MAX_SHARE = 0.001  # of the time: what all traces but the first may cost

WAITING = "on: no step is traced yet"
ON = "on"
OFF = "off: by setting"
OPERATORS = "off: operators of a CPU are traced on demand, or with TRAINMON_TRACE=1"
OTHER_THREAD = "off: the steps run beside the main thread, and torch's profiler would print"
FORKED = "off: in a forked process"
NO_TORCH = "off: torch is not loaded"
OTHER_RANK = "off: rank 0 alone is traced"
LONG = "not now: a step takes longer than 1 s, and no part of it can be traced"
NO_PART = "not now: the part of a step that was to be traced did not begin"
PROGRAM = "off: the program uses a profiler"
GRAPHS = "off: the program captures CUDA graphs"
CAPTURING = "not now: a CUDA graph is being captured"
NO_MEMORY = "not now: less than 10% of the device's memory is free"
NO_STREAM = "not now: the GPU of the model is not known"
COMPILING = "not now: the program is being compiled"
ENDED = "the thread of the steps has ended"
CANCELLED = "nobody waits for it any longer"
LATE = "ended before the GPU had done all of its work"
VOID = "ended: no whole step could be traced"
EXPENSIVE = "ended: another trace would stop the training for longer than 60 ms, or a first one for longer than 300 ms"


class Finished(NamedTuple):
    """A trace that has ended. Times in nanoseconds of the host clock."""

    session: Session
    result: Any
    on_cuda: bool
    asked: int  # when its begin was called
    began: int
    was_idle: bool  # whether the device had nothing to do then
    until: int  # what was launched until then is recorded as a whole
    ended: int
    pause: int  # that the training thread stood still for
    left_out: Optional[str] = None
    by_request: bool = False  # a person asked for it
    since: Optional[int] = None  # when the part of a step began that was traced; None: whole steps were


class Asked(NamedTuple):
    """What a person asks for."""

    steps: int
    anyway: bool  # in spite of the `doubts`


class Tracer:
    """Trace steps of one thread of this process. What the training thread calls never raises.

    Attributes:
        wanted: whether `at_boundary` is to be called where a step begins.
        status: as shown to users; None before torch is used.
        refusal: why the newest trace that was armed did not begin; None where it did, or may still.
        finished: the newest trace, until the background thread has taken it.
    """

    def __init__(self) -> None:
        self.wanted = False
        self.status: Optional[str] = None
        self.refusal: Optional[str] = None
        self.finished: Optional[Finished] = None
        self._forbidden: Optional[str] = None if is_wanted() else OFF  # why not even a trace that is asked for
        self._asked_for: Optional[Asked] = None  # by a person
        self._cancelled = False
        self.parts = Parts()
        self._part: Optional[str] = None  # the phase with which a part begins; None: whole steps are traced
        self._marks: List[Tuple[int, Any]] = []  # of that part: the time, and an event of the device
        self._since = self._waited = 0  # when it began; steps in which it did not
        self._lane: Optional[Lane] = None  # whose steps are traced
        self._on_cuda = False
        self._steps_wanted = 1
        self._session: Optional[Session] = None
        self._thread = 0  # that began it
        self._stream: Any = None  # on which events are recorded
        self._was_idle = False
        self._last: Any = None  # the event at the end of the last wanted step
        self._asked = self._began = self._steps = self._pause = 0
        self._complete: Optional[int] = None  # when the last wanted step had ended
        self._until = FOREVER
        self.launches: Optional[int] = None  # of a forward pass, about
        # What the background thread knows.
        self._first: Optional[int] = None  # when the first step was seen
        self._last_try = 0  # to trace
        self._traces = 0
        self._spent = 0  # by all traces but the first
        self._has_ended = False
        self._void = 0  # traces without a whole step
        self._window = 0, 0  # since when the pace is measured, and the steps by then
        self._pace = self._traced_pace = 0.0  # steps a nanosecond: now, and after the last trace; 0: not known
        self._steps_next = 1
        self._step_pause = 0
        self._step_events = 0

    @property
    def has_begun(self) -> bool:
        """Whether the newest trace that was armed has begun."""
        return self._session is not None or self.finished is not None

    @property
    def in_part(self) -> bool:
        """Whether a part of a step is to be traced, or is: `at_mark` is called for each entry."""
        return self.wanted and self._part is not None

    @property
    def window(self) -> Tuple[int, int]:
        """Return from when until when the newest trace disturbed the training; its begin is 0 before there is one."""
        return self._asked, self._until

    # The background thread

    def is_due(self, on_cuda: bool, steps: int) -> bool:
        """Return whether it is time for a trace.

        Args:
            on_cuda: whether the program works on a GPU: then kernels are recorded, else operators.
            steps: how many there were so far.
        """
        now = host_clock()
        if self._first is None:
            self._first = now
        if self._has_ended or self.wanted or self.finished is not None or "torch" not in sys.modules:
            return False
        has_changed = self._has_changed(now, steps)
        first = FIRST_LONG_STEP if on_cuda and self.parts.is_long else FIRST_STEP
        if steps < first or not self._can_afford(now, now - self._first, has_changed):
            return False
        why = self._forbidden or profiler.why_never(on_cuda) or next(iter(profiler.doubts(on_cuda)), None)
        if why is not None:
            self.turn_off(why)
        elif not on_cuda and not wants_operators():
            self.turn_off(OPERATORS)
        elif on_cuda and self.parts.is_long:
            self._part = self.parts.choose(self.launches, MAX_PAUSE_NS // EVENT_NS)
            if self._part is not None:
                return True
            self.status = LONG
        elif (now - self._first) / steps > MAX_STEP_NS:
            self.status = LONG
        elif not self._traces and EVENT_NS * EVENTS_A_LAUNCH * (self.launches or 0) > MAX_PAUSE_NS and on_cuda:
            self.turn_off(EXPENSIVE)
        else:
            self._part = None
            return True
        return False

    def _has_changed(self, now: int, steps: int) -> bool:
        """Return whether the program goes much faster or slower than when it was traced last."""
        began, before = self._window
        if not began or steps < before:
            self._window = now, steps
        elif now - began >= PACE_NS:
            self._window = now, steps
            self._pace = (steps - before) / (now - began)
            self._traced_pace = self._traced_pace or self._pace
        pace, traced = self._pace, self._traced_pace
        return bool(pace and traced) and not 1 / MIN_PACE_CHANGE < pace / traced < MIN_PACE_CHANGE

    def _can_afford(self, now: int, elapsed: int, has_changed: bool) -> bool:
        """Return whether the last trace or try is long enough ago for what the next one costs."""
        spacing = MIN_SPACING_NS if self._traces < 2 or self.parts.are_left else PACE_NS if has_changed else SPACING_NS
        expected = self._spent + self._steps_next * self._step_pause
        return now - self._last_try >= spacing and (not self._traces or expected <= MAX_SHARE * elapsed)

    def arm(self, lane: Lane, on_cuda: bool) -> None:
        """Let the training thread trace the next steps of this lane."""
        self.status = self.status or WAITING
        self._arm(lane, on_cuda, None, self._steps_next)

    def _arm(self, lane: Lane, on_cuda: bool, asked: Optional[Asked], steps: int) -> None:
        self._lane, self._on_cuda, self._asked_for, self._steps_wanted = lane, on_cuda, asked, steps
        self.refusal, self._cancelled, self._waited = None, False, 0
        self.wanted = True

    def why_refused(self, on_cuda: bool) -> Optional[str]:
        """Return why no trace may be asked for; None where one may."""
        if self._forbidden is None and "torch" not in sys.modules:
            return NO_TORCH
        return self._forbidden or profiler.why_never(on_cuda)

    @staticmethod
    def doubts(lane: Lane, on_cuda: bool) -> List[str]:
        """Return what a person has to agree to before a trace: what it may print, or leave behind."""
        beside = [] if lane.thread is main_thread() else [OTHER_THREAD]
        return profiler.doubts(on_cuda) + beside + ([GRAPHS] if on_cuda and cuda.captured else [])

    def ask(self, lane: Lane, on_cuda: bool, asked: Asked) -> int:
        """Arm a trace as asked for, of fewer steps where so many would record too much. Return of how many.

        To be called while nothing is `wanted` or `finished`, and where neither `why_refused` nor `doubts` speak against
        it. That holds for the training thread as well, which has the last word (`refusal`).
        """
        most = MAX_ASKED_EVENTS // self._step_events if self._step_events else asked.steps
        steps = max(1, min(asked.steps, most))
        self._part = None
        self._arm(lane, on_cuda, asked, steps)
        return steps

    def thread_ended(self) -> None:
        """Note that no step will begin on the lane that was armed: its thread has ended."""
        if self._session is None:
            self.refusal, self.wanted = ENDED, False

    def cancel(self) -> None:
        """Let the trace that is armed not begin any more."""
        self._cancelled = True

    def turn_off(self, why: str, running: bool = False) -> None:
        """Begin no trace from here on that nobody asks for; let one that is `running` be ended by its thread."""
        self.status, self._has_ended = why, True
        self.wanted = running and self._session is not None

    def _forbid(self, why: str, running: bool = False) -> None:
        """Begin no trace from here on, whoever asks."""
        self._forbidden = why
        self.turn_off(why, running)

    def learn(self, trace: Finished, steps: int, events: int) -> None:
        """Add what a trace cost, once it was read: it sizes the next.

        Args:
            steps: that lie in it as a whole; of parts, how many phases.
            events: that it recorded.
        """
        self._last_try = host_clock()
        if self._traces and not trace.by_request:
            self._spent += trace.pause
        if not steps:
            self._void += not trace.by_request
            if self._void >= MAX_VOID:
                self.turn_off(VOID)
            return
        self._traces += 1
        most = MAX_LATER_PAUSE_NS if trace.on_cuda else MAX_PAUSE_NS
        if trace.since is not None:
            self._step_pause = trace.pause
            if trace.pause > MAX_PAUSE_NS:
                self.turn_off(EXPENSIVE)
            elif not self._has_ended:
                self.status = ON
            return
        self._pace = self._traced_pace = 0.0  # of the time from here on
        self._step_events = max(1, events // steps)
        self._step_pause = trace.pause // steps
        self._steps_next = min(STEPS, MAX_EVENTS * steps // max(1, events), most // max(1, self._step_pause))
        if not self._steps_next:
            self.turn_off(EXPENSIVE)
        elif not self._has_ended:
            self.status = ON

    # The training thread

    def at_boundary(self, lane: Lane, place: cuda.DevicePlace) -> None:
        """Begin a trace, or end it once its steps are done. Where a step begins; to be called while `wanted`."""
        if lane is not self._lane:
            return
        try:
            if self._part is not None:
                self._part_at_boundary()
            elif self._session is None:
                self._begin(place)
            elif get_ident() == self._thread:
                self._steps += 1
                if self._is_done():
                    self._end(self._session)
        except Exception as error:
            self._fail(error)

    def at_mark(self, lane: Optional[Lane], place: cuda.DevicePlace, entry: Tuple[Any, ...]) -> None:
        """Begin or end the trace of a part where a phase begins or ends, at an entry just put; while `wanted`."""
        what = entry[0]
        if self._part is None or lane is not self._lane or (type(what) is int and what > SPAN):
            return
        phase = what.name if type(what) is PhaseMarker else what if type(what) is str else None
        try:
            if self._session is None:
                if phase == self._part:
                    self._begin(place)
                    self._since, self._marks = entry[1], []
            elif get_ident() == self._thread and cuda.is_quiet():
                self._marks.append((entry[1], self._record()))
                now, length = host_clock(), self.parts.length(phase)
                is_over = phase == self._part or what in (NEXT, END, QUIT, CANCEL) or len(self._marks) >= MAX_MARKS
                if self._complete is None and (is_over or now + length - self._began >= MAX_TRACE_NS):
                    self._complete, self._last = self._marks[-1]
                if self._is_part_done(now, length):
                    self._end(self._session)
        except Exception as error:
            self._fail(error)

    def _part_at_boundary(self) -> None:
        """Take back the part that does not begin, or end the one that is over. Where a step begins."""
        if self._session is None:
            self._waited += 1
            if self._waited > MAX_WAITED or self._cancelled:
                self.refusal, self.wanted = NO_PART, False
        elif get_ident() == self._thread and cuda.is_quiet() and self._is_part_done(host_clock(), 0):
            self._end(self._session)

    def _is_part_done(self, now: int, length: int) -> bool:
        """Return whether the part is over and done, on the device, too, or must end before it is.

        Args:
            length: nanoseconds of the phase that begins: in one that is long nothing would end the trace.
        """
        if self._has_ended or cuda.captured:
            return True
        if self._complete is None:
            return False
        return bool(self._last.query()) or length > MAX_TRACE_NS or now - self._began > MAX_LAG_NS

    def _begin(self, place: cuda.DevicePlace) -> None:
        self._last_try = host_clock()
        self.refusal = self._obstacle(place)
        if self.refusal is not None:
            self.wanted = False
            return
        self._asked, self._until = self._last_try, FOREVER
        before = self._record() if self._on_cuda else None
        session = profiler.begin(self._on_cuda)
        self._session, self._thread, self._steps, self._complete = session, get_ident(), 0, None
        self._was_idle = before is not None and bool(before.query())
        self._began = host_clock()
        self._pause = self._began - self._asked

    def _record(self) -> Any:
        """Return an event that is done once the device has done all that it was given."""
        event = cuda.make_event()
        event.record(self._stream)
        return event

    def _obstacle(self, place: cuda.DevicePlace) -> Optional[str]:
        """Return why no trace must begin now, or ever."""
        asked = self._asked_for
        if self._cancelled:
            return CANCELLED
        if self._forbidden is None and cuda.is_profiled():
            self._forbid(PROGRAM)
        if self._forbidden is not None or (self._has_ended and asked is None):
            return self._forbidden or self.status
        if get_ident() != main_thread().ident and not (asked is not None and asked.anyway):
            self.turn_off(OTHER_THREAD)
            return OTHER_THREAD
        if cuda.compiling_check()():
            return COMPILING
        if not self._on_cuda:
            return None
        if cuda.captured and not (asked is not None and asked.anyway):
            self.turn_off(GRAPHS)
            return GRAPHS
        if not cuda.is_quiet():
            return CAPTURING
        self._stream = place.stream(cuda.torch_cuda())
        if self._stream is None:
            return NO_STREAM
        if cuda.free_memory(self._stream.device) < MIN_FREE_MEMORY_SHARE:
            self.status = NO_MEMORY
            return NO_MEMORY
        return None

    def _is_done(self) -> bool:
        """Return whether the wanted steps are done, on the device, too. Never waits for it."""
        if self._on_cuda and not cuda.is_quiet():
            return False
        now = host_clock()
        if self._asked_for is None:
            captured = self._on_cuda and cuda.captured > 0
            late = self._has_ended or captured or now - self._began >= MAX_TRACE_NS
        else:
            late = self._forbidden is not None or now - self._began >= MAX_ASKED_TRACE_NS
        if self._complete is None and self._steps >= self._steps_wanted:
            self._complete = now
            if self._on_cuda:
                self._last = self._record()
        if late or self._complete is None:
            return late
        return not self._on_cuda or bool(self._last.query())

    def end(self) -> None:
        """End the trace that this thread has begun, if there is one."""
        if self._session is None or get_ident() != self._thread or (self._on_cuda and cuda.captures):
            return
        try:
            self._end(self._session)
        except Exception as error:
            self._fail(error)

    def _end(self, session: Session) -> None:
        ended = host_clock()
        result = session.end()
        self._until = host_clock()
        self._pause += self._until - ended
        is_whole = not self._on_cuda or (self._last is not None and self._last.query())
        left_out = None if is_whole else LATE
        until = ended if self._complete is None else self._complete
        if self._part is not None:  # what the device has not done is cut off at the last mark before
            until, left_out = next((t for t, event in reversed(self._marks) if event.query()), self._since), None
        self.finished = Finished(
            session,
            result,
            self._on_cuda,
            self._asked,
            self._began,
            self._was_idle,
            until,
            ended,
            self._pause,
            left_out,
            self._asked_for is not None,
            None if self._part is None else self._since,
        )
        # Only now: a profiler of the program's waits for that, and the background thread takes a trace that is neither
        # wanted nor finished for refused.
        self._session = self._last = None
        self._marks = []
        self.wanted = False

    def _fail(self, error: Exception) -> None:
        """Trace no more: an odd torch. The training must not see it, unless its signal handler raised it."""
        pass_on(error)
        self.refusal = f"off: {type(error).__name__}"
        self._session = None
        self._forbid(self.refusal)

    def yield_to_program(self) -> None:
        """End all traces: the program makes a profiler of its own. In any thread.

        The thread that began a trace ends it, at once or where its next step begins; others wait for that a moment.
        """
        self._forbid(PROGRAM, running=True)
        if get_ident() == self._thread:
            self.end()
        until = host_clock() + MAX_WAIT_NS
        while self._session is not None and host_clock() < until:
            time.sleep(POLL_SECONDS)
        self._session = None  # forgotten: only its own thread may end it
        self.wanted = False
        if self._on_cuda:
            self._let_detach()

    def _let_detach(self) -> None:
        """Let a trace that has just ended be detached from CUDA, which a call of CUDA does.

        A session that begins before sees no kernels.
        """
        try:
            until = min(self._until, host_clock()) + MAX_DETACH_NS
            while host_clock() < until and cuda.is_quiet():
                self._record().query()
                time.sleep(POLL_SECONDS)
        except Exception as error:
            pass_on(error)

    def forget(self) -> None:
        """Trace nothing in a forked child. A session of the parent's is not to be touched."""
        self._session = None
        self._forbid(FORKED)

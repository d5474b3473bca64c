"""The background thread: lane entries -> events -> journal -> datagram. The journal first, the datagram second.

It wakes every 50 ms, works in short slices and releases the interpreter between them, so that a training step never
waits long for it. Nothing here may raise into the training, or delay its exit by more than a second without progress.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Set, Tuple, TypeVar

from trainhooks.device.device_lane import DeviceLane
from trainhooks.device.device_times import DeviceTimes
from trainhooks.lane_entries import FACTS, NANOSECOND, Lane, host_clock, is_alive, monotonic_seconds
from trainhooks.own_thread import PAUSE, release_interpreter
from trainhooks.program_errors import FAILED, failure, show
from trainhooks.protocol import calls, control, process_identity, rundir, secrets
from trainhooks.protocol.encoding import fitting_line, lines_encoder, to_dict
from trainhooks.protocol.events import ASKED, Bye, Event, Facts, Hello, Note, Pulse
from trainhooks.protocol.journal import Journal, Notifier
from trainhooks.protocol.limits import MAX_LINE, MAX_NAME, MAX_OTHER_THREADS, MAX_TEXT, clean
from trainhooks.protocol.places import Place
from trainhooks.protocol.traced_events import events_path
from trainhooks.protocol.vocabulary import ACTOR
from trainhooks.recording import facts, jobs, sources
from trainhooks.recording.assembler import Assembler
from trainhooks.recording.batch_assembler import BatchAssembler
from trainhooks.recording.busy_threads import BusyThreads
from trainhooks.recording.collective_times import CollectiveTimes
from trainhooks.recording.collectives import newest_collectives
from trainhooks.recording.control_socket import ControlSocket
from trainhooks.recording.facts import Devices, torch_flags
from trainhooks.recording.frames import Sampler, error_place, error_text, other_threads, thread_stacks
from trainhooks.recording.gc_pauses import LateWakes
from trainhooks.recording.gc_room import CollectorRoom, forget_pause
from trainhooks.recording.memory_growth import GrowthWatch
from trainhooks.recording.memory_holders import process_memory
from trainhooks.recording.step_annotations import ProcessState
from trainhooks.recording.step_blocks import Mapping, OpenBlock, PlainStep
from trainhooks.recording.tasks import waiting_tasks
from trainhooks.recording.trace_events import TraceEvents

WAKE_SECONDS = 0.05
ACTOR_WAKE_SECONDS = 0.5  # of a process that only steps environments: there may be many, and each puts as seldom
SLICE_ENTRIES = 48  # assembled before the interpreter is released: some 100 microseconds
MAX_PASS_ENTRIES = 4096  # of one lane: a flooded lane must not keep the others' events off the disk
MAX_FLUSH_SECONDS = 5.0  # at the program's end, for what a flood left
MAX_ERROR = 1024  # characters of an error: one for want of memory names each process on its GPU
PULSE_SECONDS = 1.0  # between two pulses
MIN_OPEN_SECONDS = 5.0  # of a phase or a step, after which a pulse has the stack position
MIN_STILL_SECONDS = 15.0  # likewise, after which it tells of the other threads

T = TypeVar("T")


class BackgroundWriter:
    """Record what the process's lanes hold. One for each process, in its background thread.

    Args:
        lanes: of the process; lanes of threads that have ended are removed.
        wait: waits at most so many seconds; returns LEAVE as the program ends, PAUSE as it forks, else 0.
        error: returns what ended the program, once it has ended.
        parted: called when all is written; returns whether the program may go on nevertheless.
        device: the lane of the device.
        acts: returns whether the process only steps environments. It is no rank then, and nobody asks it for anything.

    Attributes:
        interactive: whether a person runs cells of code: only the end of a cell shows whether its last step was whole.
    """

    def __init__(
        self,
        lanes: List[Lane],
        wait: Callable[[float], int],
        error: Callable[[], Optional[BaseException]],
        parted: Callable[[], bool],
        device: DeviceLane,
        acts: Callable[[], bool],
        role: Callable[[], Optional[str]],
    ) -> None:
        self._lanes = lanes
        self._wait = wait
        self._error = error
        self._parted = parted
        self.producer = uuid.uuid4().hex[:8]
        self._seq = 0
        self._process = ProcessState()
        self._assemblers: Dict[int, BatchAssembler] = {}
        self._encode = lines_encoder()
        self._run: Optional[Path] = None
        self._journal: Optional[Journal] = None
        self._lock: Optional[rundir.Lock] = None
        self._notifier: Optional[Notifier] = None
        self._block = OpenBlock()
        self._unwritten: List[bytes] = []  # encoded lines
        self._unwritten_events = 0
        self.batches_written = 0  # or refused by the disk
        self._next_pulse = 0.0
        self._sampler = Sampler()
        self._steps_seen = 0, monotonic_seconds()  # steps of the process, and when a pulse showed the last of them
        self._place: Optional[Place] = None  # last stack position of the primary lane's thread
        self._cpu = 0.0, 0.0  # seconds of the clock and of the process at the last pulse
        self._threads: Optional[List[Tuple[str, str, str]]] = None  # as told last
        self._stands_at: Tuple[str, Optional[float]] = "", None  # a line, since when; None: told
        self._dropped = 0
        self._device = device
        self._acts = acts
        self.interactive = False
        self._role = role
        self._is_actor = False
        self._ranks: Dict[str, int] = {}
        self._has_claimed = False  # a number of its own among the roles
        self._device_times = DeviceTimes(self._process, device)
        self._trace_events = TraceEvents(self._process, device)
        self._collective_times = CollectiveTimes(self._process)
        self._control: Optional[ControlSocket] = None
        self._growth = GrowthWatch()
        self._room = CollectorRoom()
        self._failed: Set[str] = set()  # parts that record nothing any more
        self._late_wakes = LateWakes(WAKE_SECONDS)
        self._busy_threads = BusyThreads()
        self._devices = Devices()
        self._sent_facts: Dict[str, Any] = {}  # those that may change, as sent last

    @property
    def steps(self) -> int:
        """Return the number of steps that have been recorded."""
        return self._process.steps

    def run(self) -> bool:
        """Record until the end of the program, then write what is left. To be called after `open`.

        Returns:
            Whether this only pauses.
        """
        while self._record():
            self._room.make()
            try:
                self._take_leave()
            finally:
                self._room.take_back()
            if not self._parted():
                self._close()
                return False
        return True

    def _record(self) -> bool:
        """Record until the end of the program, what a flood left included. Return False for a pause."""
        flooded, asked, ended = False, monotonic_seconds(), 0
        while not (ended := self._wait(0.0 if flooded else ACTOR_WAKE_SECONDS if self._is_actor else WAKE_SECONDS)):
            self._room.make()
            try:
                if not (flooded or self._is_actor or self._process.primary is None):
                    overslept = monotonic_seconds() - asked - WAKE_SECONDS
                    self._late_wakes.add(overslept)
                    self._busy_threads.add(overslept)
                flooded = self._assemble(rested=not flooded) > MAX_PASS_ENTRIES
                if not flooded:
                    self._guarded("samples of the stack", self._sample_stack)
                    sources.read_wanted()
                self._write()
                # Once there is nothing of ours that waits, and would be counted.
                self._guarded("growth of memory", self._growth.look, self._process.steps, monotonic_seconds())
            finally:
                self._room.take_back()
            asked = monotonic_seconds()
        if ended == PAUSE:
            return False
        until = monotonic_seconds() + MAX_FLUSH_SECONDS
        while self._assemble(rested=False) > MAX_PASS_ENTRIES and monotonic_seconds() < until:
            self._write()
        return True

    def open(self, group: Dict[str, int]) -> None:
        """Find or make the run and send the hello event.

        Args:
            group: this process's place in its process group when the first event came; empty without one.
        """
        self._ranks, self._is_actor = facts.rank_facts(group), self._acts()
        self._run = _join_or_make_run(self._lanes, self._ranks)
        sources.read_main()
        if self._run is not None:
            self._notifier = Notifier(self._run)
            if self._is_actor:
                self._journal = Journal(rundir.actor_journal(self._run, self.producer))
            else:
                self._open_as_rank(self._run)
        self._greet()

    @property
    def directory(self) -> Optional[Path]:
        """Return the run's directory; None where it could not be made."""
        return self._run

    def _open_as_rank(self, run: Path) -> None:
        path = self._rank_journal(run)
        with contextlib.suppress(OSError):  # a file system without locks: pid and start time tell who lives
            self._lock = rundir.Lock.acquire(path.with_suffix(".lock"))
        self._journal = Journal(path)
        self._control = ControlSocket(control.socket_path(path))
        self._trace_events.events_file = events_path(run, self.producer)

    def _rank_journal(self, run: Path) -> Path:
        role, rank = self._role(), self._ranks.get("rank", 0)
        if role is not None and not self._has_claimed:
            self._has_claimed = True
            with contextlib.suppress(OSError):
                self._ranks["rank"] = rank = rundir.claim_rank(run, role, rank)
        return rundir.rank_journal(run, rank, self.producer)

    def _greet(self) -> None:
        hello = Hello(
            producer="", seq=0, t=monotonic_seconds(), wall=time.time(), pid=os.getpid(), host=socket.gethostname()
        )
        hello.source = ACTOR if self._is_actor else hello.source
        for name, value in self._ranks.items():
            setattr(hello, name, value)
        hello.process_started = process_identity.started_monotonic(os.getpid())
        hello.name, hello.role = facts.program_name() or None, self._role()
        hello.facts = facts.process_facts()
        self._sent_facts["versions"] = hello.facts["versions"]
        self._send([to_dict(hello)])

    def _begin_training(self) -> None:
        """Go on as a rank: what only stepped environments so far trains."""
        self._is_actor = False
        if self._run is None or self._journal is None:
            return
        self._journal.close()
        before = rundir.actor_journal(self._run, self.producer)
        with contextlib.suppress(OSError):  # then there are two journals, of one producer
            before.rename(self._rank_journal(self._run))
        self._open_as_rank(self._run)
        self._greet()

    def _assemble(self, rested: bool) -> int:
        """Encode what the lanes hold, up to MAX_PASS_ENTRIES each. Return the length of the longest lane.

        Args:
            rested: whether a whole WAKE_SECONDS has passed since the last call.
        """
        if self._is_actor and not self._acts():
            self._guarded("the begin of training", self._begin_training)
        longest = self._guarded("steps", self._assemble_lanes, rested) or 0
        self._guarded("times of the device", self._take_device_times)
        self._guarded("traces", self._take_traces)
        self._guarded("collectives", self._take_collectives)
        self._guarded("facts", self._take_pulse)
        return longest

    def _guarded(self, part: str, take: Callable[..., Optional[T]], *given: Any) -> Optional[T]:
        """Return `take(*given)`; None where it fails, or did before: an error ends one part, which a note tells."""
        if part in self._failed:
            return None
        try:
            return take(*given)
        except Exception as error:
            self._failed.add(part)
            note = Note(producer="", seq=0, t=monotonic_seconds(), level="warning", code=FAILED)
            note.text = failure(part, error)
            self._stamp([to_dict(note)])
            show(error)
            return None

    def _assemble_lanes(self, rested: bool) -> int:
        longest = 0
        for lane in list(self._lanes):
            batches = self._assembler_of(lane)
            assembler = batches.assembler
            # A lane with a follower is the training's: its next step may come from another thread.
            ended = not (assembler.is_main or lane.follower is not None or is_alive(lane.thread))
            entries = lane.entries
            if len(entries) == entries.maxlen:
                self._dropped += 1  # at least one entry was lost; the number is unknown
            if not entries and rested and not self.interactive:
                assembler.release_held()  # the loop was left a while ago, and the program goes on
                self._stamp(assembler.events)
            longest = max(longest, len(entries))
            left = min(len(entries), MAX_PASS_ENTRIES)
            while left > 0:
                left -= batches.assemble(entries, SLICE_ENTRIES)
                self._stamp(assembler.events)
                release_interpreter()
                self._room.renew()
            if ended and not entries:
                self._forget(lane)
        return longest

    def _take_device_times(self) -> None:
        self._device_times.watch(self._device.check_cuda())
        self._stamp(self._device_times.take())

    def _take_traces(self) -> None:
        self._stamp(self._trace_events.take(self.producer))
        self._take_request()
        self._trace_events.consider(self._stepping())

    def _take_collectives(self) -> None:
        self._stamp(self._collective_times.take(self._stepping()))

    def _stepping(self) -> Optional[BatchAssembler]:
        """Return what assembles the lane that steps; None where none does."""
        primary = self._process.primary
        return self._assembler_of(primary.lane) if primary is not None and primary.lane is not None else None

    def _take_pulse(self) -> None:
        now = monotonic_seconds()
        if now >= self._next_pulse:
            self._next_pulse = now + PULSE_SECONDS
            self._stamp([to_dict(self._pulse()), *self._new_facts()])

    def _take_request(self) -> None:
        """Take what this process is asked for, if anything is."""
        asked = self._control.poll() if self._control is not None else None
        if asked is None:
            return
        request, caller = asked
        note = Note(producer="", seq=0, t=monotonic_seconds(), text=f"asked for {request.text}", code=ASKED)
        self._stamp([to_dict(note)])
        if isinstance(request, control.TraceRequest):
            self._trace_events.add_request(request, caller)
        elif isinstance(request, control.MemoryRequest) and request.growth:
            self._growth.begin(caller, self._process.steps, monotonic_seconds())
        else:
            is_stack = isinstance(request, control.StackRequest)
            caller.send(control.stacks_line(thread_stacks()) if is_stack else process_memory().line())
            caller.close()

    def forget(self) -> None:
        """In a forked child: leave the parent's socket to the parent, and do not trace its allocations."""
        if self._control is not None:
            self._control.forget()
        self._growth.stop(closes=False)
        forget_pause()

    def _sample_stack(self) -> None:
        """Sample the training's stack, for the time that its phases do not explain."""
        primary = self._process.primary
        now = monotonic_seconds()
        if primary is not None and primary.ended is not None:
            name, at = primary.ended
            self._sampler.phase_ended(name, at / NANOSECOND)
            primary.ended = None
        if primary is not None and primary.lane.thread.ident is not None and self._sampler.is_due(now):
            self._place = self._sampler.sample(primary.lane.thread.ident, primary.current_phase(), now)
        self._stamp(self._frames(now))

    def _frames(self, now: float, is_last: bool = False) -> List[Dict[str, Any]]:
        frames = self._sampler.report(now, is_last)
        return [to_dict(frames)] if frames is not None else []

    def _write(self) -> None:
        self._close_block()
        if not self._unwritten:
            return
        if self._lock is not None:
            self._lock.keep()
        batch, count = b"".join(self._unwritten), self._unwritten_events
        self._unwritten, self._unwritten_events = [], 0
        if self._journal is not None:
            self._journal.append(batch, count)
        self.batches_written += 1
        if self._notifier is not None:
            self._notifier.send(batch)

    def _assembler_of(self, lane: Lane) -> BatchAssembler:
        found = self._assemblers.get(id(lane))
        if found is None:
            is_main = lane.thread is threading.main_thread()
            assembler = Assembler(self._process, clean(lane.thread.name, MAX_NAME), is_main, lane)
            found = self._assemblers[id(lane)] = BatchAssembler(assembler)
        return found

    def _forget(self, lane: Lane) -> None:
        """Drop the lane of a thread that has ended: a program may start them by the thousand."""
        self._lanes.remove(lane)
        batches = self._assemblers.pop(id(lane))
        self._trace_events.lane_ended(batches)
        assembler = batches.assembler
        assembler.release_held()
        self._stamp(assembler.events)
        if self._process.primary is assembler:
            self._process.primary = None  # the next lane that steps takes its place

    def _pulse(self) -> Event:
        primary = self._process.primary
        leading = primary
        if leading is None:
            assemblers = [batches.assembler for batches in self._assemblers.values()]
            mains = [assembler for assembler in assemblers if assembler.is_main]
            leading = (mains or assemblers or [Assembler(self._process, "", True)])[0]
        pulse = leading.pulse(host_clock())
        if primary is not None and self._place is not None:
            self._tell_place(pulse, self._place, primary.lane.thread.ident)
        pulse.dropped = self._dropped + self._process.lost + (self._journal.dropped if self._journal else 0)
        return pulse

    def _tell_place(self, pulse: Pulse, place: Place, training: int) -> None:
        """Tell where the training stands, its collectives, and the other threads, once nothing has ended for long."""
        still = self._open_seconds(pulse)
        before, self._cpu = self._cpu, (pulse.t, time.process_time())
        if still <= MIN_OPEN_SECONDS:
            self._threads, self._stands_at = None, ("", None)
            return
        pulse.frame, pulse.activity = str(place), place.activity or None
        error = getattr(sys, "last_value", None) if place.activity == calls.EXIT else None
        if error is not None:
            with contextlib.suppress(Exception):  # the source that it names may be gone or broken
                pulse.frame, pulse.activity = error_place(error) or pulse.frame, calls.RAISED
        if before[0] and pulse.t > before[0]:
            pulse.busy = round((self._cpu[1] - before[1]) / (pulse.t - before[0]), 3)
        if pulse.frame != self._stands_at[0]:
            self._stands_at = pulse.frame, pulse.t
        elif self._stands_at[1] is not None and pulse.t - self._stands_at[1] > MIN_STILL_SECONDS:
            self._stands_at = pulse.frame, None  # once at a line: what it has called stays the same there
            pulse.collectives = self._guarded("collectives", newest_collectives)
        if still > MIN_STILL_SECONDS:
            threads = other_threads(self._sampler, training)
            if any(activity == calls.EVENT_LOOP for activity in (place.activity, *(each[2] for each in threads))):
                tasks = self._guarded("asyncio", waiting_tasks, self._sampler) or []
                threads = [*threads, *tasks][:MAX_OTHER_THREADS]
            if threads != (self._threads or []):
                pulse.threads = self._threads = threads

    def _open_seconds(self, pulse: Pulse) -> float:
        """Return for how long nothing has ended: the open step or span, or the time between two steps."""
        if self._process.steps != self._steps_seen[0]:
            self._steps_seen = self._process.steps, pulse.t
        spans = [seconds for _, seconds in pulse.spans]
        return max(pulse.step_open or 0.0, pulse.phase_open or 0.0, *spans, pulse.t - self._steps_seen[1])

    def _new_facts(self) -> List[Dict[str, Any]]:
        """Return the facts that changed since the last pulse: loaded libraries, torch's settings, GPUs in use."""
        devices = self._devices.in_use(monotonic_seconds())
        known: Dict[str, Any] = {"versions": facts.library_versions(), "torch": torch_flags(), "devices": devices}
        known["device_clock"] = self._device.status
        known["tracing"] = self._device.tracer.status
        known["control"] = self._control.status if self._control is not None else None
        known["collections"] = self._late_wakes.facts()
        if self._process.primary is not None:
            known["busy_thread"] = self._busy_threads.facts(
                monotonic_seconds(), self._process.primary.lane.thread.ident
            )
        changed = {name: table for name, table in known.items() if table and table != self._sent_facts.get(name)}
        self._sent_facts.update(changed)
        return [to_dict(Facts(producer="", seq=0, t=monotonic_seconds(), facts=changed))] if changed else []

    def _take_leave(self) -> None:
        """Write what was held back, and a bye: further events may follow it if the program goes on."""
        error = self._error()
        self._guarded("last events", self._take_last, error)
        bye = Bye(producer="", seq=0, t=monotonic_seconds())
        if error is not None:
            bye.error = type(error).__name__
            with contextlib.suppress(Exception):  # the text is the program's code
                bye.error = clean(secrets.mask(error_text(error)[:MAX_TEXT]), MAX_ERROR)
            with contextlib.suppress(Exception):  # the source that it names may be gone or broken
                bye.place = error_place(error)
        bye.dropped = self._dropped + self._process.lost
        if self._journal is not None:
            bye.dropped += self._journal.dropped + self._journal.waiting_events
        self._send([to_dict(bye)])  # by itself: it says what became of the lines before it

    def _take_last(self, error: Optional[BaseException]) -> None:
        for batches in self._assemblers.values():
            assembler = batches.assembler
            if error is not None:
                assembler.drop_held()
            assembler.release_held()
            self._stamp(assembler.events)
        self._stamp(self._device_times.take())
        self._stamp(self._trace_events.take(self.producer, is_last=True))
        self._growth.stop()
        if self._control is not None:
            self._control.close()  # where the program goes on, the next look opens it again
        known = {"device_clock": self._device.status, "tracing": self._device.tracer.status}
        changed = {name: status for name, status in known.items() if status != self._sent_facts.get(name)}
        if changed:
            self._stamp([to_dict(Facts(producer="", seq=0, t=monotonic_seconds(), facts=changed))])
        # With all the above: the end of the program waits, and a disk may be slow.
        self._send(self._frames(monotonic_seconds(), is_last=True))

    def _close(self) -> None:
        self._device_times.watch(False)
        if self._notifier is not None:
            self._notifier.close()
        if self._journal is not None:
            self._journal.close()

    def _send(self, events: List[Any]) -> None:
        self._stamp(events)
        self._write()

    def _stamp(self, events: List[Any]) -> None:
        """Give each event its producer and sequence number, and encode it. Empties `events`.

        A plain step waits in the open block until another event comes, or all is written.
        """
        if not events:
            return
        self._trace_events.mark(events)
        self._collective_times.mark(events)
        self._growth.mark(events)
        self._device_times.add_steps(events)
        others: List[Mapping] = []
        for event in events:
            if type(event) is PlainStep and event.ended > event.began:
                self._encode_events(others)
                if not self._block.accepts(event):
                    self._close_block()
                self._block.add(event)
            elif type(event) is dict and event["kind"] == "metrics" and not others and self._block.add_late(event):
                pass  # it became readable while its step waited: then it is the step's own
            else:  # a step that took no time by a coarse clock, too: in a block that would be no time
                others.append(event.as_event() if type(event) is PlainStep else event)
        self._encode_events(others)
        events.clear()

    def _close_block(self) -> None:
        count = len(self._block)
        if count:
            self._unwritten.append(self._block.close(self._seq, self.producer, self._encode))
            self._unwritten_events += count
            self._seq += count

    def _encode_events(self, events: List[Mapping]) -> None:
        if not events:
            return
        self._close_block()
        for event in events:
            event["producer"], event["seq"] = self.producer, self._seq
            self._seq += 1
            if event["kind"] == "facts" and "name" in event and self._run is not None:
                rundir.rename(self._run, event["name"])
        batch = self._encode(events)
        if len(batch) > MAX_LINE:  # of all lines together: rare
            batch = b"".join(fitting_line(event, self._encode) for event in events)
        self._unwritten.append(batch)
        self._unwritten_events += len(events)
        events.clear()


def _join_or_make_run(lanes: List[Lane], ranks: Dict[str, int]) -> Optional[Path]:
    """Return the run directory that this process was launched into, else its job's, else one of its own.

    None where none can be made.
    """
    given = os.environ.get(rundir.RUN_VARIABLE)
    if given and os.path.isdir(given):
        return Path(given)
    program = facts.program_name() or "python"
    job = jobs.Job.here(program)
    pid = os.getpid() if job is None else job.launcher  # of a process that lives as long as the run
    known: Dict[str, Any] = {"command": secrets.mask_argv(getattr(sys, "orig_argv", None) or sys.argv)}
    if pid is not None:
        known.update(pid=pid, start_ticks=process_identity.start_ticks(pid))

    def make() -> Path:
        return rundir.new_run(_early_name(lanes) or program, **known)

    try:
        return make() if job is None else jobs.join(job, ranks.get("rank", 0), ranks.get("restart", 0), make)
    except OSError:  # no place to write
        return None


def _early_name(lanes: List[Lane]) -> Optional[str]:
    """Return the name given to `init`, where that call is already waiting in a lane."""
    for lane in list(lanes):
        for entry in list(lane.entries)[:16]:
            if entry[0] == FACTS and "name" in entry[1]:
                return clean(entry[1]["name"], MAX_NAME)
    return None

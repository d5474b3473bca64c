"""The background thread: entries -> events -> journal -> socket. Journal first, publish second.

It wakes every 50 ms, works in short slices, and lets the interpreter go between them, so that a training step never
waits long for it. Nothing here may raise into the training, or outlive it by more than a second without getting on.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from trainhooks import facts, jobs, rundir
from trainhooks.clocks import host_clock, monotonic_seconds
from trainhooks.device_lane import DeviceLane
from trainhooks.device_times import DeviceTimes
from trainhooks.devices import Devices
from trainhooks.digester import Digester
from trainhooks.entries import FACTS, Lane
from trainhooks.events import (
    MAX_LINE,
    MAX_NAME,
    MAX_TEXT,
    Bye,
    Event,
    Facts,
    Frames,
    Hello,
    clean,
    lines_encoder,
    to_dict,
)
from trainhooks.frames import Sampler
from trainhooks.journal import Journal, Publisher
from trainhooks.libraries import library
from trainhooks.open_work import Shared
from trainhooks.torch_flags import torch_flags

WAKE = 0.05  # seconds between two looks at the lanes
SLICE = 48  # entries digested before the interpreter is let go: some 100 microseconds
MOST = 4096  # entries of one lane digested in a pass: a lane that is flooded must not keep the others' off the disk
LAST_PASSES = 5.0  # seconds at the program's end for what a flood left
LOOK = 2  # passes a look at the training's stack
PULSE = 1.0  # seconds between two pulses
LONG = 5.0  # seconds after which a pulse says where the thread stands
FRAMES = 30.0  # seconds between two reports of where it stood


class Outbox:
    """One per process, in the background thread."""

    def __init__(
        self,
        lanes: List[Lane],
        stopped: Callable[[float], bool],
        error: Callable[[], Optional[BaseException]],
        device: DeviceLane,
    ) -> None:
        self._lanes = lanes
        self._stopped = stopped  # waits that many seconds for the end of the program
        self._error = error  # what ended the program, once it has ended
        self.producer = uuid.uuid4().hex[:8]
        self._seq = 0
        self._shared = Shared()
        self._assemblers: Dict[int, Digester] = {}
        self._encode = lines_encoder()
        library("zmq")  # imported here, where no fork can fall into it
        self._run: Optional[Path] = None
        self._journal: Optional[Journal] = None
        self._lock: Optional[rundir.Lock] = None
        self._publisher: Optional[Publisher] = None
        self._batches: List[bytes] = []  # digested, not yet written
        self._lines = 0  # in them
        self._next_pulse = 0.0
        self._sampler = Sampler()
        self._passes = 0
        self._frames_due = monotonic_seconds() + FRAMES
        self._place: Optional[str] = None  # where the primary lane's thread stood last
        self._dropped = 0
        self._device = device
        self._device_times = DeviceTimes(self._shared, device)
        self._devices = Devices()
        self._told: Dict[str, Any] = {}  # facts that change, as they were told last

    def run(self) -> None:
        """Record until told to stop; then write what is left and say bye. Comes after `open`."""
        flooded = False
        while not self._stopped(0.0 if flooded else WAKE):
            flooded = self._digest(rested=not flooded) > MOST
            if not flooded:
                self._look()
            self._write()
        until = monotonic_seconds() + LAST_PASSES
        while self._digest(rested=False) > MOST and monotonic_seconds() < until:
            self._write()
        self._end()

    def open(self, group: Dict[str, int]) -> None:
        """Find or make the run, and say hello.

        Args:
            group: this process's place in its process group, if it had one when the first event came.
        """
        ranks = facts.rank_facts(group)
        self._run = _join_or_make_run(self._lanes, ranks)
        if self._run is not None:
            path = rundir.rank_journal(self._run, ranks.get("rank", 0), self.producer)
            with contextlib.suppress(OSError):  # a file system without locks: pid and start time tell who lives
                self._lock = rundir.Lock.acquire(path.with_suffix(".lock"))
            self._journal = Journal(path)
        self._publisher = Publisher.open(self.producer)
        hello = Hello("", 0, monotonic_seconds(), wall=time.time(), pid=os.getpid(), host=socket.gethostname())
        for name, value in ranks.items():
            setattr(hello, name, value)
        hello.process_started = rundir.started_monotonic(os.getpid())
        hello.name = facts.program_name()
        hello.facts = facts.process_facts()
        self._told["versions"] = hello.facts["versions"]
        self._send([to_dict(hello)])

    def _digest(self, rested: bool) -> int:
        """Make lines of what the lanes hold, up to MOST entries each. Returns the length of the longest lane found.

        Args:
            rested: a whole WAKE has passed since the last time.
        """
        longest = 0
        for lane in list(self._lanes):
            assembler = self._assembler(lane)
            ended = not (assembler.is_main or lane.thread.is_alive())
            ops = lane.ops
            if len(ops) == ops.maxlen:
                self._dropped += 1  # at least one entry fell out; how many cannot be told
            if not ops and rested:
                assembler.release_held()  # the loop was left a while ago and the program goes on
                self._stamp(assembler.events)
            longest = max(longest, len(ops))
            left = min(len(ops), MOST)
            while left > 0:
                left -= assembler.digest(ops, SLICE)
                self._stamp(assembler.events)
                select.select((), (), (), 0)  # lets the interpreter go, without the timer that sleep(0) arms
            if ended and not ops:
                self._forget(lane)
        self._device_times.watch(self._device.look())
        self._stamp(self._device_times.take())
        now = monotonic_seconds()
        if now >= self._next_pulse:
            self._next_pulse = now + PULSE
            self._stamp([to_dict(self._pulse()), *self._news()])
        return longest

    def _look(self) -> None:
        """See where the training stands, for the time that its phases do not explain."""
        self._passes += 1
        if self._passes % LOOK:
            return
        leading = self._shared.primary
        if leading is not None and leading.ident is not None:
            self._place = self._sampler.look(leading.ident, leading.where())
            self._device_times.looked(self._place)
        now = monotonic_seconds()
        if now >= self._frames_due:
            self._frames_due = now + FRAMES
            self._stamp(self._frames())

    def _frames(self) -> List[Dict[str, Any]]:
        rows = self._sampler.take()
        return [to_dict(Frames("", 0, monotonic_seconds(), rows=rows))] if rows else []

    def _write(self) -> None:
        """The journal first, the socket second."""
        if not self._batches:
            return
        batch, lines = b"".join(self._batches), self._lines
        self._batches, self._lines = [], 0
        if self._journal is not None:
            self._journal.append(batch, lines)
        if self._publisher is not None:
            self._publisher.publish(batch)

    def _assembler(self, lane: Lane) -> Digester:
        found = self._assemblers.get(id(lane))
        if found is None:
            is_main = lane.thread is threading.main_thread()
            name = clean(lane.thread.name, MAX_NAME)
            found = self._assemblers[id(lane)] = Digester(self._shared, name, is_main)
            found.ident = lane.thread.ident
            found.lane = lane
        return found

    def _forget(self, lane: Lane) -> None:
        """A lane's thread has ended; a program may start them by the thousand."""
        self._lanes.remove(lane)
        assembler = self._assemblers.pop(id(lane))
        assembler.release_held()
        self._stamp(assembler.events)
        if self._shared.primary is assembler:
            self._shared.primary = None  # the next lane that steps takes its place

    def _pulse(self) -> Event:
        leading = self._shared.primary
        if leading is None:
            mains = [each for each in self._assemblers.values() if each.is_main]
            leading = (mains or list(self._assemblers.values()) or [Digester(self._shared, "", True)])[0]
        pulse = leading.pulse(host_clock())
        if leading is self._shared.primary and max(pulse.step_open or 0.0, pulse.phase_open or 0.0) > LONG:
            pulse.frame = self._place
        pulse.dropped = self._dropped + self._shared.lost + (self._journal.dropped if self._journal else 0)
        return pulse

    def _news(self) -> List[Dict[str, Any]]:
        """Facts that were not so at the last pulse: libraries loaded since, torch's settings, GPUs in use."""
        devices = self._devices.look(monotonic_seconds())
        known: Dict[str, Any] = {"versions": facts.library_versions(), "torch": torch_flags(), "devices": devices}
        known["device_clock"] = self._device.said
        news = {name: table for name, table in known.items() if table and table != self._told.get(name)}
        self._told.update(news)
        return [to_dict(Facts("", 0, monotonic_seconds(), facts=news))] if news else []

    def _end(self) -> None:
        error = self._error()
        for assembler in self._assemblers.values():
            if error is not None:
                assembler.drop_held()
            assembler.release_held()
            self._send(assembler.events)
        self._send(self._device_times.take())
        self._device_times.watch(False)
        if self._device.said != self._told.get("device_clock"):
            self._send([to_dict(Facts("", 0, monotonic_seconds(), facts={"device_clock": self._device.said}))])
        self._send(self._frames())
        bye = Bye("", 0, monotonic_seconds())
        if error is not None:
            bye.error = clean(facts.masked(f"{type(error).__name__}: {error}"[:MAX_TEXT]), 512)
        bye.dropped = self._dropped + self._shared.lost
        if self._journal is not None:
            bye.dropped += self._journal.dropped + self._journal.waiting_lines
        self._send([to_dict(bye)])
        if self._publisher is not None:
            self._publisher.close()
        if self._journal is not None:
            self._journal.close()

    def _send(self, events: List[Dict[str, Any]]) -> None:
        self._stamp(events)
        self._write()

    def _stamp(self, events: List[Dict[str, Any]]) -> None:
        """Give each event its producer and number, and encode it. Empties `events`."""
        if not events:
            return
        self._device_times.hear(events)
        producer, seq = self.producer, self._seq
        for event in events:
            event["producer"] = producer
            event["seq"] = seq
            seq += 1
            if event["kind"] == "facts" and "name" in event and self._run is not None:
                rundir.rename(self._run, event["name"])
        batch = self._encode(events)
        if len(batch) > MAX_LINE:  # of all lines together: seldom so
            batch = b"".join(_fitting(event, self._encode) for event in events)
        self._batches.append(batch)
        self._lines += len(events)
        self._seq = seq
        events.clear()


def _fitting(event: Dict[str, Any], encode: Callable[[List[Dict[str, Any]]], bytes]) -> bytes:
    line = encode([event])
    return line if len(line) <= MAX_LINE else encode([_cut(event)])


def _cut(event: Dict[str, Any]) -> Dict[str, Any]:
    """An event too large for a line: who and when, and that the rest did not fit."""
    kept = {
        k: v for k, v in event.items() if isinstance(v, (int, float)) or k in ("kind", "producer", "name", "status")
    }
    if "phases" in event:
        kept["phases"] = event["phases"][:64]
    if event["kind"] == "note":
        kept["text"] = event["text"][:MAX_NAME]
    return kept


def _join_or_make_run(lanes: List[Lane], ranks: Dict[str, int]) -> Optional[Path]:
    """The run directory that this process was launched into, else that of its job, else one of its own; None where none
    can be made.
    """
    given = os.environ.get(rundir.RUN_VARIABLE)
    if given and os.path.isdir(given):
        return Path(given)
    program = facts.program_name()
    job = jobs.Job.here(program)
    pid = os.getpid() if job is None else job.launcher  # who lives as long as the run does
    known: Dict[str, Any] = {"command": facts.masked_argv(getattr(sys, "orig_argv", None) or sys.argv)}
    if pid is not None:
        known.update(pid=pid, start_ticks=rundir.start_ticks(pid))

    def make() -> Path:
        return rundir.new_run(_early_name(lanes) or program, **known)

    try:
        return make() if job is None else jobs.join(job, ranks.get("rank", 0), ranks.get("restart", 0), make)
    except OSError:  # nowhere to write: the socket alone carries the run
        return None


def _early_name(lanes: List[Lane]) -> Optional[str]:
    """The name given to `init`, where that call is already waiting in a lane."""
    for lane in list(lanes):
        for entry in list(lane.ops)[:16]:
            if entry[0] == FACTS and "name" in entry[1]:
                return clean(entry[1]["name"], MAX_NAME)
    return None

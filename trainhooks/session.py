"""This process's lanes and the background thread that empties them, made on first use and again after a fork."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple

from trainhooks import exits
from trainhooks.device import cuda, deferred
from trainhooks.device.device_lane import DeviceLane
from trainhooks.lane_entries import AUTOMATIC, CANCEL, Lane, host_clock, monotonic_seconds
from trainhooks.recording import gc_pauses
from trainhooks.tracing.tracer import Tracer

MAX_EXIT_STALL = 1.0  # seconds that the end of the program waits without progress: a disk that stalls
MAX_EXIT_WAIT = (
    6.0  # seconds in all: on a busy machine the last lines take time, and so do a short program's first ones
)
MAX_PART_SECONDS = 0.5  # that `os._exit` or an exec waits for what is pending: without trainmon it takes no time
PART_POLL_SECONDS = 0.001
DEBUG_VARIABLE = "TRAINMON_DEBUG"  # set, it shows the background thread's own errors

if TYPE_CHECKING:
    from trainhooks.recording.background_writer import BackgroundWriter

Put = Callable[[Tuple[Any, ...]], None]


class _Here(threading.local):
    """This thread's lane. `put` is missing until the thread's first public call, `quiet_put` until one by `auto`."""

    lane: Lane
    put: Put
    quiet_put: Put


class _Stop:
    """A threading.Event for one waiter, at a tenth of the cost: it waits twenty times a second."""

    def __init__(self) -> None:
        self._held = threading.Lock()
        self._held.acquire()

    def set(self) -> None:
        try:
            self._held.release()
        except RuntimeError:  # it is set, and was not seen yet
            pass

    def wait(self, seconds: float) -> bool:
        """Wait at most so long, and return whether it was set; that clears it."""
        return self._held.acquire(timeout=seconds)


class Session:
    """This process's lanes and its background thread.

    Attributes:
        started: whether the background thread has been started.
        recording: whether it has opened its journal.
        over: whether it has ended.
        explicit: whether the program marks its steps itself; those that `auto` recognizes are then not wanted.
        error: what ended the program, once it ends.
        goes_on: whether the program may go on after `stop`: an exec can fail.
        handed_over: whether everything until the last `stop` has been written.
        group: the process's place in its process group, read early: the group may be gone later.
    """

    def __init__(self, forked: bool = False) -> None:
        self.lanes: List[Lane] = []
        self.started = False
        self.writer: Optional[BackgroundWriter] = None  # once it records
        self.over = False
        self.explicit = False
        self.forked = forked
        self.pid = os.getpid()
        self.stop = _Stop()
        self.error: Optional[BaseException] = None
        self.goes_on = False
        self.handed_over = False
        self.group: Dict[str, int] = {}
        self._lock = threading.Lock()

    def open_lane(self) -> Put:
        """Return this thread's `put` at its first public call."""
        here.put = put = self.quiet_lane()
        # A data loader's worker is no training: it stays silent unless it steps or calls init.
        if not self.forked and not _spawned_worker():
            self.start()
        return put

    def quiet_lane(self) -> Put:
        """Return this thread's `put` without starting anything: entries are kept until the process announces itself."""
        try:
            return here.quiet_put
        except AttributeError:
            return self.new_lane().put

    def new_lane(self) -> Lane:
        """Make this thread's lane."""
        here.lane = lane = Lane()
        self.lanes.append(lane)
        here.quiet_put = lane.put
        return lane

    def start(self) -> None:
        """Start the background thread, once. Never raises."""
        if self.started:
            return
        with self._lock:
            if self.started:
                return
            self.started = True
            self.group = cuda.process_group()
            exits.watch_exits(_flush)  # before the thread, which completes it
            try:
                thread = threading.Thread(target=_record, args=(self,), name="trainhooks", daemon=True)
                thread.start()
            except RuntimeError:  # limits, or the interpreter's end: then nothing is recorded
                self.over = True
                return
            atexit.register(self._at_exit, thread)
            if _spawned_worker():  # a training started by multiprocessing: it ends without atexit
                sys.modules["multiprocessing.util"].Finalize(None, self._at_exit, (thread,), exitpriority=-100)

    def _at_exit(self, thread: threading.Thread) -> None:
        if os.getpid() != self.pid:
            return
        if deferred.waiting:
            deferred.put_arrived(started_put())
        device.finish()
        error = sys.exc_info()[1] or getattr(sys, "last_value", None)
        if self.error is None and not (isinstance(error, SystemExit) and not error.code):
            self.error = error
        self.goes_on = False
        self.stop.set()
        until = monotonic_seconds() + MAX_EXIT_WAIT
        while thread.is_alive() and monotonic_seconds() < until:
            before = self._progress()
            thread.join(MAX_EXIT_STALL)
            if self.writer is not None and self._progress() == before:
                return

    def flush(self, goes_on: bool, error: Optional[BaseException]) -> None:
        """Write what is pending, before the process ends without exit handlers or becomes another program.

        Takes no lock: a signal handler may call it at any point, and a thread while the main thread hangs.
        """
        if not self.started or os.getpid() != self.pid or self.over:
            return
        self.error, self.goes_on, self.handed_over = self.error or error, goes_on, False
        self.stop.set()
        until = monotonic_seconds() + MAX_PART_SECONDS
        while not (self.over or (goes_on and self.handed_over)) and monotonic_seconds() < until:
            time.sleep(PART_POLL_SECONDS)

    def flushed(self) -> bool:
        """For the background thread: note that all is written. Return whether to go on recording."""
        self.handed_over = True
        return self.goes_on

    def _progress(self) -> Tuple[int, int]:
        """Return how many entries are not assembled yet, and how many batches were written."""
        written = self.writer.batches_written if self.writer is not None else 0
        return sum(len(lane.entries) for lane in list(self.lanes)), written


def _record(session: Session) -> None:
    """Run the background thread. It imports what it needs, so that `import trainhooks` stays quick."""
    try:
        exits.put_everywhere()
        with _importing:
            from trainhooks.recording.background_writer import BackgroundWriter

            writer = BackgroundWriter(session.lanes, session.stop.wait, lambda: session.error, session.flushed, device)
        writer.open(session.group)
        session.writer = writer
        writer.run()
    except Exception:  # whatever goes wrong here must not reach the training
        if os.environ.get(DEBUG_VARIABLE):
            raise
    finally:
        session.over = True


here = _Here()
_session = Session()


def _flush(goes_on: bool, error: Optional[BaseException]) -> None:
    _session.flush(goes_on, error)  # that of this process: a forked one has another, which may not record


def _route(lane: Lane, put: Put) -> None:
    """Let all that the calling thread puts into its lane go through `put` from here on."""
    before, lane.put = lane.put, put
    if lane.follower is not None:
        lane.follower.put = put
    mine = here.__dict__
    for name in ("put", "quiet_put"):
        if mine.get(name) is before:
            mine[name] = put


device = DeviceLane(_route, Tracer())

# A fork waits until the background thread has imported what it needs: once in a process, some 50 ms at most. In its
# child a module that was being imported would stay locked forever, and importing it would hang.
_importing = threading.RLock()
MAX_IMPORT_WAIT = 2.0  # seconds; a file system that hangs must not hold the training up


def _before_fork() -> None:
    device.tracer.end()  # a child would go on recording, and never end it
    _importing.acquire(timeout=MAX_IMPORT_WAIT)


def _after_fork_in_parent() -> None:
    try:
        _importing.release()
    except RuntimeError:  # it was not acquired in time
        pass


def _after_fork() -> None:
    global _importing, _session
    _importing = threading.RLock()
    here.__dict__.clear()  # this thread's, and no other is left
    if _session.writer is not None:
        _session.writer.forget()
    _session = Session(forked=True)
    deferred.forget_copies()
    cuda.forget_captures()
    gc_pauses.stop_watching()
    device.forget()
    device.tracer.forget()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork)


def _spawned_worker() -> bool:
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None


def started_put() -> Put:
    """Return this thread's `put`, with the background thread running."""
    try:
        put = here.put
    except AttributeError:
        put = _session.open_lane()
    if not _session.started:
        _session.start()
    return put


def explicit_steps() -> Put:
    """Return what `started_put` does, and note that the program marks its steps itself from here on."""
    put = started_put()
    if not _session.explicit:
        _session.explicit = True
        put((CANCEL, host_clock(), AUTOMATIC))
        device.loop_left(AUTOMATIC)
        for lane in list(_session.lanes):
            if lane.live is not None:
                lane.live.stop()
        here.put = here.quiet_put = put = here.lane.put
    return put


def quiet_put() -> Put:
    """For `auto`: return this thread's `put`. What it takes is kept, unsent, until `announce`."""
    return _session.quiet_lane()


def own_lane() -> Lane:
    """Return this thread's lane."""
    try:
        return here.lane
    except AttributeError:
        return _session.new_lane()


def route_thread(put: Put) -> None:
    """For `auto`: let what this thread puts go through `put` from here on, the public calls included."""
    here.quiet_put = put
    if hasattr(here, "put"):
        here.put = put


def announce() -> None:
    """For `auto`: start the background thread, since this process is a training."""
    if not _session.started:
        _session.start()


def has_stepped() -> bool:
    """Return whether a step of this process has been recorded, or nothing is recorded any more."""
    return _session.over or (_session.writer is not None and _session.writer.steps > 0)


def has_explicit_steps() -> bool:
    """For `auto`: return whether the program marks its steps itself."""
    return _session.explicit


def open_lane() -> Put:
    """Return this thread's `put` at its first public call."""
    return _session.open_lane()

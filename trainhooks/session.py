"""This process's lanes and the background thread that empties them, made on first use and again after a fork."""

from __future__ import annotations

import _thread
import atexit
import os
import sys
import threading
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple

from trainhooks import exits, own_thread, program_errors
from trainhooks.device import cuda, deferred
from trainhooks.device.device_lane import DeviceLane
from trainhooks.lane_entries import AUTOMATIC, CANCEL, NOTE, Lane, host_clock, monotonic_seconds
from trainhooks.own_thread import LEAVE, PAUSE, OwnThread, allocate_lock
from trainhooks.recording import gc_pauses
from trainhooks.tracing.tracer import Tracer

MAX_EXIT_STALL = 1.0  # seconds that the end of the program waits without progress: a disk that stalls
MAX_EXIT_WAIT = (
    6.0  # seconds in all: on a busy machine the last lines take time, and so do a short program's first ones
)
MAX_PART_SECONDS = 0.5  # that `os._exit` or an exec waits for what is pending: without trainmon it takes no time
PART_POLL_SECONDS = 0.001

if TYPE_CHECKING:
    from trainhooks.recording.background_writer import BackgroundWriter

Put = Callable[[Tuple[Any, ...]], None]


class _Here(threading.local):
    """This thread's lane. `put` is missing until the thread's first public call, `quiet_put` until one by `auto`."""

    lane: Lane
    put: Put
    quiet_put: Put


class Session:
    """This process's lanes and its background thread.

    Attributes:
        started: whether the background thread has been started.
        recording: whether it has opened its journal.
        acts: whether it steps environments, and trains nothing itself as far as that is known.
        role: what it is in a program of several processes that differ; None: unknown.
        explicit: whether the program marks its steps itself; those that `auto` recognizes are then not wanted.
        error: what ended the program, once it ends.
        goes_on: whether the program may go on after it is `leaving`: an exec can fail.
        leaving: whether everything is to be written, as the program ends or may do so.
        handed_over: whether that has been done.
        group: the process's place in its process group, read early: the group may be gone later.
        interactive: whether a person runs cells of code: an error of one ends that cell, and not the program.
    """

    def __init__(self, forked: bool = False) -> None:
        self.lanes: List[Lane] = []
        self.started = False
        self.writer: Optional[BackgroundWriter] = None  # once it records
        self.acts = False
        self.role: Optional[str] = None
        self.explicit = False
        self.forked = forked
        self.pid = os.getpid()
        self.thread = OwnThread(self._record)
        self.error: Optional[BaseException] = None
        self.goes_on = False
        self.leaving = False
        self.handed_over = False
        self.group: Dict[str, int] = {}
        self.interactive = False
        self._lock = allocate_lock()

    @property
    def over(self) -> bool:
        """Return whether the background thread has ended."""
        return self.thread.over

    def open_lane(self) -> Put:
        """Return this thread's `put` at its first public call."""
        here.put = put = self.quiet_lane()
        # A data loader's worker is no training: it stays silent unless it steps or calls init.
        if not self.forked and not is_child():
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
            atexit.register(self._at_exit)
            if is_child():  # a training started by multiprocessing: it ends without atexit
                sys.modules["multiprocessing.util"].Finalize(None, self._at_exit, exitpriority=-100)
            self.thread.start()  # where that is refused nothing is recorded

    def _at_exit(self) -> None:
        if os.getpid() != self.pid:
            return
        if deferred.waiting:
            deferred.put_arrived(started_put())
        device.finish()
        error = None if self.interactive else sys.exc_info()[1] or getattr(sys, "last_value", None)
        if self.error is None and not (isinstance(error, SystemExit) and not error.code):
            self.error = error
        self.goes_on, self.leaving = False, True
        self.thread.wake()
        until = monotonic_seconds() + MAX_EXIT_WAIT
        while monotonic_seconds() < until:
            before = self._progress()
            if self.thread.join(MAX_EXIT_STALL) or (self.writer is not None and self._progress() == before):
                return

    def flush(self, goes_on: bool, error: Optional[BaseException]) -> None:
        """Write what is pending, before the process ends without exit handlers or becomes another program.

        Takes no lock: a signal handler may call it at any point, and a thread while the main thread hangs.
        """
        if not self.started or os.getpid() != self.pid or self.over:
            return
        self.error, self.goes_on, self.handed_over = self.error or error, goes_on, False
        self.leaving = True
        self.thread.wake()
        until = monotonic_seconds() + MAX_PART_SECONDS
        while not (self.over or (goes_on and self.handed_over)) and monotonic_seconds() < until:
            own_thread.sleep(PART_POLL_SECONDS)

    def flushed(self) -> bool:
        """For the background thread: note that all is written. Return whether to go on recording."""
        self.leaving, self.handed_over = False, True
        return self.goes_on

    def _record(self) -> bool:
        """Run the background thread, which imports what it needs: so `import trainhooks` stays quick.

        Returns:
            Whether it only pauses.
        """
        try:
            if self.writer is None:
                self.writer = self._open()
            return self.writer.run()
        except BaseException as error:  # whatever goes wrong here must not reach the program
            program_errors.show(error)
            return False

    def _open(self) -> BackgroundWriter:
        exits.put_everywhere()
        with _importing:  # the encoder's library, too
            from trainhooks.recording.background_writer import BackgroundWriter

            writer = BackgroundWriter(
                self.lanes, self._wait, lambda: self.error, self.flushed, device, lambda: self.acts, lambda: self.role
            )
        writer.interactive = self.interactive
        writer.open(self.group)
        return writer

    def _wait(self, seconds: float) -> int:
        """Wait at most so long. Return LEAVE at the end of the program, PAUSE before a fork, else 0."""
        if not self.leaving:
            self.thread.wait(seconds)
        return LEAVE if self.leaving else PAUSE if self.thread.pausing else 0

    def _progress(self) -> Tuple[int, int]:
        """Return how many entries are not assembled yet, and how many batches were written."""
        written = self.writer.batches_written if self.writer is not None else 0
        return sum(len(lane.entries) for lane in list(self.lanes)), written


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
_new_lock = own_thread.unpatched(_thread, "RLock")
_importing = _new_lock()
MAX_IMPORT_WAIT = 2.0  # seconds; a file system that hangs must not hold the training up


def _raise_later(error: BaseException) -> None:
    """Have an exception of the program raised once the fork has returned: in a hook of a fork it would get lost."""
    if program_errors.is_programs(error):
        own_thread.raise_later(error)


def _before_fork() -> None:
    try:
        own_thread.before_fork()
        device.tracer.end()  # a child would go on recording, and never end it
        _importing.acquire(timeout=MAX_IMPORT_WAIT)
    except BaseException as error:
        _raise_later(error)


def _after_fork_in_parent() -> None:
    try:
        _importing.release()
    except RuntimeError:  # it was not acquired in time
        pass
    except BaseException as error:
        _raise_later(error)
    own_thread.after_fork_in_parent(sys._getframe(1))


def _after_fork() -> None:
    global _importing, _session
    _importing = _new_lock()
    own_thread.after_fork_in_child()
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


def is_child() -> bool:
    """Return whether multiprocessing has started this process."""
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
        _session.explicit, _session.acts = True, False
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


def side_put() -> Put:
    """For `auto`: return the `put` of a further lane of this thread, for what is no part of its steps."""
    lane = Lane()
    _session.lanes.append(lane)
    return lane.put


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


def announce(acts: bool = False) -> None:
    """For `auto`: start the background thread, since this process is a training, or acts for one so far."""
    _session.acts = acts and (_session.acts or not _session.started)
    if not _session.started:
        _session.start()


def set_role(role: str) -> None:
    """For `auto`: note what this process is in its program, before it announces itself."""
    _session.role = _session.role or role


def part_failed(part: str, error: Optional[BaseException]) -> None:
    """Note that a part of the hooks has ended, by an error of ours: from here on something is missing."""
    if error is None:
        return
    quiet_put()((NOTE, host_clock(), program_errors.failure(part, error), program_errors.FAILED))
    if not _session.forked:
        announce()
    program_errors.show(error)


def has_stepped() -> bool:
    """Return whether a step of this process has been recorded, or nothing is recorded any more."""
    return _session.over or (_session.writer is not None and _session.writer.steps > 0)


def is_started() -> bool:
    """Return whether this process records."""
    return _session.started


def run_path() -> Optional[str]:
    """Return the directory of this process's run; None where there is none yet."""
    path = _session.writer.directory if _session.writer is not None else None
    return None if path is None else str(path)


def set_interactive() -> None:
    """Note that a person runs cells of code in this process."""
    _session.interactive = True


def has_explicit_steps() -> bool:
    """For `auto`: return whether the program marks its steps itself."""
    return _session.explicit


def open_lane() -> Put:
    """Return this thread's `put` at its first public call."""
    return _session.open_lane()

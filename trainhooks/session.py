"""This process's lanes, and the background thread that empties them: made when they are needed, anew after a fork."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from typing import Any, Callable, Dict, List, Optional, Tuple

from trainhooks import cuda, deferred, gc_pauses
from trainhooks.clocks import host_clock, monotonic_seconds
from trainhooks.device_lane import DeviceLane
from trainhooks.entries import AUTOMATIC, CANCEL, Lane
from trainhooks.process_group import process_group

EXIT_FLUSH = 1.0  # seconds that the end of the program waits while none of what is left goes: a disk that stalls
EXIT_MOST = 6.0  # and in all: on a busy machine the last lines take their time, and a short program's first ones
DEBUG_VARIABLE = "TRAINMON_DEBUG"  # set, it lets the background thread's own errors be seen


Put = Callable[[Tuple[Any, ...]], None]


class _Here(threading.local):
    """This thread's lane. `put` is missing until the thread's first public call, `quiet_put` until one by `auto`."""

    lane: Lane
    put: Put
    quiet_put: Put


class _Stop:
    """As threading.Event for the one who waits, at a tenth of the price: that is done twenty times a second."""

    def __init__(self) -> None:
        self._held = threading.Lock()
        self._held.acquire()

    def set(self) -> None:
        try:
            self._held.release()
        except RuntimeError:  # it is set, and not yet seen
            pass

    def wait(self, seconds: float) -> bool:
        """Whether it was set; then it will not be again."""
        return self._held.acquire(timeout=seconds)


class Session:
    """This process's lanes, and whether its background thread has been started."""

    def __init__(self, forked: bool = False) -> None:
        self.lanes: List[Lane] = []
        self.started = False
        self.recording = False  # the background thread has opened its journal
        self.explicit = False  # the program tells its steps itself; what `auto` makes out is not wanted
        self.forked = forked
        self.pid = os.getpid()
        self.stop = _Stop()
        self.error: Optional[BaseException] = None  # what ended the program, once it ends
        self.group: Dict[str, int] = {}  # asked at once: when the background thread comes to it, it may be gone
        self._lock = threading.Lock()

    def open_lane(self) -> Put:
        here.put = put = self.quiet_lane()
        # A data loader's worker is no training: it stays silent unless it steps or calls init.
        if not self.forked and not _spawned_worker():
            self.start()
        return put

    def quiet_lane(self) -> Put:
        """This thread's lane, without starting anything: what it takes is kept until the process announces itself."""
        try:
            return here.quiet_put
        except AttributeError:
            return self.new_lane().put

    def new_lane(self) -> Lane:
        here.lane = lane = Lane()
        self.lanes.append(lane)
        here.quiet_put = lane.put
        return lane

    def start(self) -> None:
        """Start the background thread, once. Never raises: a training without trainmon beats no training."""
        if self.started:
            return
        with self._lock:
            if self.started:
                return
            self.started = True
            self.group = process_group()
            try:
                thread = threading.Thread(target=_record, args=(self,), name="trainhooks", daemon=True)
                thread.start()
            except RuntimeError:  # no thread can be had (limits, the interpreter's end): then nothing is recorded
                return
            atexit.register(self._at_exit, thread)
            if _spawned_worker():  # a training started by multiprocessing: its end passes atexit by
                sys.modules["multiprocessing.util"].Finalize(None, self._at_exit, (thread,), exitpriority=-100)

    def _at_exit(self, thread: threading.Thread) -> None:
        if os.getpid() != self.pid:
            return
        if deferred.waiting:
            deferred.poll(started())
        device.finish()
        error = sys.exc_info()[1] or getattr(sys, "last_value", None)
        if self.error is None and not (isinstance(error, SystemExit) and not error.code):
            self.error = error
        self.stop.set()
        until = monotonic_seconds() + EXIT_MOST
        while thread.is_alive() and monotonic_seconds() < until:
            before = self._waiting()
            thread.join(EXIT_FLUSH)
            if self.recording and self._waiting() == before:
                return

    def _waiting(self) -> int:
        """Entries that are not digested yet."""
        return sum(len(lane.ops) for lane in list(self.lanes))


def _record(session: Session) -> None:
    """The background thread. It imports what it needs by itself, so that `import trainhooks` stays quick."""
    try:
        with _importing:
            from trainhooks.outbox import Outbox

            outbox = Outbox(session.lanes, session.stop.wait, lambda: session.error, device)
        outbox.open(session.group)
        session.recording = True
        outbox.run()
    except Exception:  # whatever goes wrong here is trainmon's own trouble; the training must not hear of it
        if os.environ.get(DEBUG_VARIABLE):
            raise


here = _Here()
_session = Session()


def _route(lane: Lane, put: Put) -> None:
    """All that the calling thread, whose lane this is, puts into it goes through `put` from here on."""
    before, lane.put = lane.put, put
    if lane.follower is not None:
        lane.follower.put = put
    mine = here.__dict__
    for name in ("put", "quiet_put"):
        if mine.get(name) is before:
            mine[name] = put


device = DeviceLane(_route)

# A fork waits until the background thread has imported what it needs, once in a program's life and some 50 ms at most.
# In its child a module that was being imported would stay locked for ever, and whoever imports it would hang.
_importing = threading.RLock()
IMPORT_WAIT = 2.0  # seconds; a file system that hangs must not hold the training


def _before_fork() -> None:
    _importing.acquire(timeout=IMPORT_WAIT)


def _after_fork_in_parent() -> None:
    try:
        _importing.release()
    except RuntimeError:  # it was not to be had in time
        pass


def _after_fork() -> None:
    global _importing, _session
    _importing = threading.RLock()
    here.__dict__.clear()  # this thread's, and no other is left
    _session = Session(forked=True)
    deferred.forget()
    cuda.forget()
    gc_pauses.forget()
    device.forget()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork)


def _spawned_worker() -> bool:
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None


def started() -> Put:
    """This thread's `put`, with the background thread running."""
    try:
        put = here.put
    except AttributeError:
        put = _session.open_lane()
    if not _session.started:
        _session.start()
    return put


def steps_told() -> Put:
    """As `started`; and from here on the program tells its steps itself."""
    put = started()
    if not _session.explicit:
        _session.explicit = True
        put((CANCEL, host_clock(), AUTOMATIC))
        device.left(AUTOMATIC)
        for lane in list(_session.lanes):
            if lane.live is not None:
                lane.live.stop()
        here.put = here.quiet_put = put = here.lane.put
    return put


def quiet_put() -> Put:
    """For `auto`: this thread's `put`. What goes through it is kept, unsent, until `announce`."""
    return _session.quiet_lane()


def own_lane() -> Lane:
    """For `auto`: this thread's lane itself."""
    try:
        return here.lane
    except AttributeError:
        return _session.new_lane()


def put_through(tell: Put) -> None:
    """For `auto`: what this thread puts from here on goes through `tell`, in the public calls, too."""
    here.quiet_put = tell
    if hasattr(here, "put"):
        here.put = tell


def announce() -> None:
    """For `auto`: this process is a training. Start the background thread."""
    if not _session.started:
        _session.start()


def explicit() -> bool:
    """For `auto`: whether the program tells its steps itself."""
    return _session.explicit


def open_lane() -> Put:
    """This thread's `put`, at its first public call."""
    return _session.open_lane()

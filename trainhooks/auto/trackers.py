"""What a program sends to its experiment tracker, recorded as by `log`; and trainmon's own figures, for the tracker.

The figures come from a process of trainmon beside the training (`run --mirror NAME`), by a file of the run, which a
thread of ours reads. They go along with what the program logs: it makes the call, so its steps and rows stay its own.
"""

import json
import os
import sys
from itertools import islice
from typing import Any, Callable, Dict, List, Set

from trainhooks import session
from trainhooks.auto import unseen
from trainhooks.auto.instrumentation import framework, wrap
from trainhooks.device import deferred
from trainhooks.device.deferred import NUMBER_TYPES
from trainhooks.lane_entries import LOG
from trainhooks.own_thread import OwnThread
from trainhooks.program_errors import pass_on
from trainhooks.protocol.rundir import MIRROR, MIRROR_VARIABLE, RUN_VARIABLE

MAX_NAMES = 500  # of one call that are looked at
MAX_NESTING = 2  # mappings in mappings
MAX_FILE = 64 * 1024  # bytes of the figures
READ_SECONDS = 1.0
PREFIX = "trainmon/"
POSITIONS = frozenset((
    "step", "_step", "epoch", "global_step", "train/global_step", "trainer/global_step", "train/epoch",
))  # fmt: skip

Wrapper = Callable[..., Any]


def record(values: Any) -> None:
    """Record the numbers of a mapping; texts, media and what a framework has reported itself are left out."""
    found: Dict[str, Any] = {}
    _take_numbers(values, "", found, MAX_NESTING)
    if found:
        found = deferred.settle_metrics(found)
    if found:
        session.quiet_put()((LOG, found))
        if "torch" not in sys.modules:  # else it is the steps that show whether this process trains
            session.announce()


def _take_numbers(values: Any, prefix: str, found: Dict[str, Any], depth: int) -> None:
    for name, value in islice(values.items(), MAX_NAMES):
        kind = type(value)
        if len(found) >= MAX_NAMES:
            return
        if kind is dict and depth:
            _take_numbers(value, f"{prefix}{name}/", found, depth - 1)
        elif kind in NUMBER_TYPES or hasattr(value, "detach") or getattr(value, "size", 0) == 1:
            full = f"{prefix}{name}"
            if full not in POSITIONS and not full.startswith((PREFIX, "system/")) and not _is_reported(full):
                found[full] = value


def _is_reported(name: str) -> bool:
    """Return whether a framework has reported a metric itself: HF Trainer's `loss` is `train/loss` for a tracker."""
    if not framework.metrics:
        return False
    part, _, rest = name.partition("/")
    theirs = (name, f"{part}_{rest}", rest if part == "train" else name)
    return any(each in framework.metrics for each in theirs)


def wrap_log(owner: Any, name: str, tracker: str) -> None:
    """Wrap a method `log(self, values, ...)` of a tracker's run: values are recorded, and our figures go along."""

    def make(original: Wrapper) -> Wrapper:
        def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                key = next((each for each in ("data", "metrics") if each in kwargs), None)
                values = kwargs[key] if key is not None else args[0] if args else None
                if type(values) is dict:
                    record(values)
                    more = due(tracker)
                    if more and key is not None:
                        kwargs[key] = {**values, **more}
                    elif more:
                        args = ({**values, **more}, *args[1:])
            except Exception as error:  # of ours, or of an odd mapping: the program's call goes on as it is
                pass_on(error)
            return called(original, self, *args, **kwargs)

        return wrapper

    wrap(owner, name, make)


def called(original: Wrapper, *args: Any, **kwargs: Any) -> Any:
    """Return what the tracker's own function returns; what it raises shows no frame of ours."""
    try:
        return original(*args, **kwargs)
    except BaseException as error:
        unseen.drop_own_frames(error)
        raise


# Our figures, for the tracker


class _Mirror:
    """Reads the figures in a thread of ours, so that no disk is waited for elsewhere."""

    def __init__(self, run: str) -> None:
        self._path = os.path.join(run, MIRROR)
        self._seen = (0, 0)
        self.figures: Dict[str, float] = {}
        self.told: Set[str] = set()  # the trackers that have got them
        self.thread = OwnThread(self._read)

    def _read(self) -> bool:
        while not self.thread.pausing:
            try:
                status = os.stat(self._path)
                if (status.st_mtime_ns, status.st_ino) != self._seen and status.st_size <= MAX_FILE:
                    self._seen = status.st_mtime_ns, status.st_ino
                    with open(self._path, encoding="utf-8") as file:
                        self.figures = {f"{PREFIX}{name}": float(value) for name, value in json.load(file).items()}
                    self.told = set()
            except Exception:  # not written yet, or a run that was removed
                pass
            self.thread.wait(READ_SECONDS)
        return True


_mirrors: List[_Mirror] = []


def due(tracker: str) -> Dict[str, float]:
    """Return our figures where they are wanted in this tracker and are new: once to each. Never waits."""
    if tracker not in _WANTED:
        return {}
    if not _mirrors:
        _mirrors.append(_Mirror(os.environ.get(RUN_VARIABLE, "")))
        _mirrors[0].thread.start()
    mirror = _mirrors[0]
    if not mirror.figures or tracker in mirror.told:
        return {}
    mirror.told.add(tracker)
    return mirror.figures


_WANTED = frozenset(os.environ.get(MIRROR_VARIABLE, "").split(",") if os.environ.get(RUN_VARIABLE) else ())


def _forget() -> None:
    _mirrors.clear()


os.register_at_fork(after_in_child=_forget)

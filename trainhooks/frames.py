"""Where the training thread stands: a look at its stack, ten times a second at most.

It names the user's own line for time that no phase explains. A look costs some ten microseconds of the background
thread, none of the training's own code. Set TRAINMON_FRAMES=0 to have none.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from types import FrameType
from typing import Dict, List, Optional, Tuple

from trainhooks.calls import called
from trainhooks.events import MAX_NAME, clean

VARIABLE = "TRAINMON_FRAMES"
FROM = ", from "
LEAST = 12  # characters of a library's place; less says nothing
MAX_ROWS = 100  # places kept between two reports; what a stranger's stack shows beyond is not counted

_TORCH = f"-packages{os.sep}torch{os.sep}"
_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep
_LIBRARY = tuple(
    {os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "platstdlib")}
    | {sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")}
)


class Sampler:
    """Counts where a thread stood, by what was open then."""

    def __init__(self) -> None:
        self.wanted = os.environ.get(VARIABLE, "1") != "0"
        self._rows: Dict[Tuple[str, str], int] = {}
        self._names: Dict[str, str] = {}

    def look(self, thread: int, where: str) -> Optional[str]:
        """Count the thread's innermost user frame under `where`; returns it."""
        frame = sys._current_frames().get(thread) if self.wanted else None
        place = self._place(frame) if frame is not None else None
        if place is not None:
            key = (where, place)
            if key not in self._rows and len(self._rows) >= MAX_ROWS // 2:
                key = (where, place.rpartition(FROM)[2])  # a library's places can be many
            if key in self._rows or len(self._rows) < MAX_ROWS:
                self._rows[key] = self._rows.get(key, 0) + 1
        return place

    def take(self) -> List[Tuple[str, str, int]]:
        """What was counted since the last time: what was open, the place, looks that found it there."""
        rows = [(where, place, times) for (where, place), times in self._rows.items()]
        self._rows = {}
        return rows

    def _place(self, frame: Optional[FrameType]) -> Optional[str]:
        """`train.py:41 (json.load) in read`: the innermost frame of the user's own code, else the innermost of all.

        In brackets what it is calling there, where that is clear. Where a library goes on inside, its innermost frame
        comes first: `transformers/trainer.py:3821 (loss.item) in _inner_training_loop, from train.py:83 (...) in ...`.
        Torch and the standard library are named so only where the user's line does not say what it calls.
        """
        innermost: Optional[FrameType] = None
        library: Optional[FrameType] = None
        while frame is not None:
            path = frame.f_code.co_filename
            if not path.startswith(_OWN):
                if _is_users(path):
                    call = called(frame)
                    told = self._told(frame, call)
                    inner = library if library is not None or call is not None else innermost
                    return told if inner is None else self._from(inner, told)
                if innermost is None:
                    innermost = frame
                if library is None and _is_library(path):
                    library = frame
            frame = frame.f_back
        found = library if library is not None else innermost
        return self._told(found, called(found)) if found is not None else None

    def _from(self, inner: FrameType, users: str) -> str:
        """The user's part stays whole at the end; of the other as much as there is room for."""
        room = MAX_NAME - len(FROM) - len(users)
        return self._told(inner, called(inner))[:room].rstrip() + FROM + users if room >= LEAST else users

    def _told(self, frame: FrameType, call: Optional[str]) -> str:
        path, function = frame.f_code.co_filename, frame.f_code.co_name
        name = self._names.get(path)
        if name is None:
            name = self._names[path] = _short(path)
        place = f"{name}:{frame.f_lineno}"
        return clean(f"{place} ({call}) in {function}" if call else f"{place} in {function}", MAX_NAME)


def _is_library(path: str) -> bool:
    """Whether a frame outside the user's code says more than that torch or Python was at it."""
    return not (path.startswith(("<", *_LIBRARY)) and "-packages" not in path) and _TORCH not in path


def _is_users(path: str) -> bool:
    if path.startswith("<") or "site-packages" in path or "dist-packages" in path:
        return False
    return not path.startswith(_LIBRARY)


def _short(path: str) -> str:
    """A path as people know it: from the working directory, else its last two parts."""
    try:
        inside = os.path.relpath(path)
    except (OSError, ValueError):
        inside = path
    return os.sep.join(path.split(os.sep)[-2:]) if inside.startswith("..") or "-packages" in path else inside

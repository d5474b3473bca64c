"""Where a process is, seen from outside: by py-spy where it is installed and allowed, else by the kernel."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from trainhooks.protocol import limits
from trainhooks.protocol.control import MAX_THREADS
from trainhooks.protocol.limits import MAX_NAME, clean
from trainhooks.protocol.places import MAX_FRAMES, Line, ThreadStack

PY_SPY_SECONDS = 5.0
_OWN = str(Path(limits.__file__).absolute().parents[1]) + os.sep  # the hooks' frames in the program
MAX_OUTPUT = 4 << 20  # bytes of py-spy's answer
_STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "waiting for a disk or a device",
    "T": "stopped",
    "t": "traced by a debugger",
    "Z": "ended, not collected by its parent",
}


def kernel_state(pid: int) -> str:
    """Return `sleeping in futex_wait_queue`, `stopped`, `running`; empty where the process is gone."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""
    word = _STATES.get(state, clean(state, 8))
    channel = ""
    with contextlib.suppress(OSError):  # of another user
        channel = clean(Path(f"/proc/{pid}/wchan").read_text(errors="replace"), MAX_NAME).strip()
    return f"{word} in {channel}" if channel not in ("", "0") and state in "SD" else word


def py_spy_threads(pid: int) -> tuple[list[ThreadStack], str]:
    """Return the Python threads of a process by `py-spy dump --nonblocking`, which stops nothing.

    Returns:
        The threads, none where they are not known; and why not, empty where py-spy is not installed.
    """
    program = shutil.which("py-spy")
    if program is None:
        return [], ""
    command = [program, "dump", "--nonblocking", "--json", "--pid", str(pid)]
    try:
        done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=PY_SPY_SECONDS)
    except subprocess.TimeoutExpired:
        return [], f"py-spy gave no answer within {PY_SPY_SECONDS:g} s"
    except OSError as error:
        return [], f"py-spy: {error.strerror}"
    if done.returncode != 0:
        words = done.stderr.decode(errors="replace").strip().splitlines()
        return [], f"py-spy: {clean(words[-1] if words else 'failed', MAX_NAME)}"
    try:
        rows = json.loads(done.stdout[:MAX_OUTPUT])
    except ValueError:
        rows = None
    if not isinstance(rows, list):
        return [], "py-spy: an answer of another form"
    return [found for row in rows[:MAX_THREADS] if (found := _thread(row, pid)) is not None], ""


def _thread(row: Any, pid: int) -> ThreadStack | None:
    if not isinstance(row, dict) or not isinstance(row.get("frames"), list):
        return None
    frames: list[Line] = []
    users = None
    for frame in row["frames"][:MAX_FRAMES]:
        if not isinstance(frame, dict):
            return None
        path = str(frame.get("filename") or "")
        if path.startswith(_OWN):
            continue
        if users is None and not any(part in path for part in ("-packages", "<frozen", f"{os.sep}lib{os.sep}python")):
            users = len(frames)
        short = path if os.sep not in path else os.sep.join(path.split(os.sep)[-2:])
        line = frame.get("line")
        name = clean(str(frame.get("name") or ""), MAX_NAME)
        frames.append(Line(clean(short, MAX_NAME), line if type(line) is int else 0, name))
    return ThreadStack(
        clean(str(row.get("thread_name") or ""), MAX_NAME), row.get("os_thread_id") == pid, frames, users
    )

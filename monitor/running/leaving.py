"""Memory near its limit: the recording ends, and the supervisor goes on as a smaller process.

A process gives memory back only as it ends or is replaced. The supervisor is the program's parent and records how it
ends, so it is replaced: by `waiting`, which takes some 4 MB. Once the program has ended, the supervisor replaces that.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from monitor.running import command, output, waiting

if TYPE_CHECKING:
    from monitor.running.supervise import Plan, Started


def leave(plan: Plan, started: Started, kills: tuple[str | None, int | None]) -> None:
    """Replace this process. Return where that cannot be done, or where it is needed for more than the end.

    The main thread must call it: another one's call would end the thread that is the program's parent, which a program
    may have asked to be told of.

    Args:
        kills: what `recorder.KernelKills` knew as the training began.
    """
    from monitor.running.supervise import IGNORED_SIGNALS

    copied = plan.copied.handle if plan.copied is not None else -1
    stdin = -1 if started.stdin is None else started.stdin
    if copied is None or started.master is not None or not waiting.is_roomy(str(plan.run)):
        return
    try:
        os.close(os.pidfd_open(started.pid))
    except (AttributeError, OSError):  # another system than Linux, or an old one: `waiting` could not wait
        return
    state = {
        "run": str(plan.run),
        "separate_streams": plan.separate_streams,
        "signal_mask": [int(number) for number in plan.signal_mask],
        "signal_pipe": plan.signal_pipe,
        "front": plan.front,
        "copied": copied,
        "child": started.pid,
        "stdin": stdin,
        "kills": kills,
    }
    lists = (",".join(str(int(number)) for number in each) for each in (IGNORED_SIGNALS, plan.signal_mask))
    words = [sys.executable, "-I", "-S", waiting.__file__, str(plan.run), str(started.pid), str(plan.signal_pipe)]
    words += [str(stdin), *lists, *command.module_command(__name__, json.dumps(state))]
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # a new process has no handlers at first
    handles = [handle for handle in (plan.signal_pipe, copied, stdin) if handle >= 0]
    try:
        for handle in handles:
            os.set_inheritable(handle, True)
        os.execv(words[0], words)
    except OSError:  # no memory for that either
        for handle in handles:
            os.set_inheritable(handle, False)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def main(state: str) -> NoReturn:
    """Go on as the supervisor, in the process that `leave` has replaced."""
    from monitor.running import supervise

    known = json.loads(state)
    for name in ("signal_pipe", "copied", "stdin"):
        if known[name] >= 0:
            os.set_inheritable(known[name], False)
    plan = supervise.Plan(
        run=Path(known["run"]),
        command=[],
        environment={},
        separate_streams=known["separate_streams"],
        signal_mask=set(known["signal_mask"]),
        signal_pipe=known["signal_pipe"],
        front=known["front"],
        copied=output.Copied(known["copied"]) if known["copied"] >= 0 else None,
    )
    stdin = known["stdin"] if known["stdin"] >= 0 else None
    supervise.go_on(plan, supervise.Started(known["child"], None, stdin), known["kills"])

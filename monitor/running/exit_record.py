"""How a training ended, recorded even on a full disk."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

from monitor.running.journal_writer import Writer
from trainhooks.protocol import events, rundir

if TYPE_CHECKING:
    from monitor.console.printed_error import PrintedError


EXIT_RESERVE = ".exit"  # reserves the disk space of the exit file
EXIT_RESERVE_BYTES = 4096


def reserve_exit_file(run: Path) -> None:
    """Reserve disk space for the exit file, so that the exit can be recorded on a full disk."""
    with contextlib.suppress(OSError), open(run / EXIT_RESERVE, "wb", opener=rundir.open_privately) as out:
        out.write(b" " * EXIT_RESERVE_BYTES)


ERROR_SEARCH_BYTES = 1 << 16  # of the output, in which the error that ended the program is looked for
SENT_BY_OTHERS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # what was printed before is no cause


def _printed_error(run: Path, returncode: int) -> PrintedError | None:
    """Return the error that the program printed last, where it failed by itself."""
    if returncode == 0 or -returncode in SENT_BY_OTHERS:
        return None
    from monitor.console.printed_error import printed_error

    try:
        with open(run / rundir.CONSOLE, "rb", opener=rundir.open_at_once) as console:
            console.seek(max(0, os.fstat(console.fileno()).st_size - ERROR_SEARCH_BYTES))
            text = console.read(ERROR_SEARCH_BYTES).decode(errors="replace")
        return printed_error(text, str((rundir.read_json(run / rundir.IDENTITY) or {}).get("cwd") or "/"))
    except Exception:  # no output in a file, or one of a kind that nobody thought of; the exit is recorded without it
        return None


def write_unseen_exit(run: Path, writer: Writer, at: float | None) -> None:
    """Record that a process has ended for which nobody here has waited.

    Python's exit code is 1 where its output ends with an uncaught exception. Other ends are not known.

    Args:
        at: the monotonic time of its end; None: now.
    """
    printed = _printed_error(run, 1)
    write_exit(run, writer, None if printed is None or printed.place is None else 1, at=at)


def write_exit(
    run: Path, writer: Writer | None, returncode: int | None, oom_kills: int | None = None, at: float | None = None
) -> None:
    """Record how the training ended. Only for the process that waited for it.

    Args:
        writer: None where the journal could not be opened.
        returncode: as in subprocess: negative for a signal. None: unknown.
        oom_kills: processes that the kernel killed meanwhile, as in `events.Exit`.
        at: the monotonic time of the end; None: now.
    """
    code, by_signal = (returncode, None) if returncode is None or returncode >= 0 else (None, -returncode)
    ended_monotonic = time.monotonic() if at is None else at
    ended = time.time() - (time.monotonic() - ended_monotonic)
    if writer is not None:
        exit_ = events.Exit(producer="", seq=0, t=ended_monotonic, exit_code=code, signal=by_signal)
        exit_.oom_kills = oom_kills
        words = _printed_error(run, returncode) if returncode is not None else None
        if words is not None:
            exit_.error, exit_.place = words.error, words.place
        writer.write(exit_)
    known: dict[str, object] = {
        "exit_code": code,
        "signal": by_signal,
        "ended": ended,
        "ended_monotonic": ended_monotonic,
    }
    try:
        rundir.write_json(run / rundir.EXIT, known)
        (run / EXIT_RESERVE).unlink(missing_ok=True)
    except OSError:  # a full disk
        _write_into_reserve(run, known)


def _write_into_reserve(run: Path, known: dict[str, object]) -> None:
    """Overwrite the reserved blocks and rename the file: neither needs disk space."""
    with contextlib.suppress(OSError):  # the waiting process still returns the code to its caller
        with open(run / EXIT_RESERVE, "r+b") as out:
            out.write(json.dumps(known).encode().ljust(EXIT_RESERVE_BYTES))
        os.replace(run / EXIT_RESERVE, run / rundir.EXIT)

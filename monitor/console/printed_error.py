"""What a program printed of the error that ended it: the last traceback, or a fault's own line. Pure."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from monitor.units import signal_name
from trainhooks.protocol.limits import MAX_NAME, clean
from trainhooks.protocol.places import Line
from trainhooks.protocol.secrets import mask

MAX_LINES_AFTER = 80  # between the error and the end, where a launcher adds its own report
# Likewise without a launcher: what exit handlers and experiment trackers say. An error before that was survived.
MAX_PLAIN_LINES_AFTER = 12
MAX_ERROR_CHARACTERS = 512  # characters
MAX_LINE_LENGTH = 4096  # characters that are looked at

RANK_ENDED = "rank ended by "  # begins the error of a rank that a signal ended, by the report of its launcher

_TRACEBACK = "Traceback (most recent call last):"
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_RANK = re.compile(r"^\[(rank\d{1,6})\]:? ?")  # torch's hook for uncaught exceptions puts it before each line
_FILE = re.compile(r'^  File "([^"]{1,1024})", line (\d{1,9}), in (.{1,200})$')
_ERROR = re.compile(r"^([A-Za-z_][\w.]{0,200})(?:: (.*))?$|^([A-Za-z_][\w.]{0,200}):$")
# A launcher's own error says that a child failed, not why.
_LAUNCHERS = re.compile(r"ChildFailedError|CalledProcessError|ProcessRaisedException|ProcessExitedException")
_COLOR = re.compile(r"\x1b\[[0-?]{0,64}[ -/]{0,8}[@-~]")
_LIBRARY = re.compile(r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib(?:64)?[/\\]python\d|^<|[/\\]trainhooks[/\\]")
# Faults that print no traceback, the one that explains the others first.
_ENDED_RANK = re.compile(r"exitcode: -(\d{1,2})\) local_rank: (\d{1,6})")  # torchrun, of the first one that failed
_FAULTS = (
    re.compile(r"(Watchdog caught collective operation timeout.{0,300})"),
    re.compile(r"(what\(\):  .{1,400})"),
    re.compile(r"(terminate called after throwing an instance of .{1,200})"),
    re.compile(r"((?:ERROR: Unexpected )?[Bb]us error.{0,200})"),
)

NOT_STARTED = "Python did not start the program: "  # begins the error of a mistake in the command
_NOT_STARTED = re.compile(
    r"^\S{0,1024}python[\d.]{0,8}: "
    r"((?:can't open file|can't find '__main__' module|No module named|Error while finding module) .{1,400})"
)


@dataclass(frozen=True, slots=True)
class PrintedError:
    """The error as a program printed it, and the user's line."""

    error: str
    place: str | None = None


@dataclass(slots=True)
class _Traceback:
    rank: str
    error: str
    place: tuple[str, str, str] | None
    at: int  # its last line
    chained: bool  # the next one of this rank follows from it


def printed_error(text: str, directory: str) -> PrintedError | None:
    """Return the error that ended a program, by the end of its output; None where there is none.

    Args:
        directory: that the program worked in; places are named from there.
    """
    # Each frame of a progress bar counts: where one goes on, so did the program.
    lines = [row[:MAX_LINE_LENGTH] for row in re.split("\r?\n|\r", _COLOR.sub("", text).rstrip())]
    started = _NOT_STARTED.match(lines[-1])
    if started is not None:
        return PrintedError(clean(mask(f"{NOT_STARTED}{started[1]}"), MAX_ERROR_CHARACTERS))
    late = max(0, len(lines) - MAX_LINES_AFTER)
    found = next((hit for fault in _FAULTS[:1] for line in lines[late:] if (hit := fault.search(line))), None)
    if found is not None:
        return PrintedError(_error_text(found[1]))
    found = next((hit for line in lines[late:] if (hit := _ENDED_RANK.search(line))), None)
    if found is not None:
        return PrintedError(f"{RANK_ENDED}{signal_name(int(found[1]))}: local rank {found[2]}")
    ends = [each for each in _tracebacks(lines) if not each.chained and not _LAUNCHERS.search(each.error)]
    ranked = [each for each in ends if each.rank]  # uncaught, all of them: the first one is the cause
    is_launched = any(_LAUNCHERS.search(line) for line in lines[late:])
    least = late if is_launched else len(lines) - 1 - MAX_PLAIN_LINES_AFTER
    ended = ranked[0] if ranked else next((each for each in reversed(ends) if each.at >= least), None)
    if ended is not None:
        return PrintedError(_error_text(ended.error), _place(ended.place, directory))
    found = next((hit for fault in _FAULTS[1:] for line in lines[max(0, least) :] if (hit := fault.search(line))), None)
    return PrintedError(_error_text(found[1])) if found is not None else None


def _tracebacks(lines: list[str]) -> list[_Traceback]:
    """Return the tracebacks in the order in which they end; those of several ranks may be interleaved."""
    open_: dict[str, tuple[str, str, str] | None] = {}
    latest: dict[str, _Traceback] = {}
    done: list[_Traceback] = []
    for at, whole in enumerate(lines):
        head = _RANK.match(whole)
        rank, line = (head[1], whole[head.end() :]) if head is not None else ("", whole)
        if line.rstrip().endswith(_TRACEBACK):  # a progress bar may stand before it
            open_[rank] = None
        elif rank in open_:
            file = _FILE.match(line)
            if file is not None and not _LIBRARY.search(file[1]):
                open_[rank] = (file[1], file[2], file[3])
            error = _ERROR.match(line)
            if error is not None:
                latest[rank] = _Traceback(rank, line.rstrip(": "), open_.pop(rank), at, False)
                done.append(latest[rank])
            elif line and not line.startswith((" ", "\t")):
                del open_[rank]
        elif rank in latest and line.startswith(_CHAINED):
            latest[rank].chained = True
    return done


def _place(place: tuple[str, str, str] | None, directory: str) -> str | None:
    if place is None:
        return None
    path, line, function = place
    inside = os.path.relpath(os.path.join(directory, path), directory)
    short = os.sep.join(path.split(os.sep)[-2:]) if inside.startswith("..") else inside
    return str(Line(clean(short, MAX_NAME), int(line), clean(function, MAX_NAME)).fitted(MAX_NAME))


def _error_text(error: str) -> str:
    """Return the error in one line, without the module of its type and without secrets."""
    kind, colon, message = error.partition(":")
    name = kind.rpartition(".")[2] if re.fullmatch(r"[\w.]+", kind) else kind
    return clean(mask(f"{name}{colon}{message}"), MAX_ERROR_CHARACTERS)

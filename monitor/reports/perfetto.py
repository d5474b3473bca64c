"""All that a trace recorded, as a Chrome trace: for Perfetto, chrome://tracing, speedscope."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import msgspec

from trainhooks.protocol import rundir
from trainhooks.protocol.events import Trace
from trainhooks.protocol.limits import MAX_INTEGER, MAX_NAME, clean
from trainhooks.protocol.traced_events import MAX_FILE

MICROSECOND = 1000.0  # nanoseconds
PHASES, HOST, DEVICE = 0, 1, 2  # process ids: the order in which they are shown
VALUES = 6  # of an event


class Unreadable(Exception):
    """The file is missing, of another trace, or broken. The message says which."""


def write(source: Path, trace: Trace, target: IO[bytes]) -> tuple[int, int]:
    """Write the recorded events of a trace that was asked for.

    Args:
        source: the file that the hooks wrote (`trainhooks.protocol.traced_events`).
        trace: the event of the same trace.

    Returns:
        How many events were written, and how many the file lacks, as it would have become too large.

    Raises:
        Unreadable: the file is not that of this trace.
        OSError: the target cannot be written.
    """
    head, lines = _content(source)
    if (head.get("producer"), head.get("asked")) != (trace.producer, trace.asked):
        raise Unreadable("it is of another trace")
    left_out = 0
    count = 0
    target.write(b'{"displayTimeUnit":"ms","traceEvents":[\n')
    target.write(b",\n".join(json.dumps(row).encode() for row in _heads(trace)))
    for row in _phases(head):
        target.write(b",\n" + json.dumps(row).encode())
    names: list[str] = []
    for line in lines:
        if isinstance(line, dict):
            left_out = _whole(line.get("left_out"))
            break
        if not isinstance(line, list) or len(line) not in (1, VALUES):
            raise Unreadable("it holds a line that is no event")
        if len(line) == 1:
            names.append(clean(line[0], MAX_NAME))
            continue
        target.write(b",\n" + json.dumps(_event(names, [_whole(value) for value in line], trace)).encode())
        count += 1
    else:
        raise Unreadable("its end is missing")
    target.write(b"\n]}\n")
    return count, left_out


def _content(source: Path) -> tuple[dict[str, Any], Iterator[Any]]:
    try:
        lines = iter(rundir.read_regular(source, MAX_FILE).splitlines())
    except OSError as error:
        raise Unreadable(f"it could not be written, or read ({error.strerror})") from None
    decoded = map(_decoded, lines)
    head = next(decoded, None)
    if not isinstance(head, dict):
        raise Unreadable("its first line is missing")
    return head, decoded


def _decoded(line: bytes) -> Any:
    try:
        return msgspec.json.decode(line)
    except (ValueError, RecursionError):
        raise Unreadable("it holds a line that is no JSON") from None


def _whole(value: Any) -> int:
    if type(value) is not int or not -MAX_INTEGER <= value <= MAX_INTEGER:
        raise Unreadable("it holds a number that is none")
    return int(value)


def _heads(trace: Trace) -> Iterator[dict[str, Any]]:
    device = {DEVICE: "GPU: kernels and copies, by stream"} if trace.device == "cuda" else {}
    host = "CUDA calls, by thread" if device else "operators, by thread"
    for process, name in {PHASES: "phases", HOST: f"host: {host}", **device}.items():
        yield {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": name}}
        yield {"ph": "M", "name": "process_sort_index", "pid": process, "tid": 0, "args": {"sort_index": process}}


def _phases(head: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the phases of the steps; time in none is left empty."""
    marks = head.get("phases")
    if not isinstance(marks, list) or not all(isinstance(mark, list) and len(mark) == 2 for mark in marks):
        raise Unreadable("its phases are none")
    until = _whole(head.get("until"))
    times = [max(0, _whole(t)) for t, _ in marks]
    for (_, phase), began, ended in zip(marks, times, [*times[1:], until], strict=True):
        if phase != "other" and ended > began:
            yield _slice(clean(phase, MAX_NAME), PHASES, 0, began, ended - began)


def _event(names: list[str], values: list[int], trace: Trace) -> dict[str, Any]:
    number, on_device, began, duration, lane, correlation = values
    if not 0 <= number < len(names):
        raise Unreadable("it holds an event without a name")
    row = _slice(names[number], DEVICE if on_device else HOST, lane, began, duration)
    row["cat"] = "device" if on_device else "call" if trace.device == "cuda" else "operator"
    if correlation and trace.device == "cuda":
        row["args"] = {"correlation": correlation}
    return row


def _slice(name: str, process: int, lane: int, began: int, nanoseconds: int) -> dict[str, Any]:
    times = {"ts": began / MICROSECOND, "dur": nanoseconds / MICROSECOND}
    return {"ph": "X", "name": name, "pid": process, "tid": lane, **times}

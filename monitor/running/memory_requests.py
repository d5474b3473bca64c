"""Ask every process of a run what holds its memory, and what it grows by."""

from __future__ import annotations

import contextlib
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from monitor.errors import UserError
from monitor.model.process_memory import RankMemory
from monitor.running.asking import Listener, check_running, connect, listeners, read_line, why_nobody_listens
from trainhooks.protocol import control
from trainhooks.protocol.control import MAX_GROWTH_SECONDS, MemoryRequest
from trainhooks.protocol.limits import MAX_NAME, clean
from trainhooks.protocol.memory import ProcessMemory, Row

ANSWER_SECONDS = 10.0  # the allocator's blocks may be many, and the interpreter busy
MAX_AT_ONCE = 64  # processes asked at the same time


def ranks_memory(run: Path, request: MemoryRequest) -> list[RankMemory]:
    """Return what holds the memory of each process of a running run, by rank.

    Raises:
        UserError: it is not running, on another machine, or nobody listens.
    """
    check_running(run, "only a running one can be asked; of one that ran out of memory, trainmon report says more")
    found = listeners(run)
    if not found:
        raise UserError(why_nobody_listens(run, "asked for its memory"))
    with ThreadPoolExecutor(min(MAX_AT_ONCE, len(found))) as pool:
        return list(pool.map(lambda one: _ask(one, run, request), found))


def _ask(listener: Listener, run: Path, request: MemoryRequest) -> RankMemory:
    seconds = ANSWER_SECONDS + (MAX_GROWTH_SECONDS if request.growth else 0.0)
    line: bytes | None = b""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        if connect(connection, listener.socket, run):
            connection.sendall(request.line())
            line = read_line(connection, seconds, control.MAX_STACKS)
    if line is None:
        return RankMemory(listener.rank, why=f"no answer within {seconds:.0f} s: something holds the interpreter")
    refused = control.read_answer(line)
    if refused is not None and refused.status == control.REFUSED:
        return RankMemory(listener.rank, why="; ".join(refused.reasons))
    try:
        return RankMemory(listener.rank, _cleaned(msgspec.json.decode(line, type=ProcessMemory)))
    except (msgspec.DecodeError, ValueError):
        return RankMemory(listener.rank, why="no answer; it ended, or its hooks are of another version")


def _cleaned(memory: ProcessMemory) -> ProcessMemory:
    memory.why = None if memory.why is None else clean(memory.why, MAX_NAME)
    for device in memory.devices:
        device.lines = _clean_rows(device.lines)
    growth = memory.growth
    if growth is not None:
        growth.why = None if growth.why is None else clean(growth.why, MAX_NAME)
        growth.lines, growth.tensors = _clean_rows(growth.lines), _clean_rows(growth.tensors)
        growth.types = [(clean(name, MAX_NAME), count) for name, count in growth.types]
    return memory


def _clean_rows(rows: list[Row]) -> list[Row]:
    return [(clean(place, MAX_NAME), size, count) for place, size, count in rows]

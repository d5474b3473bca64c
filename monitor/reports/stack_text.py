"""Where the processes of a run are, as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from monitor.model.stacks import HOOKS, KERNEL, ProcessStack, Together, ranks_text, thread_place, together
from monitor.units import plural
from trainhooks.protocol.places import ThreadStack

MAX_SHOWN_FRAMES = 15  # of a stack; the JSON has all that were sent
MAX_SHOWN_THREADS, MAX_SHOWN_CHILDREN = 8, 16


def text(run: str, processes: Sequence[ProcessStack]) -> str:
    """Return the stacks by place, the most common one first, each with the stack of one process."""
    ranks = [process for process in processes if process.rank is not None]
    groups = together(processes)
    whole = plural(len(processes), "rank" if ranks else "process", "ranks" if ranks else "processes")
    lines = [f"{run}: {whole}, {plural(len(groups), 'place', 'places')}"]
    for group in groups:
        lines += ["", *_group(group, len(processes))]
    return "\n".join(lines) + "\n"


def _group(group: Together, of: int) -> list[str]:
    first = group.members[0]
    ranks = [each.rank for each in group.members if each.rank is not None]
    who = ranks_text(ranks) if ranks else ", ".join(_who(each) for each in group.members)
    many = f"{len(group.members)} of {of}, " if of > 1 else ""
    lines = [f"{many}{who}: {group.place}"]
    lines += [f"  {note}" for note in dict.fromkeys(each.note for each in group.members if each.note)]
    if first.state and first.how != KERNEL:
        lines.append(f"  by {_by(first)}; pid {first.pid} is {first.state}")
    if first.main is not None:
        lines += _frames(first.main)
    others = [thread for thread in first.threads if thread is not first.main and thread.frames]
    lines += [f"  thread {each.name or '?'}: {thread_place(each)}" for each in others[:MAX_SHOWN_THREADS]]
    more = len(others) - MAX_SHOWN_THREADS + first.left_out
    lines += [f"  {more:,} more threads"] if more > 0 else []
    for process in group.members:
        for child in process.children[:MAX_SHOWN_CHILDREN]:
            lines.append(f"  child of {_who(process)}: {_who(child)}, by {_by(child)}: {child.place}")
        if len(process.children) > MAX_SHOWN_CHILDREN:
            lines.append(f"  {len(process.children) - MAX_SHOWN_CHILDREN:,} more children of {_who(process)}")
    return lines


def _frames(thread: ThreadStack) -> list[str]:
    shown = thread.frames[:MAX_SHOWN_FRAMES]
    lines = [f"    {'>' if place == thread.users else ' '} {frame}" for place, frame in enumerate(shown)]
    more = len(thread.frames) - len(shown)
    return [*lines, *([f"      {more} more"] if more else [])]


def _who(process: ProcessStack) -> str:
    return f"pid {process.pid} ({process.name})" if process.rank is None else f"rank {process.rank}"


def _by(process: ProcessStack) -> str:
    return "its hooks" if process.how == HOOKS else "the kernel" if process.how == KERNEL else process.how


def as_json(run: str, processes: Sequence[ProcessStack]) -> str:
    """Return {run, places[] {place, ranks[], pids[]}, processes[]} as JSON."""
    places = [
        {
            "place": group.place,
            "ranks": [each.rank for each in group.members if each.rank is not None],
            "pids": [each.pid for each in group.members],
        }
        for group in together(processes)
    ]
    known = {"run": run, "places": places, "processes": [_mapping(each) for each in processes]}
    return msgspec.json.format(msgspec.json.encode(known), indent=2).decode()


def _mapping(process: ProcessStack) -> dict[str, object]:
    threads = [
        {
            "name": each.name,
            "main": each.is_main,
            "place": thread_place(each),
            "frames": [{"file": frame.file, "line": frame.line, "function": frame.function} for frame in each.frames],
            "users_frame": each.users,
        }
        for each in process.threads
    ]
    return {
        "rank": process.rank,
        "pid": process.pid,
        "name": process.name,
        "how": process.how,
        "state": process.state or None,
        "note": process.note or None,
        "place": process.place,
        "threads": threads,
        "left_out": process.left_out,
        "children": [_mapping(child) for child in process.children],
    }

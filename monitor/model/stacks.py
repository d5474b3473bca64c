"""Where the processes of a run are: their stacks, and those that are in the same place together. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from trainhooks.protocol.places import FROM, ThreadStack

HOOKS, PY_SPY, KERNEL = "hooks", "py-spy", "kernel"  # who says where a process is


@dataclass(frozen=True, slots=True)
class ProcessStack:
    """Where one process is.

    Attributes:
        rank: None: a child of a rank's process, or of the command before any hooks report.
        how: HOOKS, PY_SPY or KERNEL; the kernel knows no Python.
        state: in the kernel's words, as `sleeping in futex_wait`.
        note: why its own hooks do not say, where they should.
    """

    pid: int
    name: str
    rank: int | None = None
    how: str = KERNEL
    state: str = ""
    note: str = ""
    threads: list[ThreadStack] = field(default_factory=list)
    left_out: int = 0  # threads
    children: list[ProcessStack] = field(default_factory=list)

    @property
    def main(self) -> ThreadStack | None:
        return next((thread for thread in self.threads if thread.is_main), None)

    @property
    def place(self) -> str:
        """Return `wait (threading.py:331), from train.py:88 in loss`; the kernel's words where no stack is known."""
        thread = self.main or next(iter(self.threads), None)
        return (thread_place(thread) if thread is not None else "") or self.state or "unknown"


@dataclass(frozen=True, slots=True)
class Together:
    """Processes in the same place. `members` is never empty."""

    place: str
    members: list[ProcessStack]


def thread_place(thread: ThreadStack) -> str:
    """Return where a thread is, in a line: the innermost function, and the program's own line that it comes from."""
    if not thread.frames:
        return ""
    innermost, users = thread.frames[0], thread.users_line
    if thread.users == 0 or users is None:
        return str(innermost)
    return f"{innermost.function or '?'} ({innermost.file}:{innermost.line}){FROM}{users}"


def together(processes: Sequence[ProcessStack]) -> list[Together]:
    """Return processes by place: the most common one first, so that who is elsewhere stands out below it."""
    by_place: dict[str, list[ProcessStack]] = {}
    for process in processes:
        by_place.setdefault(process.place, []).append(process)
    groups = [Together(place, members) for place, members in by_place.items()]
    return sorted(groups, key=lambda group: -len(group.members))


def ranks_text(ranks: Iterable[int]) -> str:
    """Return `ranks 0 to 36, 38`, `rank 3`."""
    spans: list[list[int]] = []
    for rank in (known := sorted(ranks)):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    words = [str(first) if first == last else f"{first} to {last}" for first, last in spans]
    return f"{'rank' if len(known) == 1 else 'ranks'} {', '.join(words)}"

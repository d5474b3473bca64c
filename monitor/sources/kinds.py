"""What the processes of a training are for: DataLoader workers told from what else the trainers start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import psutil

from monitor.sources.attempts import attempt, text_of

WORKER_NAME = "pt_data_worker"  # what recent versions of torch call a DataLoader's worker
_SPAWNED = ("multiprocessing.spawn", "multiprocessing.forkserver")
_HELPERS = ("multiprocessing.resource_tracker", "compile_worker")
LOOKS = 3  # at a process, before what it is counts as known: between fork and exec it still shows its parent's name


@dataclass(frozen=True)
class Member:
    """One process of the tree, as far as it tells what it is for."""

    parent: int
    name: str
    command: tuple[str, ...]


def count(members: Mapping[int, Member], trainers: Set[int]) -> tuple[int | None, int | None]:
    """How many DataLoader workers, and how many other processes, the trainers have started.

    While nobody has reported as a trainer, a launcher's ranks look like anything: then only what has torch's own
    name for a worker is one.

    Torch names its workers; where it does not yet, a worker is a process that a trainer forked (it shows the trainer's
    own command line) or spawned with multiprocessing. Trainers, their helpers and launchers are neither.
    """
    named = any(member.name == WORKER_NAME for member in members.values())
    if not trainers:
        return sum(member.name == WORKER_NAME for member in members.values()) or None, None
    workers = executors = 0
    for pid, member in members.items():
        if pid in trainers or not _descends(pid, members, trainers) or _helps(member.command):
            continue
        if member.name == WORKER_NAME or (not named and _looks_like_a_worker(member, members, trainers)):
            workers += 1
        else:
            executors += 1
    return workers, executors


def _descends(pid: int, members: Mapping[int, Member], trainers: Set[int]) -> bool:
    for _ in range(len(members)):
        parent = members[pid].parent
        if parent in trainers:
            return True
        if parent not in members:
            return False
        pid = parent
    return False


def _looks_like_a_worker(member: Member, members: Mapping[int, Member], trainers: Set[int]) -> bool:
    if member.parent not in trainers:
        return False
    parent = members.get(member.parent)
    if parent is not None and member.command == parent.command:
        return True
    return any(word in part for word in _SPAWNED for part in member.command)


def _helps(command: Sequence[str]) -> bool:
    return any(word in part for word in _HELPERS for part in command)


@dataclass
class _Look:
    """What was read of a process, and how often."""

    process: psutil.Process
    member: Member
    looks: int = 1


class Family:
    """Counts the kinds at each scan; what a process is, is read when it is young, and then kept."""

    def __init__(self) -> None:
        self.workers: int | None = None
        self.executors: int | None = None
        self._known: dict[int, _Look] = {}

    def look(self, processes: Mapping[int, psutil.Process], trainers: Set[int]) -> None:
        known: dict[int, _Look] = {}
        for pid, process in processes.items():
            old = self._known.get(pid)
            if old is not None and old.process != process:
                old = None  # the pid was given to another one
            if old is None or old.looks < LOOKS:
                member = _member(process)
                if member is not None:
                    known[pid] = _Look(process, member, 1 if old is None else old.looks + 1)
            else:
                known[pid] = old
        self._known = known
        self.workers = self.executors = None
        if known:
            self.workers, self.executors = count({pid: each.member for pid, each in known.items()}, trainers)


def _member(process: psutil.Process) -> Member | None:
    parent, command = attempt(process.ppid), attempt(process.cmdline)
    name = process_name(process.pid)
    return None if parent is None or command is None else Member(parent, name or "", tuple(command))


def process_name(pid: int) -> str | None:
    """The short name that a process goes by, which it may have given itself."""
    name = text_of(f"/proc/{pid}/comm")
    return name.strip() if name is not None else attempt(lambda: psutil.Process(pid).name())

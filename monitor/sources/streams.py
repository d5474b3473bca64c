"""The trainings of one run told apart: a command may train twice, at once or one after the other.

A stream is one training: all ranks of a job, with the processes that replaced them. What counts is what each process
says of itself in its first line, and when it lived; so a reader never mixes steps of strangers.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from monitor import run_facts
from monitor.sources.decode import decode
from monitor.sources.sparse_files import file_size
from trainhooks.protocol import rundir
from trainhooks.protocol.events import Event, Hello
from trainhooks.protocol.limits import MAX_LINE, MAX_TEXT, clean

MAX_STREAMS = 32  # told apart; what comes after them counts as the last one's
MAX_COMMAND_WORDS = 64  # of a command
LAST_BYTES = 2 * MAX_LINE  # of a journal in which its last event is sought
# How the names of journals begin that belong to no single stream: the output is all streams', an actor somebody's.
SHARED_PREFIXES = ("console-", "actor-")
_RANK = re.compile(r"rank-(\d+)-(.+)\.jsonl")


@dataclass(frozen=True, slots=True)
class StreamProcess:
    """One process that reports, by its first line, its last one and its lock."""

    path: Path
    hello: Hello

    @property
    def alive(self) -> bool:
        return rundir.lock_held(self.path.with_suffix(".lock"))

    def ended_before(self, t: float) -> bool:
        newest = _read_event(self.path, last=True)
        return not self.alive and (newest is None or newest.t <= t)

    @property
    def command(self) -> str:
        return clean(" ".join(run_facts.read(self.hello.facts).command[:MAX_COMMAND_WORDS]), MAX_TEXT)


@dataclass(slots=True)
class Stream:
    """One training of a run."""

    first: StreamProcess
    lives: list[StreamProcess] = field(default_factory=list)
    of_rank: dict[int, StreamProcess] = field(default_factory=dict)  # the newest process of each rank

    @property
    def alive(self) -> bool:
        return any(life.alive for life in self.lives)

    def add(self, life: StreamProcess) -> None:
        self.lives.append(life)
        self.of_rank[life.hello.rank] = life

    def size(self) -> int:
        return sum(file_size(life.path) for life in self.lives)

    @property
    def name(self) -> str | None:
        return clean(self.first.hello.name or "") or None

    def title(self) -> str:
        """Return its program and pid, for a person."""
        return f"{self.name or 'a program'} (pid {self.first.hello.pid or 'unknown'})"

    def has_name_of(self, life: StreamProcess) -> bool:
        return life.hello.name == self.first.hello.name

    def _has_other_role(self, life: StreamProcess) -> bool:
        """Return whether both are of one program whose processes differ: their numbers do, too."""
        return None not in (life.hello.role, self.first.hello.role) and life.hello.role != self.first.hello.role

    def accepts(self, life: StreamProcess) -> bool:
        """Return whether a process belongs to this training: another rank of the job, or one started again."""
        joint = life.hello.world_size == self.first.hello.world_size or self._has_other_role(life)
        before = self.of_rank.get(life.hello.rank)
        if before is None:
            return joint or (self.has_name_of(life) and life.hello.restart > 0)  # strangers are all of rank 0
        if not self.has_name_of(life):
            return False
        if life.hello.restart > before.hello.restart:
            return True
        # Run again after a crash, as a shell's loop does: the same command, and never two at once.
        return joint and life.command == before.command and before.ended_before(life.hello.t)


def find_streams(journals: list[Path]) -> list[Stream]:
    """Return the trainings that wrote these journals, in the order in which they began."""
    lives = [life for life in map(_read_process, journals) if life is not None]
    found: list[Stream] = []
    for life in sorted(lives, key=lambda life: (life.hello.t, life.hello.rank, life.path.name)):
        takers = [stream for stream in reversed(found) if stream.accepts(life)]
        # The ranks of a job can be of several programs; of two jobs at once, each has its own.
        own = next((stream for stream in takers if stream.has_name_of(life)), takers[0] if takers else None)
        if own is None and len(found) < MAX_STREAMS:
            own = Stream(life)
            found.append(own)
        (own or found[-1]).add(life)
    return found


def leading_place(found: list[Stream]) -> int:
    """Return the place of the training to show: the first that still runs, else the one that reported most."""
    living = [place for place, stream in enumerate(found) if stream.alive]
    return living[0] if living else max(range(len(found)), key=lambda place: (found[place].size(), -place), default=0)


def is_known(path: Path) -> bool:
    """Return whether it is known whose journal this is: a training process's has its first line."""
    return _RANK.fullmatch(path.name) is None or file_size(path) > 0


def has_several(journals: list[Path]) -> bool:
    """Return whether more than one training process wrote to the run."""
    return sum(_RANK.fullmatch(path.name) is not None for path in journals) > 1


def journals_of(journals: list[Path], found: list[Stream], shown: int) -> list[Path]:
    """Return the journals without those of other trainings, and without those of all of them."""
    if len(found) < 2:
        return journals
    strangers = {life.path for place, stream in enumerate(found) if place != shown for life in stream.lives}
    return [path for path in journals if path not in strangers and not path.name.startswith(SHARED_PREFIXES)]


def leading_journals(journals: list[Path]) -> list[Path]:
    """Return the journals of the leading training."""
    found = find_streams(journals) if has_several(journals) else []
    return journals_of(journals, found, leading_place(found))


def streams_line(found: list[Stream], shown: int) -> str | None:
    """Return one line on the trainings of a run, where there are several."""
    if len(found) < 2:
        return None
    named = ", ".join(f"#{number} {stream.title()}" for number, stream in enumerate(found, 1))
    return clean(f"{len(found)} trainings ran under this command: {named}; shown is #{shown + 1} alone", MAX_TEXT)


def _read_process(path: Path) -> StreamProcess | None:
    """Return the process that writes a journal; None for a recorder, or where the first line is missing."""
    if _RANK.fullmatch(path.name) is None:
        return None
    hello = _read_event(path)
    return StreamProcess(path, hello) if isinstance(hello, Hello) else None


def _read_event(path: Path, last: bool = False) -> Event | None:
    """Return the event in the first or the last whole line of a journal."""
    try:
        with open(path, "rb", opener=rundir.open_at_once) as source:
            if last:
                source.seek(max(0, os.fstat(source.fileno()).st_size - LAST_BYTES))
            lines = source.read(LAST_BYTES).split(b"\n")[:-1]
    except OSError:
        return None
    event = decode(lines[-1 if last else 0]) if lines else None
    return event if isinstance(event, Event) else None

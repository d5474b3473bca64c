"""What is known beforehand of a public program: where it comes from, and what it must do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Source:
    """A public repository at a commit, and the paths of it that a program needs."""

    repository: str  # owner/name
    commit: str
    paths: tuple[str, ...]


@dataclass(frozen=True)
class Own:
    """A figure that the program prints itself, against the report's."""

    what: str
    pattern: str  # of its output; one group holds the number
    of: str  # where the report has it: keys joined by |, or a name that `judge.reading` derives
    pick: str = "last"  # last, mean, median or sum of what the pattern finds
    scale: float = 1.0  # the program's unit in the report's
    within: float = 0.03
    floor: float = 0.0  # a difference as small as this, in the report's unit, is none


@dataclass(frozen=True)
class Program:
    """One program with its arguments, made small enough for two cores."""

    name: str
    command: str  # after `python`, unless it begins with `./`; `drivers/` stands for this directory's
    steps: (
        int | None
    )  # how often its arguments make it update weights; None: it depends, and `own` says how many it did
    total: int | None = None  # if not the steps
    env_steps: int | None = None  # of all environments until the last update; None: not known beforehand, or none
    source: Source | None = None
    modules: tuple[str, ...] = ()  # top-level modules that it imports
    data: str = ""  # the function of fake_data.py that writes what it reads
    own: tuple[Own, ...] = ()
    loss: str = ""  # pattern of each printed loss: both runs must print the same ones
    code: int = 0
    killed: int = 0  # training processes that it ends by force: their journals break off
    folder: str = ""  # of its source, where it is started
    environment: tuple[tuple[str, str], ...] = ()

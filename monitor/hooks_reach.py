"""Why the hooks do not reach a program: read off its command line and its environment, without a look at anything else.

`trainmon run` reaches Python through PYTHONPATH and TRAINMON_RUN. What stands between it and the program may drop them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

RUN, PATH = "TRAINMON_RUN", "PYTHONPATH"
NOT_LOADED = "hooks-not-loaded"  # the code of the recorder's note
LITTLE_ROOM = "little-room"  # that of the supervisor's: nobody reads the output
RECORDING_ENDED = "recording-ended"  # from here on, for the same reason

# Commands that start a program without their own environment.
WRAPPERS = ("sudo", "doas", "su", "docker", "podman", "nerdctl", "apptainer", "singularity", "enroot", "ssh", "kubectl")
ISOLATING = "IES"  # switches of python that ignore PYTHONPATH or sitecustomize
SHELLS = ("sh", "bash", "dash", "zsh", "ksh")
BOOTSTRAP_PARTS = ("auto", "bootstrap")  # how the directory of any trainmon's bootstrap ends
_PYTHON = re.compile(r"(python|pypy)[0-9.]*t?")
_IN_SHELL = re.compile(r"(?:^|[\s;&|(])PYTHONPATH=(\S*)")

PATH_REPLACED = (
    "hooks not loaded: PYTHONPATH was replaced by the command: write PYTHONPATH=...:$PYTHONPATH inside the command."
)
VARIABLES_REMOVED = (
    "hooks not loaded: the command did not pass PYTHONPATH and TRAINMON_RUN on: leave them in the environment."
)
RUN_REMOVED = "hooks not loaded: the command removed TRAINMON_RUN from the environment."
INNER_RUN = "another `trainmon run` inside this one records the steps: see its run."


def command_obstacle(command: Sequence[str]) -> str | None:
    """Return what in the command itself keeps the environment from the program; None where nothing does."""
    for place, word in enumerate(command):
        name = word.rpartition("/")[2]
        following = command[place + 1 : place + 2]
        if name in WRAPPERS:
            return (
                f"hooks not loaded: `{name}` does not pass its environment on: pass PYTHONPATH and TRAINMON_RUN"
                " (sudo -E, docker -e with -v for the directories that they name), or put `trainmon run` behind it."
            )
        if name == "env":
            reason = _by_env(command[place + 1 :])
            if reason is not None:
                return reason
        if name.startswith("python"):
            reason = _by_switch(name, command[place + 1 :])
            if reason is not None:
                return reason
        if is_trainmon(command[place:]) and "run" in command[place + 1 : place + 4]:
            return INNER_RUN
        if name in SHELLS and following == ["-c"]:
            given = _IN_SHELL.search(command[place + 2] if len(command) > place + 2 else "")
            return PATH_REPLACED if given is not None and PATH not in given[1] and not _reaches(given[1]) else None
        if not word.startswith("-") and "=" not in word and name not in ("env", "nohup", "nice", "time", "exec"):
            return None  # the program itself: what follows are its own arguments
    return None


def why_not_loaded(command: Sequence[str], environment: Mapping[str, str], run: str) -> str | None:
    """Return why a Python process that runs has no hooks of this run; None where it has them or is no Python.

    Args:
        command: its words.
        environment: with which it was started.
        run: the directory of this run.
    """
    if not is_python(command):
        return None
    reason = _by_switch(command[0].rpartition("/")[2], command[1:])
    if reason is not None:
        return reason
    recorded_in = environment.get(RUN)
    if recorded_in and os.path.basename(recorded_in) != os.path.basename(run):
        return INNER_RUN
    if _reaches(environment.get(PATH, "")):
        return None if recorded_in else RUN_REMOVED
    return VARIABLES_REMOVED if not recorded_in and PATH not in environment else PATH_REPLACED


def is_python(command: Sequence[str]) -> bool:
    """Return whether a process with this command line is an interpreter of Python."""
    return bool(command) and _PYTHON.fullmatch(command[0].rpartition("/")[2]) is not None


def is_trainmon(command: Sequence[str]) -> bool:
    """Return whether a process with this command line belongs to a `trainmon` inside the run."""
    names = [word.rpartition("/")[2] for word in command[:3]]
    return "trainmon" in names or names[1:] == ["-m", "monitor"] or names[1:2] == ["entry.py"]


def _by_env(words: Sequence[str]) -> str | None:
    """Return what `env` does to the environment with these words behind it."""
    unset = False
    for word in words:
        if word in ("-i", "-", "--ignore-environment"):
            return "hooks not loaded: `env -i` drops PYTHONPATH and TRAINMON_RUN: leave it out, or set both behind it."
        if word.startswith(f"{PATH}=") and not _reaches(word.partition("=")[2]):
            return PATH_REPLACED
        if (unset and word == PATH) or word in (f"-u{PATH}", f"--unset={PATH}"):
            return PATH_REPLACED
        unset = word in ("-u", "--unset")
        if not unset and not word.startswith("-") and "=" not in word and word != PATH:
            return None  # the program
    return None


def _by_switch(name: str, words: Sequence[str]) -> str | None:
    switch = _isolating(words)
    if switch is None:
        return None
    return f"hooks not loaded: `{name} {switch}` ignores what trainmon puts on PYTHONPATH: leave {switch} out."


def _isolating(words: Sequence[str]) -> str | None:
    """Return the switch that isolates Python from its environment, among those before the script."""
    for word in words:
        if not word.startswith("-") or word.startswith("--"):
            return None
        for switch in word[1:]:
            if switch in "cm":
                return None
            if switch in ISOLATING:
                return f"-{switch}"
            if switch in "WX":
                break
    return None


def _reaches(path: str) -> bool:
    """Return whether a PYTHONPATH holds the bootstrap of a trainmon, of whichever installation."""
    ends = (tuple(entry.rstrip(os.sep).split(os.sep)[-2:]) for entry in path.split(os.pathsep))
    return BOOTSTRAP_PARTS in ends

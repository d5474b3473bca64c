"""Who else may change the directories above the state directory, and so put another one in its place."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from monitor.doctor.check import Check
from trainhooks import rundir
from trainhooks.events import clean

# What the kernel shows in place of owners that a container does not know: it says nothing of who that is.
NOBODY = 65534


def above() -> Check:
    """Whether what lies above the runs is yours or the system's, as far as modes and owners tell."""
    part = "above the runs"
    state = rundir.state_dir()
    for directory in _parents(state):
        who = _who(directory)
        if who is not None:
            text = f"{clean(str(directory), 200)}: {who} may put another directory in the place of your runs"
            advice = f"Set {rundir.STATE_VARIABLE} to a directory below your home, or take that right away by chmod."
            return Check(part, "limited", text, advice)
    return Check(part, "works", "only you and the system may change the directories above them")


def _parents(state: Path) -> Iterator[Path]:
    """From the outermost to the state directory itself; where a link leads elsewhere, that way too."""
    here = Path(os.path.abspath(state))
    ways = {*here.parents, here} | {*here.resolve().parents, here.resolve()}
    return iter(sorted(ways))


def _who(directory: Path) -> str | None:
    """Who besides the owner of the state directory may change the names in a directory; None where nobody."""
    try:
        found = directory.stat()
    except OSError:  # not there yet: it will be made private
        return None
    if found.st_uid not in (0, os.getuid(), NOBODY):
        return f"its owner {_name(found.st_uid)}"
    if found.st_mode & stat.S_ISVTX:
        return None  # as /tmp: nobody moves what belongs to another
    if found.st_mode & stat.S_IWOTH:
        return "every user"
    if found.st_mode & stat.S_IWGRP and not _own_group(found.st_gid):
        return f"the group {_group(found.st_gid)}"
    return None


def _own_group(number: int) -> bool:
    """Whether a group is root's, or the one that many systems give to each user alone."""
    if number in (0, NOBODY):
        return True
    with suppress(KeyError):
        group, me = grp.getgrgid(number), pwd.getpwuid(os.getuid())
        return number == me.pw_gid and group.gr_name == me.pw_name and set(group.gr_mem) <= {me.pw_name}
    return False


def _group(number: int) -> str:
    with suppress(KeyError):
        return clean(grp.getgrgid(number).gr_name, 60)
    return str(number)


def _name(number: int) -> str:
    with suppress(KeyError):
        return clean(pwd.getpwuid(number).pw_name, 60)
    return str(number)

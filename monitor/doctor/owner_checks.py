"""Whether another user may change the directories above the state directory, and so replace it."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from monitor.doctor.checks import Check
from trainhooks.protocol import rundir
from trainhooks.protocol.limits import clean

UNMAPPED_UID = 65534  # shown for owners that a container does not know


def parent_directories() -> Check:
    """Check that only this user and the system may change the directories above the runs."""
    part = "parent directories"
    state = rundir.state_dir()
    for directory in _parents(state):
        who = _who(directory)
        if who is not None:
            text = f"{clean(str(directory), 200)}: {who} can replace your runs directory"
            advice = (
                f"Set {rundir.STATE_VARIABLE} to a directory below your home, or remove that permission with chmod."
            )
            return Check(part, "limited", text, advice)
    return Check(part, "works", "only you and the system can change the directories above the runs")


def _parents(state: Path) -> Iterator[Path]:
    """Yield the directories from the root to the state directory, both as written and with links resolved."""
    here = Path(os.path.abspath(state))
    ways = {*here.parents, here} | {*here.resolve().parents, here.resolve()}
    return iter(sorted(ways))


def _who(directory: Path) -> str | None:
    """Return who besides this user may rename entries of a directory; None where no one may."""
    try:
        status = directory.stat()
    except OSError:  # does not exist yet: it will be created private
        return None
    if status.st_uid not in (0, os.getuid(), UNMAPPED_UID):
        return f"its owner {_name(status.st_uid)}"
    if status.st_mode & stat.S_ISVTX:
        return None  # sticky, like /tmp: users cannot rename the files of others
    if status.st_mode & stat.S_IWOTH:
        return "every user"
    if status.st_mode & stat.S_IWGRP and not _own_group(status.st_gid):
        return f"the group {_group(status.st_gid)}"
    return None


def _own_group(number: int) -> bool:
    """Return whether a group is root's, or the private group of this user."""
    if number in (0, UNMAPPED_UID):
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

"""Report what limits the lifetime of a training on this machine.

A container ends with its first process, a Slurm step with its first task, and some machines kill all processes of a
user at logout. The user must know this before leaving the dashboard.
"""

from __future__ import annotations

import glob
import os
import pwd
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

# As in systemd: a file in a later directory replaces one of the same name; settings of all files are combined.
LOGIND = ("/usr/lib/systemd", "/run/systemd", "/etc/systemd")


@dataclass(frozen=True)
class LifetimeLimit:
    """What may end the training although it lives in a session of its own."""

    text: str
    this_process: bool = False  # the training ends with this process, which must therefore wait for it


def lifetime_limit() -> LifetimeLimit | None:
    """Return what limits the lifetime of a training started by this process; None where no limit is known."""
    if os.getpid() == 1:
        return LifetimeLimit(
            "trainmon is the first process of this container: the training ends with it", this_process=True
        )
    return slurm_limit(os.environ, _name(os.getppid())) or logind_limit(
        _settings(), _read("/proc/self/cgroup"), _user()
    )


def slurm_limit(environment: Mapping[str, str], parent: str) -> LifetimeLimit | None:
    """Return the limit that a Slurm step sets; None outside Slurm.

    Args:
        parent: the name of the parent process.
    """
    job, step = environment.get("SLURM_JOB_ID", ""), environment.get("SLURM_STEP_ID", "")
    if not (re.fullmatch(r"\d{1,20}", job) and re.fullmatch(r"\d{1,20}", step)):
        return None
    if parent == "slurmstepd":
        return LifetimeLimit(
            f"trainmon is the task of Slurm step {job}.{step}: the training ends with it", this_process=True
        )
    return LifetimeLimit(f"the training ends at the latest with Slurm step {job}.{step}")


def logind_limit(settings: Iterable[str], cgroup: str, user: str) -> LifetimeLimit | None:
    """Return the limit that systemd's logind sets; None where there is none.

    Args:
        settings: the texts of logind's configuration, in the order in which they apply.
        cgroup: the content of /proc/self/cgroup.
    """
    if not re.search(r"/session-\w+\.scope", cgroup):
        return None  # not in a login session: started by the user's service manager, a batch system, a container
    known = {"KillUserProcesses": "no", "KillOnlyUsers": "", "KillExcludeUsers": "root"}
    for text in settings:
        for name, value in re.findall(r"^[ \t]*(Kill\w+)[ \t]*=[ \t]*(.*?)[ \t]*$", text, re.MULTILINE):
            if name in known:
                known[name] = value
    only, spared = known["KillOnlyUsers"].split(), known["KillExcludeUsers"].split()
    kills = known["KillUserProcesses"].lower() in ("yes", "true", "on", "1")
    if not kills or user in spared or (only and user not in only):
        return None
    return LifetimeLimit(
        "this machine kills your processes at logout (KillUserProcesses=yes); to keep the training, run "
        "`loginctl enable-linger` once and start with `systemd-run --user --scope trainmon run ...`"
    )


def _settings() -> list[str]:
    dropped = {os.path.basename(path): path for base in LOGIND for path in glob.glob(f"{base}/logind.conf.d/*.conf")}
    main = [f"{base}/logind.conf" for base in reversed(LOGIND) if os.path.exists(f"{base}/logind.conf")][:1]
    return [_read(path) for path in (*main, *(dropped[name] for name in sorted(dropped)))]


def _read(path: str) -> str:
    with suppress(OSError), open(path, encoding="utf-8", errors="replace") as source:
        return source.read(1 << 20)
    return ""


def _name(pid: int) -> str:
    return _read(f"/proc/{pid}/comm").strip()


def _user() -> str:
    with suppress(KeyError):  # a user id without a name, as in containers
        return pwd.getpwuid(os.getuid()).pw_name
    return ""

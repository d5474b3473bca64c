"""What ends a training together with whoever started it, although it lives in a session of its own.

A container ends with its first process, a step of Slurm with its first task, and some machines end everything that a
person has started when they log out. Who leaves a dashboard there has to know.
"""

from __future__ import annotations

import glob
import os
import pwd
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

# As systemd reads them: a file of a later directory stands in for one of the same name; single lines are added up.
LOGIND = ("/usr/lib/systemd", "/run/systemd", "/etc/systemd")


@dataclass(frozen=True)
class Tie:
    """Why the training may not outlive us."""

    text: str
    to_us: bool = False  # it ends when this very process does: so this process has to stay


def tie() -> Tie | None:
    """What this process's training is tied to; None where it outlives us, as far as can be seen."""
    if os.getpid() == 1:
        return Tie("trainmon is the first process of this container, which ends with it", to_us=True)
    return slurm(os.environ, _name(os.getppid())) or logind(_settings(), _read("/proc/self/cgroup"), _user())


def slurm(environment: Mapping[str, str], parent: str) -> Tie | None:
    """
    Args:
        parent: the name of the process that started us.
    """
    job, step = environment.get("SLURM_JOB_ID", ""), environment.get("SLURM_STEP_ID", "")
    if not (re.fullmatch(r"\d{1,20}", job) and re.fullmatch(r"\d{1,20}", step)):
        return None
    if parent == "slurmstepd":
        return Tie(f"trainmon is a task of Slurm's step {job}.{step}, which ends with it", to_us=True)
    return Tie(f"it belongs to Slurm's step {job}.{step} and ends with that, at the latest")


def logind(settings: Iterable[str], cgroup: str, user: str) -> Tie | None:
    """
    Args:
        settings: the texts of logind's configuration, in the order in which they count.
        cgroup: where this process belongs, as the kernel tells it.
    """
    if not re.search(r"/session-\w+\.scope", cgroup):
        return None  # not of a login's own: started by the user's service manager, a batch system, a container
    known = {"KillUserProcesses": "no", "KillOnlyUsers": "", "KillExcludeUsers": "root"}
    for text in settings:
        for name, value in re.findall(r"^[ \t]*(Kill\w+)[ \t]*=[ \t]*(.*?)[ \t]*$", text, re.MULTILINE):
            if name in known:
                known[name] = value
    only, spared = known["KillOnlyUsers"].split(), known["KillExcludeUsers"].split()
    kills = known["KillUserProcesses"].lower() in ("yes", "true", "on", "1")
    if not kills or user in spared or (only and user not in only):
        return None
    return Tie(
        "this machine ends all your processes when you log out (KillUserProcesses=yes); start trainmon by "
        "`systemd-run --user --scope trainmon run ...`, after `loginctl enable-linger`, to keep the training"
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

"""HOST:RUN as a person writes it: which host, which command leads there, which run.

    [hosts]
    box-04 = "ssh box-04"
    lab = "docker exec -i lab"
    node-7 = "srun --overlap --jobid 1234 --nodelist node-7"

Hosts under [hosts] in config.toml are listed by `trainmon ls --host all` too, and their commands used instead of ssh.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence

from monitor import settings
from monitor.errors import UserError
from monitor.remote import slurm
from monitor.remote.line import Target

# No host begins with a dash, which ssh would read as an option.
HOST = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.+-]{0,63}@)?[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}")
_NAMED = re.compile(rf"({HOST.pattern}):(.*)", re.DOTALL)
RUN = re.compile(r"[A-Za-z0-9_.+ #-]{0,200}")  # ids and names that can be asked for


def named(text: str | None, via: str | None = None) -> tuple[Target, str] | None:
    """Return the host and the run that a text names; None where it names no host.

    Args:
        via: the words that run a command on the host, for a shell's rules, in which %h is its name; None: those
            configured, or ssh.

    Raises:
        UserError: `via` is no command, or the run's name is impossible.
    """
    match = _NAMED.fullmatch(text or "")
    if match is None and via is None:
        return None
    host, run = match.groups() if match is not None else (None, text or "")
    if RUN.fullmatch(run) is None:
        raise UserError(f"'{run}' is no name of a run on another host")
    return target(host, via), run


def parts(
    runs: Sequence[str], via: str | None, job: str | None, hosts: str | None, is_here: Callable[[str], bool]
) -> list[tuple[Target, str]]:
    """Return the hosts and runs that a person asks to watch; empty for a run of this host.

    Raises:
        UserError: they do not go together.
    """
    if (job is None and hosts is not None) or (job is not None and runs):
        raise UserError("a job is watched by --job and --host, in place of RUN")
    if job is not None and hosts is None:
        return [(to_node, "") for to_node in slurm.nodes(job)] if via is None else [(target(None, via), "")]
    if job is not None:
        names = [name for name in (hosts or "").split(",") if name]
        if via is not None and len(names) > 1 and "%h" not in via:
            raise UserError("--via leads to one host, or names it as %h")
        if not names or any(HOST.fullmatch(name) is None for name in names) or RUN.fullmatch(job) is None:
            raise UserError("--job JOB --host HOST[,HOST...]")
        return [(target(name, via), "") for name in names]
    if not runs:
        return [] if via is None else [(target(None, via), "")]
    found = [None if via is None and is_here(run) else named(run, via) for run in runs]
    there = [part for part in found if part is not None]
    if len(runs) > 1 and (len(there) < len(runs) or via is not None):
        raise UserError("only the parts of one job are watched together, as HOST:RUN each")
    return there


def target(host: str | None, via: str | None = None) -> Target:
    """Return how a host is reached.

    Raises:
        UserError: a command is none.
    """
    if via is not None:
        words = tuple(word.replace("%h", host or "") for word in _words(via, "--via"))
        return Target(host or next((word for word in reversed(words) if word[:1].isalnum()), "host"), words)
    assert host is not None
    command = configured().get(host)
    return Target(host, ("ssh", host) if command is None else command)


def configured() -> dict[str, tuple[str, ...]]:
    """Return the hosts of the configuration with the commands that lead there.

    Raises:
        UserError: a host or its command is invalid.
    """
    found = {}
    for host, command in settings.table("hosts").items():
        if HOST.fullmatch(host) is None or not isinstance(command, str):
            raise UserError(f'{settings.path()}: write hosts as box = "ssh box" under [hosts]')
        found[host] = _words(command, f"{settings.path()}: {host} in [hosts]")
    return found


def _words(command: str, where: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise UserError(f"{where}: {error}") from None
    if not words:
        raise UserError(f"{where}: a command that runs another one on the host, such as 'docker exec -i box'")
    return words

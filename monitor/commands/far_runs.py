"""Runs on other hosts, for the commands: `HOST:RUN` in place of RUN, and the command `relay` that they start there."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from monitor.errors import UserError, say

VIA = "The words that run a command there, instead of `ssh HOST`: 'docker exec -i box', 'kubectl exec -i %h --'."
NOT_FOUND = 127  # the exit code of shells for a command that there is not


class RunName(click.ParamType):  # type: ignore[type-arg]  # a generic of newer releases only
    """RUN, or HOST:RUN: then the run is copied first, and the copy's directory is the value."""

    name = "run"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from monitor.remote import targets

        if not isinstance(value, str) or is_here(value):
            return value
        found = targets.named(value)
        return value if found is None else str(fetched(*found))


def is_here(run: str | None) -> bool:
    """Return whether a text that may name a host names a path or a run here, or none at all."""
    from monitor.runs import catalogue

    if not run or ":" not in run or os.path.lexists(run):
        return True
    try:
        catalogue.resolve(run)
    except UserError:
        return False
    return True


def fetched(target: Any, run: str, asks: bool = True) -> Path:
    """Return the copy of a run on another host, as it is now; as it was if the host cannot be reached.

    Raises:
        UserError: there is no such run, or no way there and no copy of before.
    """
    from monitor.remote.copier import Copier
    from monitor.remote.copies import copy_place, far_of
    from monitor.units import age

    path = copy_place(target.host, run)
    far = far_of(path) if run else None
    try:
        copier = Copier.open(target, run, asks)
        copier.copy_once()
        return copier.path
    except UserError as error:
        if far is None:
            raise
        import time

        say(f"{error}; this is the copy of {age(max(0.0, time.time() - far.heard))} ago")
        return path


@contextmanager
def copied(target: Any, run: str) -> Iterator[Path]:
    """Keep a copy of a run on another host up to date, and give its directory."""
    with copied_together([(target, run)]) as path:
        yield path


@contextmanager
def copied_together(parts: Sequence[tuple[Any, str]], job: str | None = None) -> Iterator[Path]:
    """Keep copies of the parts of a job up to date, and give the directory of the run that they are.

    Raises:
        UserError: they are no parts of one job, or there is no way to a host.
    """
    from monitor.remote.copier import Copier, CopyThread, JoinThread

    copiers: list[Copier] = []
    try:
        for target, run in parts:
            copiers.append(Copier.open(target, run, job=job))
    except BaseException:
        for copier in copiers:
            copier.close()
        raise
    with JoinThread(copiers) if len(copiers) > 1 or job is not None else CopyThread(copiers[0]) as path:
        yield path


def done_there(run: str | None, command: Sequence[str]) -> int | None:
    """Run a command of trainmon on the host of HOST:RUN. Return its exit code; None where RUN is here.

    Args:
        command: its words before RUN.

    Raises:
        UserError: there is no way there, or no trainmon.
    """
    from monitor.remote import targets
    from monitor.remote.line import OWN_FAILURE

    if run == "":  # of a variable that is not set, as a rule: not the last run, which may be another's
        raise UserError("RUN is empty; `trainmon ls` lists the runs")
    found = None if is_here(run) else targets.named(run)
    if found is None:
        return None
    target, name = found
    if " " in name:
        raise UserError(f"'{name}': give the run's id; `trainmon ls --host {target.host}` lists them")
    words = [*target.via, "trainmon", *command, *([name] if name else [])]
    try:
        code = subprocess.run(words, check=False).returncode
    except OSError as error:
        raise UserError(f"{words[0]}: {error.strerror or error}") from None
    if code == OWN_FAILURE:
        raise UserError(f"{target.host}: no way there; this must work: {shlex.join([*target.via, 'true'])}")
    if code == NOT_FOUND:
        raise UserError(f"{target.host}: there is no trainmon on the PATH there; install it for: {shlex.join(words)}")
    return code


@click.command()
def relay() -> None:
    """Tell another trainmon, on stdin and stdout, what is appended to this user's runs. `attach HOST:RUN` starts it.

    It opens no port, writes nothing, and ends when its stdin does.
    """
    from monitor.remote import far_side

    if os.isatty(0):
        raise UserError("this speaks to another trainmon, not to a person: trainmon attach HOST:RUN")
    far_side.main()

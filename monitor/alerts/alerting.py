"""How a person wants to hear of alerts: by what the command line says, else by the configuration's [alerts].

[alerts]
bell = true
command = "notify-send trainmon"
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from monitor.alerts import notify
from monitor.errors import UserError
from monitor.settings import config, speeds


@dataclass(frozen=True, slots=True)
class Alerting:
    bell: bool = False
    command: str | None = None

    def start(self, run: Path) -> subprocess.Popen[bytes] | None:
        """Start what tells the command, if there is one. It goes on by itself until the run has ended."""
        if self.command is None:
            return None
        try:
            return notify.start(run, self.command)
        except OSError as error:  # too many processes, no memory: the training is there, and goes first
            raise UserError(f"--on-alert: {error.strerror or error}; the training goes on without it") from None

    @contextlib.contextmanager
    def while_attached(self, run: Path) -> Iterator[None]:
        """The same, until the caller leaves."""
        process = self.start(run)
        try:
            yield
        finally:
            if process is not None:
                process.terminate()


def wanted(bell: bool | None, command: str | None) -> Alerting:
    """What was asked for.

    Raises:
        UserError: the command cannot be run, or the configuration is wrong.
    """
    speeds.bounds()  # the rest of what a screen needs of the configuration: what is wrong is said before it opens
    known = config.table("alerts")
    command = command if command is not None else _of(known, "command", str)
    if command is not None:
        notify.words(command)
    return Alerting(bool(_of(known, "bell", bool) if bell is None else bell), command)


def _of(known: dict[str, Any], key: str, kind: type) -> Any:
    value = known.get(key)
    if value is not None and not isinstance(value, kind):
        raise UserError(f"{config.path()}: [alerts] {key} is {'true or false' if kind is bool else 'a text'}")
    return value

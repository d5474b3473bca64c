"""How alerts are announced: by the command line's options, else by the configuration's [alerts].

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

from monitor import settings
from monitor.alerts import split_command, start_runner
from monitor.errors import UserError


@dataclass(frozen=True, slots=True)
class AlertOptions:
    bell: bool = False
    command: str | None = None

    def start(self, run: Path) -> subprocess.Popen[bytes] | None:
        """Start the process that runs the command, if there is one, until the run has ended.

        Raises:
            UserError: no process can be started.
        """
        if self.command is None:
            return None
        try:
            return start_runner(run, self.command)
        except OSError as error:  # too many processes, or no memory
            raise UserError(f"--on-alert: {error.strerror or error}; the training goes on without it") from None

    @contextlib.contextmanager
    def while_attached(self, run: Path) -> Iterator[None]:
        """Run the same process until the context is left."""
        process = self.start(run)
        try:
            yield
        finally:
            if process is not None:
                process.terminate()


def alert_options(bell: bool | None, command: str | None) -> AlertOptions:
    """Return the options of the command line, completed by the configuration.

    Raises:
        UserError: the command cannot be run, or the configuration is invalid.
    """
    settings.bounds()  # check the rest of the configuration that a screen needs before one opens
    entries = settings.table("alerts")
    command = command if command is not None else _entry(entries, "command", str)
    if command is not None:
        split_command(command)
    return AlertOptions(bool(_entry(entries, "bell", bool) if bell is None else bell), command)


def _entry(entries: dict[str, Any], key: str, kind: type) -> Any:
    value = entries.get(key)
    if value is not None and not isinstance(value, kind):
        raise UserError(f"{settings.path()}: [alerts] {key} is {'true or false' if kind is bool else 'a text'}")
    return value

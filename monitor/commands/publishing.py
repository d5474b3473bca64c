"""Figures of a run for a cluster's own monitors, where the configuration asks for that: `[metrics]`.

A process beside the training reads the run as any viewer does. It writes a file for node-exporter, or sends to an OTLP
receiver; nobody can ask it for anything.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from monitor.commands.far_runs import RunName
from monitor.errors import UserError

if TYPE_CHECKING:
    from monitor.model.view import View

PERIOD_SECONDS = 15.0  # as often as monitors usually ask
LINGER_SECONDS = 120.0  # the file of a run that has ended stays so long, so that its end is read


@dataclass(frozen=True, slots=True)
class Publishing:
    """Where figures go. Neither: nowhere."""

    directory: Path | None = None
    receiver: str | None = None  # the URL of an OTLP receiver, without /v1/metrics

    @classmethod
    def configured(cls) -> Publishing:
        """Return what the configuration or the environment says.

        Raises:
            UserError: it cannot be used.
        """
        from monitor import settings

        directory, receiver = settings.words("metrics", "textfile"), settings.words("metrics", "otlp")
        if directory is not None and not os.access(directory, os.W_OK | os.X_OK):
            raise UserError(f"[metrics] textfile: {directory} is no directory that you may write to")
        if receiver is not None and not _is_url(receiver):
            raise UserError(f"[metrics] otlp: {receiver} is no URL: http://collector:4318")
        return cls(None if directory is None else Path(directory).absolute(), receiver)

    def start(self, run: Path) -> None:
        """Start the process that publishes until the run has ended, if anything is to be published.

        Raises:
            UserError: no process can be started.
        """
        from monitor.running.command import start_beside

        if self.directory is None and self.receiver is None:
            return
        try:
            start_beside("monitor.commands.publishing", str(run), str(self.directory or ""), self.receiver or "")
        except OSError as error:  # too many processes, or no memory
            raise UserError(f"[metrics]: {error.strerror or error}; the training goes on without it") from None


def _is_url(text: str) -> bool:
    """Return whether a request can go there: http or https, a host without spaces, a port that there can be."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:  # half an IPv6 address, a port above 65535
        return False
    is_plain = text.isprintable() and " " not in text
    return is_plain and parts.scheme in ("http", "https") and bool(parts.hostname) and port != 0


def main(run: str, directory: str, receiver: str) -> None:
    """Publish a run's figures until it has ended."""
    from monitor.commands.otlp_sender import Sender
    from monitor.commands.progress import views

    with contextlib.suppress(OSError):
        os.nice(10)  # lower priority than the training and its recorder
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    file = Path(directory, f"trainmon-{Path(run).name}.prom") if directory else None
    sender = Sender(receiver) if receiver else None
    try:
        for view in views(Path(run), PERIOD_SECONDS):
            if file is not None:
                with contextlib.suppress(OSError):  # full, or gone: the next time it may be there
                    write(view, file)
            if sender is not None:
                sender.send(view)
        time.sleep(LINGER_SECONDS if file is not None else 0.0)
    finally:
        if file is not None:
            file.unlink(missing_ok=True)


def write(view: View, file: Path) -> None:
    """Replace the file by one with the figures of now, which node-exporter's user may read."""
    from monitor.reports.gauges import exposition, gauges

    new = file.with_suffix(f".{os.getpid()}")  # node-exporter reads names that end in .prom
    try:
        new.write_text(exposition(gauges(view.report, time.time())), encoding="utf-8")
        new.chmod(0o644)
        new.replace(file)
    finally:
        new.unlink(missing_ok=True)


@click.command()
@click.argument("run", required=False, type=RunName())
def metrics(run: str | None) -> None:
    """Print a run's figures in Prometheus' text format.

    With `textfile` or `otlp` under [metrics] in the configuration, `trainmon run` publishes them while a run goes on.
    """
    from monitor.reports.gauges import exposition, gauges
    from monitor.runs.catalogue import resolve
    from monitor.runs.follow import load

    click.echo(exposition(gauges(load(resolve(run)).report, time.time())), nl=False)

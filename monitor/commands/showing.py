"""Show one run, for the commands that do: the dashboard, and their common options."""

from __future__ import annotations

import math
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click

from monitor.commands.stop_requests import StopRequests
from monitor.errors import UserError, complain, say
from monitor.units import size

if TYPE_CHECKING:
    from monitor.alert_options import AlertOptions
    from monitor.model.view import View
    from monitor.running.launched_training import LaunchedTraining
    from monitor.tui.app import TrainmonApp


class FiniteRange(click.FloatRange):
    """A number in a range; `nan` and `inf` are refused, as no journal or report can hold them."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a number", param, ctx)
        return number


ON_ALERT = (
    "Run this command for each finding of severity warning or above that appears, grows worse or clears, and at the "
    "run's end: JSON on its stdin, no shell, at most one in 10 s, killed after 30 s. With `attach`: while it lasts."
)
BELL = "Ring the terminal's bell at an alert, and send a desktop notification where the terminal has them."

Command = TypeVar("Command", bound=Callable[..., Any])


def duration_option(context: click.Context, option: click.Parameter, value: str | None) -> float | None:
    """Return the seconds of an option that takes a time."""
    if value is None:
        return None
    from monitor.model.conditions import duration

    length = duration(value)
    if length is None:
        raise click.BadParameter(f"'{value}' is no time; it takes 90s, 10m, 1h30m", context, option)
    return length


def rank_option(command: Command) -> Command:
    """Add the option of every command that shows one run: which rank's figures."""
    return click.option(
        "--rank", type=click.IntRange(min=0), metavar="N", help="Show the figures of this rank, not of the lowest."
    )(command)


def watching_options(command: Command) -> Command:
    """Add the options of every command that watches one run."""
    command = click.option("--low-bandwidth", is_flag=True, help="Redraw less, for a slow connection.")(command)
    command = click.option("--bell/--no-bell", default=None, help=BELL)(command)
    return click.option("--on-alert", metavar="CMD", help=ON_ALERT)(command)


def show(
    path: Path,
    low_bandwidth: bool,
    alerting: AlertOptions,
    training: LaunchedTraining | None = None,
    rank: int | None = None,
) -> str | None:
    """Show the dashboard and return its result, "detach" or "ended"; print the error and return None if it crashed.

    A stop in progress when the screen closes is completed before this returns.
    """
    result: str | None = None
    stops = StopRequests()
    try:
        from monitor.commands.full_screen import open_screen

        app = dashboard(path, stops, low_bandwidth, rank=rank, with_job=training is None, bell_at_alerts=alerting.bell)

        def end() -> None:
            if training is not None and training.was_terminated:
                with suppress(RuntimeError):  # the screen has closed
                    app.call_from_thread(app.exit, "ended")

        def leave() -> None:
            app.call_from_thread(app.exit, "detach")

        if training is not None:
            training.watch(end)
        result = open_screen(app, leave if training is not None and training.must_outlive_training else None)
        reason = "see above"
    except Exception as error:
        # Whatever failed on the screen, the training continues, and the user is told so.
        reason = f"{type(error).__name__}: {error}"
    stops.finish()
    if result is None and not stops.ended:
        tell_how_to_attach(path)
    if result is None:
        complain(f"the dashboard crashed ({reason}); the training is not affected")
    return "ended" if result is not None and stops.ended else result


def dashboard(
    path: Path,
    stops: StopRequests,
    low_bandwidth: bool,
    rank: int | None = None,
    with_job: bool = True,
    bell_at_alerts: bool = False,
) -> TrainmonApp:
    """Return the dashboard of a run.

    Args:
        with_job: whether it goes on with what the run's job becomes.
    """
    from monitor.commands.stacks import tell_stacks
    from monitor.running.trace_requests import ask_and_tell
    from monitor.runs import jobs
    from monitor.runs.follow import Follower
    from monitor.tui.app import TrainmonApp
    from monitor.tui.feed import load_preferences

    def now(act: Callable[..., None]) -> Callable[..., None]:
        """Return an act on a run as one on what it has become."""
        return (lambda *words: act(jobs.acting(path), *words)) if with_job else partial(act, path)

    return TrainmonApp(
        Follower(path, rank=rank, with_job=with_job),
        title=path.name,
        stop_training=now(stops.stop),
        ask_for_trace=now(ask_and_tell),
        tell_stacks=now(tell_stacks),
        card=short_report,
        low_bandwidth=low_bandwidth,
        bell_at_alerts=bell_at_alerts,
        preferences=load_preferences(),
    )


def agreed(reasons: Sequence[str], question: str, purpose: str) -> bool:
    """Say what is to be considered, and ask one question.

    Raises:
        UserError: there is no terminal to ask on; --yes serves the purpose then.
    """
    if not (os.isatty(0) and os.isatty(2)):
        raise UserError(f"{'; '.join(reasons)}; add --yes {purpose}")
    for reason in reasons:
        say(f"  {reason}")
    return click.confirm(question, err=True)


def write_out(text: str, file: Path) -> None:
    """Write a file whole; `-` is stdout.

    Raises:
        UserError: it cannot be written.
    """
    content = text.encode()
    if str(file) == "-":
        sys.stdout.buffer.write(content)
        return
    try:
        file.write_bytes(content)
    except OSError as error:
        raise UserError(f"{file}: {error.strerror or error}") from None
    say(f"{file}: {size(len(content))}, for a browser")


def within_terminal(text: str, stream: TextIO) -> str:
    """Return lines broken between words where the terminal is narrower; as they are where it is none."""
    columns = shutil.get_terminal_size().columns
    lines = text.split("\n")
    if not stream.isatty() or max(map(len, lines)) <= columns:
        return text
    broken = []
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        broken += textwrap.wrap(
            line, columns, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        ) or [""]
    return "\n".join(broken)


def short_report(view: View) -> str:
    """Return what the dashboard copies. It is loaded when somebody does."""
    from monitor.reports import card

    return card.text(view)


def tell_how_to_attach(path: Path) -> None:
    """Print how to attach to the run again."""
    say(f"the training goes on; come back with: trainmon attach {path.name}")

"""Show one run, for the commands that do: as a dashboard, as lines or as JSON, with their common options."""

from __future__ import annotations

import math
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from monitor.errors import complain, say

if TYPE_CHECKING:
    from monitor.alerts import AlertOptions
    from monitor.model.view import View
    from monitor.running.launched_training import LaunchedTraining

# Full-screen programs, which end with their terminal.

Outcome = TypeVar("Outcome", covariant=True)

CLOSE_RETRY_SECONDS = 0.1  # between attempts to close a screen that is not open yet


class FullScreenApp(Protocol[Outcome]):
    """A full-screen program."""

    def run(self) -> Outcome: ...


def can_draw() -> bool:
    """Return whether a screen can be shown: stdin, stdout and stderr are a capable terminal, in the foreground."""
    if os.environ.get("TERM", "dumb") in ("", "dumb"):
        return False
    try:
        if not all(os.isatty(handle) for handle in (0, 1, 2)):
            return False
        return os.tcgetpgrp(0) == os.getpgrp()  # in the background (`&`) a program that reads keys is stopped
    except OSError:
        return False


def open_screen(app: FullScreenApp[Outcome], leave: Callable[[], None] | None = None) -> Outcome:
    """Run `app` and return its result; end the process when the terminal closes.

    Only the session's leader gets the signal of a hangup. If that one waits for its child instead of ending, as make
    does, the screen would otherwise be drawn forever without a terminal.

    Args:
        leave: for a process that outlives its terminal: called from another thread to close the screen; it raises
            RuntimeError as long as no screen is open.
    """
    _watch_terminal(leave)
    return app.run()


@cache  # once in a process, however many screens it opens
def _watch_terminal(leave: Callable[[], None] | None) -> None:
    threading.Thread(target=_end_with_the_terminal, args=(leave,), name="hangup", daemon=True).start()


def _end_with_the_terminal(leave: Callable[[], None] | None) -> None:
    gone = select.poll()
    gone.register(0, 0)  # nothing but a hangup or an error wakes it
    gone.poll()
    if leave is None:
        os.kill(os.getpid(), signal.SIGHUP)
        os._exit(128 + signal.SIGHUP)  # the signal is ignored: after nohup, or in the first process of a container
    while True:
        with suppress(RuntimeError):
            return leave()
        time.sleep(CLOSE_RETRY_SECONDS)


class FiniteRange(click.FloatRange):
    """A number in a range; `nan` and `inf` are refused, as no journal or report can hold them."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a number", param, ctx)
        return number


# Without a dashboard: lines of progress, or a JSON object every second.

LINE_SECONDS = 5.0  # between two lines of progress, so that a log stays readable
OBJECT_SECONDS = 1.0  # between two JSON objects


def views(path: Path, seconds: float) -> Iterator[View]:
    """Yield a View every `seconds`, the first when the history has been read, the last when the run has ended."""
    from monitor.runs.follow import Run
    from monitor.sources.run_directory import POLL

    run = Run(path)
    try:
        due = 0.0
        while True:
            while run.advance():
                pass
            view = run.view()
            over = view.report.outcome.state != "running"
            if over or time.monotonic() >= due:
                due = max(due + seconds, time.monotonic())
                yield view
            if over:
                return
            run.source.wait(min(0.5, max(POLL, due - time.monotonic())))
    finally:
        run.close()


def print_progress(views: Iterable[View]) -> None:
    """Print a line per View, a second one if the verdict changed, and the whole report at the end."""
    from monitor.reports import run_summary

    shown_title = None
    view = None
    for view in views:
        click.echo(run_summary.line(view))
        if view.verdict.title != shown_title:
            shown_title = view.verdict.title
            click.echo(run_summary.verdict(view))
        sys.stdout.flush()
    if view is not None:
        click.echo(f"\n{run_summary.screen(view)}", nl=False)


def print_json(views: Iterable[View]) -> None:
    """Print a line per View: its report, with the keys of `trainmon report --json`."""
    from monitor.reports.listings import as_line

    for view in views:
        click.echo(as_line(view.report))
        sys.stdout.flush()


# Stops requested on a screen. They are completed even if that screen closes.

STOP_LINES_SECONDS = 0.05  # between two checks for new lines


class StopRequest:
    """One stop of a training, in its own thread, independent of any screen."""

    def __init__(self, path: Path) -> None:
        self.ended = False  # whether the training has ended
        self.error: Exception | None = None
        self.lines: list[str] = []
        self._thread = threading.Thread(target=self._run, args=(path,), name="stop", daemon=True)
        self._thread.start()

    @property
    def over(self) -> bool:
        return not self._thread.is_alive()

    def report(self, say: Callable[[str], None]) -> None:
        """Report all lines from the first one, until the stop is over."""
        printed, over = 0, False
        while not over:
            over = self.over  # read before the lines, so that the last ones are not missed
            for line in self.lines[printed:]:
                say(line)
                printed += 1
            if not over:
                time.sleep(STOP_LINES_SECONDS)

    def _run(self, path: Path) -> None:
        from monitor.running.lifetime import stop_training

        try:
            self.ended = stop_training(path, self.lines.append)
        except Exception as error:  # raised again where the stop was requested
            self.error = error


class StopRequests:
    """All stops requested in this process."""

    def __init__(self) -> None:
        self._begun: dict[Path, StopRequest] = {}

    def stop(self, path: Path, say: Callable[[str], None]) -> None:
        """Stop a training, or follow the stop in progress, and report its lines until it is over.

        Raises:
            Exception: the stop failed.
        """
        stop = self._begun.get(path)
        if stop is None or (stop.over and not stop.ended):
            stop = self._begun[path] = StopRequest(path)
        stop.report(say)
        if stop.error is not None:
            raise stop.error

    def finish(self) -> None:
        """Wait for the stops in progress after the screen has closed, and print their lines."""
        try:
            for path, stop in self._begun.items():
                if not stop.over:
                    stop.report(say)
                    if stop.error is not None:
                        complain(f"{path.name} could not be stopped: {stop.error}")
        except KeyboardInterrupt:
            say("no longer waited for: no further signal is sent")
            raise

    def ended(self, path: Path) -> bool:
        """Return whether a stop has ended this training."""
        return path in self._begun and self._begun[path].ended


ON_ALERT = (
    "Run this command for each finding of severity warning or above that appears, grows worse or clears, and at the "
    "run's end: JSON on its stdin, no shell, at most one in 10 s, killed after 30 s. With `attach`: while it lasts."
)
BELL = "Ring the terminal's bell at an alert, and send a desktop notification where the terminal has them."

Command = TypeVar("Command", bound=Callable[..., Any])


def watching_options(command: Command) -> Command:
    """Add the options of every command that watches one run."""
    command = click.option("--low-bandwidth", is_flag=True, help="Redraw less, for a slow connection.")(command)
    command = click.option("--bell/--no-bell", default=None, help=BELL)(command)
    return click.option("--on-alert", metavar="CMD", help=ON_ALERT)(command)


def show(
    path: Path, low_bandwidth: bool, alerting: AlertOptions, training: LaunchedTraining | None = None
) -> str | None:
    """Show the dashboard and return its result, "detach" or "ended"; print the error and return None if it crashed.

    A stop in progress when the screen closes is completed before this returns.
    """
    result: str | None = None
    stops = StopRequests()
    try:
        from monitor.commands.showing import open_screen
        from monitor.runs.follow import Follower
        from monitor.tui.app import TrainmonApp
        from monitor.tui.feed import load_preferences

        app = TrainmonApp(
            Follower(path),
            title=path.name,
            stop_training=partial(stops.stop, path),
            low_bandwidth=low_bandwidth,
            bell_at_alerts=alerting.bell,
            preferences=load_preferences(),
        )

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
    if result is None and not stops.ended(path):
        tell_how_to_attach(path)
    if result is None:
        complain(f"the dashboard crashed ({reason}); the training is not affected")
    return "ended" if result is not None and stops.ended(path) else result


def tell_how_to_attach(path: Path) -> None:
    """Print how to attach to the run again."""
    say(f"the training goes on; come back with: trainmon attach {path.name}")

"""The dashboard of one run, for the verbs that open it: its options, how it ends, the way back to it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from monitor.errors import complain, say
from monitor.verbs.stopping import Stops

if TYPE_CHECKING:
    from monitor.alerts.alerting import Alerting
    from monitor.running.launch import Front

ON_ALERT = (
    "Run this command for each finding of severity warning or above that appears, grows worse or clears, and at the "
    "run's end: JSON on its stdin, no shell, at most one in 10 s, killed after 30 s. With `attach`: while it lasts."
)
BELL = "Ring the terminal's bell at an alert, and send a desktop notification where the terminal has them."

Verb = TypeVar("Verb", bound=Callable[..., Any])


def watching_options(verb: Verb) -> Verb:
    """The options of every verb that watches one run."""
    verb = click.option("--low-bandwidth", is_flag=True, help="Redraw less, for a slow connection.")(verb)
    verb = click.option("--bell/--no-bell", default=None, help=BELL)(verb)
    return click.option("--on-alert", metavar="CMD", help=ON_ALERT)(verb)


def show(path: Path, low_bandwidth: bool, alerting: Alerting, front: Front | None = None) -> str | None:
    """Show the dashboard; "detach" or "ended", or None where it crashed, which has been said then.

    A stop that is under way when the screen closes is carried through first.
    """
    how: str | None = None
    stops = Stops()
    try:
        from monitor.runs.follow import Follower
        from monitor.terminal import open_screen
        from monitor.tui.app import TrainmonApp
        from monitor.tui.wishes import wishes

        app = TrainmonApp(
            Follower(path),
            title=path.name,
            stop_training=partial(stops.stop, path),
            low_bandwidth=low_bandwidth,
            bell_at_alerts=alerting.bell,
            wishes=wishes(),
        )

        def end() -> None:
            if front is not None and front.told_to_end:
                with suppress(RuntimeError):  # the screen has closed
                    app.call_from_thread(app.exit, "ended")

        def leave() -> None:
            app.call_from_thread(app.exit, "detach")

        if front is not None:
            front.watch(end)
        how = open_screen(app, leave if front is not None and front.stays else None)
        reason = "see above"
    except Exception as error:
        # Whatever is wrong with the screen, the training goes on, and the person has to learn that it does.
        reason = f"{type(error).__name__}: {error}"
    stops.finish()
    if how is None and not stops.ended(path):
        tell_way_back(path)
    if how is None:
        complain(f"the dashboard crashed ({reason}); the training is not affected")
    return "ended" if how is not None and stops.ended(path) else how


def tell_way_back(path: Path) -> None:
    say(f"the training goes on; come back with: trainmon attach {path.name}")

"""The verbs beside `run` and `attach` that open a screen: a replay, and the list of all runs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from monitor.errors import UserError
from monitor.terminal import can_draw, open_screen
from monitor.verbs.amounts import Amount

if TYPE_CHECKING:
    from monitor.verbs.stopping import Stops


@click.command()
@click.argument("run", required=False, metavar="[RUN|FILE]")
@click.option(
    "--speed",
    type=Amount(min=0, max=1024),
    default=1.0,
    show_default=True,
    help="Seconds of the recording a second; 0 begins in pause.",
)
@click.option("--low-bandwidth", is_flag=True, help="Redraw less, for a slow connection.")
@click.pass_context
def replay(context: click.Context, run: str | None, speed: float, low_bandwidth: bool) -> None:
    """Play a run, or a journal in a file, as if it happened now. Every screen says that it is a replay.

    p pauses and goes on; the full stop and the comma go by a step; + and - change the speed; ( and ) by a twentieth.
    """
    from monitor.runs.replay import Playback, open_player

    player = open_player(run)
    if can_draw():
        from monitor.settings import config
        from monitor.tui.replay import ReplayApp
        from monitor.tui.wishes import wishes

        title = Path(run).stem if run else "replay"
        slow = config.slow_link(low_bandwidth)
        how = open_screen(ReplayApp(Playback(player, speed), title=title, low_bandwidth=slow, wishes=wishes()))
        context.exit(1 if how is None else 0)
    if not speed:
        raise UserError("no key can end the pause without a terminal; say how fast: --speed 10")
    from monitor.verbs.plain import LINE_SECONDS, print_progress

    print_progress(Playback(player, speed).views(LINE_SECONDS / max(1.0, speed)))


def browse() -> None:
    """Show all runs, and open what is chosen, until the person leaves."""
    from monitor.runs.fleet import Fleet
    from monitor.settings import config
    from monitor.tui.runs_app import RunsApp
    from monitor.verbs.stopping import Stops

    stops = Stops()
    slow = config.slow_link(False)
    fleet = Fleet()
    cursor: Path | None = None
    said = ""
    try:
        while (choice := open_screen(RunsApp(fleet, _compared, stops.stop, cursor, said))) is not None:
            what, cursor = choice
            try:
                said = _open(what, cursor, slow, stops)
            except UserError as error:  # the run is gone meanwhile, or there is nothing in it
                said = str(error)
    finally:
        fleet.close()
    stops.finish()


def _open(what: str, path: Path, slow: bool, stops: Stops) -> str:
    """Show one run; what is to be said about it afterwards."""
    from monitor.running import recorder
    from monitor.runs.follow import Follower
    from monitor.runs.replay import Playback, open_player
    from monitor.tui.app import TrainmonApp
    from monitor.tui.replay import ReplayApp
    from monitor.tui.wishes import wishes

    stop = partial(stops.stop, path)
    if what == "replay":
        app: TrainmonApp = ReplayApp(
            Playback(open_player(str(path))), title=path.name, low_bandwidth=slow, wishes=wishes()
        )
    else:
        recorder.ensure(path)
        app = TrainmonApp(Follower(path), title=path.name, stop_training=stop, low_bandwidth=slow, wishes=wishes())
    return "" if open_screen(app) is not None else "the dashboard crashed; the training is not affected"


def _compared(paths: list[Path]) -> str:
    """The runs against the first of them, as `trainmon compare` tells it."""
    from monitor.model.compare import Side, compare
    from monitor.reports import comparison
    from monitor.runs.follow import load

    first, *others = [Side(view.report, view.step_seconds) for view in map(load, paths)]
    return "\n".join(comparison.text(compare(first, other)) for other in others)

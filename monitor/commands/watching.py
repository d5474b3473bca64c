"""Commands that show runs on the screen: attach, replay, and the list of all."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from monitor.commands.attach_pid import run_of, unwatched_lines
from monitor.commands.far_runs import VIA, RunName, copied, copied_together, fetched, is_here
from monitor.commands.full_screen import can_draw, open_screen
from monitor.commands.progress import LINE_SECONDS, OBJECT_SECONDS, print_json, print_progress, views
from monitor.commands.runs import view_of
from monitor.commands.showing import (
    FiniteRange,
    dashboard,
    rank_option,
    short_report,
    show,
    tell_how_to_attach,
    watching_options,
    write_out,
)
from monitor.commands.stop_requests import StopRequests
from monitor.errors import UserError
from monitor.keymap import SCREENS
from monitor.palettes import PALETTES

if TYPE_CHECKING:
    from monitor.runs.replay import Playback
    from monitor.tui.app import TrainmonApp
    from monitor.tui.replay_app import ReplayApp
    from monitor.tui.screens.compare_screen import RunsCompared


MIN_COLUMNS, MIN_ROWS = 30, 8  # the dashboard of such a terminal still answers


@click.command()
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option("--once", is_flag=True, help="Print one screen as plain text and leave.")
@click.option("--json", "as_json", is_flag=True, help="A line of JSON a second, as `report --json`; ends with the run.")
@click.option("--pid", type=int, help="A training that was started without trainmon: make a run of it, from outside.")
@click.option("--log", type=click.Path(path_type=Path), help="With --pid: the file that it prints to, if not known.")
@click.option("--yes", is_flag=True, help="With --pid: ask no question.")
@rank_option
@click.option("--via", metavar="CMD", help=VIA)
@click.option("--job", metavar="JOB", help="The run of a Slurm job id, or with --host of an id given to torchrun.")
@click.option("--host", "hosts", metavar="HOST[,HOST...]", help="With --job: its hosts. Default: Slurm is asked.")
@watching_options
@click.pass_context
def attach(
    context: click.Context,
    runs: tuple[str, ...],
    pid: int | None,
    log: Path | None,
    yes: bool,
    via: str | None,
    job: str | None,
    hosts: str | None,
    once: bool,
    as_json: bool,
    rank: int | None,
    on_alert: str | None,
    bell: bool | None,
    low_bandwidth: bool,
) -> None:
    """Watch a run: the running one, or any other from its records.

    Without a terminal it prints a line of progress now and then, until the run ends.

    HOST:RUN is a run on another host, by ssh or what is configured or --via. Several are the parts of one job on many
    hosts, and shown as one run.

    With --pid it says what it will read of the process, asks, and records from then on until the process ends. Nothing
    is changed in the process.
    """
    from monitor.remote import targets
    from monitor.runs import catalogue

    run = runs[0] if runs else None
    if pid is not None and run:
        raise UserError("RUN and --pid are two ways to name a training; give one")
    if pid is None and (yes or log is not None):
        raise UserError("--yes and --log go with --pid")
    if pid is not None and via is not None:
        raise UserError("--pid is of this machine; --via leads to another one")
    if job == "":  # of a variable that is not set, as a rule: not whatever runs there
        raise UserError("--job names no job: --job JOB")
    options = once, as_json, rank, low_bandwidth, on_alert, bell
    if job is not None and not runs and hosts is None and via is None and (found := _of_job(job)) is not None:
        context.exit(_watch(found, *options))
    parts = [] if pid is not None else targets.parts(runs, via, job, hosts, is_here)
    if len(parts) == 1 and once and job is None:
        context.exit(_watch(fetched(*parts[0]), *options))
    if parts:
        with copied_together(parts, job) as path:
            context.exit(_watch(path, *options))
    here = run_of(pid, log, yes) if pid is not None else catalogue.resolve(run) if run else _choose()
    context.exit(1 if here is None else _watch(here, *options))


def _of_job(job: str) -> Path | None:
    """Return the run of a job that lies here: the one that runs, else the last; None where there is none."""
    from monitor.runs import catalogue, jobs

    found = jobs.together(jobs.of_job(catalogue.paths(), job))
    return next((run for run in found if catalogue.lives(run)), found[0] if found else None)


def _watch(
    path: Path,
    once: bool,
    as_json: bool,
    rank: int | None,
    low_bandwidth: bool,
    on_alert: str | None,
    bell: bool | None,
) -> int:
    """Show a run until it has ended or the person leaves. Return the exit code."""
    from monitor import settings
    from monitor.alert_options import alert_options
    from monitor.running import recorder_process
    from monitor.runs import catalogue, jobs
    from monitor.runs.replay import check_rank
    from monitor.sources.run_directory import ranks_of
    from monitor.sources.sockets import shortage

    alerting = alert_options(bell, on_alert)
    if (short := shortage()) is not None:
        click.echo(f"no live socket: {short}; the journals are read instead", err=True)
    recorder_process.ensure_recorder(path)
    if rank is not None:
        check_rank(rank, ranks_of(path), path.name)
    if once:
        from monitor.reports.report_json import as_line
        from monitor.reports.run_summary import screen
        from monitor.runs.follow import load

        view = load(path, rank=rank)
        click.echo(as_line(view.report) + "\n" if as_json else screen(view), nl=False)
        return 0
    with alerting.while_attached(path):
        if as_json:
            print_json(views(path, OBJECT_SECONDS, rank=rank, with_job=True))
        elif not can_draw():
            click.echo(f"no terminal to draw on: a line each {LINE_SECONDS:g} s until the run ends", err=True)
            print_progress(views(path, LINE_SECONDS, rank=rank, with_job=True))
        else:
            how = show(path, settings.saves_bandwidth(low_bandwidth), alerting, rank=rank)
            whole = jobs.whole(path)
            if how == "detach" and catalogue.state(whole)[0] == "running":
                tell_how_to_attach(whole)
            return 1 if how is None else 0
    return 0


def _choose() -> Path:
    """Return the running run; ask which one if there are several."""
    from monitor.runs import catalogue

    live = catalogue.live_runs()
    if not live:
        raise UserError("no training is running here; `trainmon attach last` shows the last one")
    if len(live) == 1:
        return live[0].path
    if not (os.isatty(0) and os.isatty(2)):
        named = ", ".join(entry.id for entry in live)
        raise UserError(f"{len(live)} trainings are running: {named}; say which: trainmon attach RUN")
    from monitor.reports.runs_table import standing

    for number, entry in enumerate(live, 1):
        click.echo(f"{number:3}  {entry.id}  {standing(entry)}", err=True)
    chosen: int = click.prompt("Which one", type=click.IntRange(1, len(live)), default=1, err=True)
    return live[chosen - 1].path


@click.command()
@click.argument("run", required=False, metavar="[RUN|FILE]", type=RunName())
@click.option(
    "--speed",
    type=FiniteRange(min=0, max=1024),
    default=1.0,
    show_default=True,
    help="Seconds of the recording a second; 0 begins in pause.",
)
@rank_option
@click.option("--low-bandwidth", is_flag=True, help="Redraw less, for a slow connection.")
@click.pass_context
def replay(context: click.Context, run: str | None, speed: float, rank: int | None, low_bandwidth: bool) -> None:
    """Play a run, or a journal in a file, as if it happened now. Every screen says that it is a replay.

    p pauses and resumes; . and , move by a step, ) and ( by a twentieth of the recording; + and - change the speed.
    """
    from monitor.runs.replay import Playback, open_player

    player = open_player(run, rank)
    if can_draw():
        from monitor import settings

        title = Path(run).stem if run else "replay"
        how = open_screen(_replaying(Playback(player, speed), title, settings.saves_bandwidth(low_bandwidth)))
        context.exit(1 if how is None else 0)
    if not speed:
        raise UserError("no key can end the pause without a terminal; say how fast: --speed 10")

    print_progress(Playback(player, speed).views(LINE_SECONDS / max(1.0, speed)))


def _replaying(playback: Playback, title: str, slow: bool) -> TrainmonApp:
    """Return the dashboard of a recording."""
    from monitor.tui.feed import load_preferences
    from monitor.tui.replay_app import ReplayApp

    return ReplayApp(playback, title=title, card=short_report, low_bandwidth=slow, preferences=load_preferences())


_SIZE = re.compile(r"(\d{2,3})x(\d{1,3})")
_NAMES = {"overview": "overview", **{action.setting: name for name, action in SCREENS.items()}}


@click.command()
@click.argument("run", required=False, metavar="[RUN|FILE]", type=RunName())
@click.option(
    "--output",
    "-o",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    default="-",
    help="Output file. Default: stdout.",
)
@click.option(
    "--screen", type=click.Choice(list(_NAMES)), default="overview", show_default=True, help="Which one to draw."
)
@click.option("--size", default="160x45", show_default=True, metavar="COLUMNSxROWS", help="As of a terminal.")
@click.option(
    "--theme",
    type=click.Choice([palette.name for palette in PALETTES]),
    default=PALETTES[0].name,
    show_default=True,
    help="Its colors.",
)
def snapshot(run: str | None, output: Path, screen: str, size: str, theme: str) -> None:
    """Draw a screen of a run as an SVG picture, which loads nothing from elsewhere."""
    from monitor.tui.snapshot import picture

    given = _SIZE.fullmatch(size)
    columns, rows = (0, 0) if given is None else map(int, given.groups())
    if columns < MIN_COLUMNS or rows < MIN_ROWS:
        raise UserError(f"--size {size}: columns and rows, as 160x45; at least {MIN_COLUMNS}x{MIN_ROWS}")
    write_out(picture(view_of(run), _NAMES[screen], (columns, rows), theme), output)


def browse() -> None:
    """Show the list of runs, and open the chosen ones, until the user quits."""
    from monitor import settings
    from monitor.remote import targets
    from monitor.runs.far_runs import FarRuns
    from monitor.runs.fleet import Fleet
    from monitor.tui.runs_app import RunsApp

    far = FarRuns(map(targets.target, targets.configured()))

    def stop(path: Path, say: Callable[[str], None]) -> None:
        if (where := far.where(path)) is None:
            stops.stop(path, say)
        else:
            say(f"it runs on {where[0].host}; there: trainmon stop {where[1]}")

    def compare(paths: list[Path]) -> RunsCompared:
        places = [far.where(path) for path in paths]
        return _compared([p if at is None else fetched(*at, asks=False) for p, at in zip(paths, places, strict=True)])

    def unwatched() -> list[str]:
        return [*_unwatched(), *far.unreached()]

    stops = StopRequests()
    slow = settings.saves_bandwidth(False)
    fleet = Fleet(far)
    cursor: Path | None = None
    notice = ""
    try:
        while (choice := open_screen(RunsApp(fleet, compare, stop, cursor, notice, unwatched))) is not None:
            what, cursor = choice
            try:
                where = far.where(cursor)
                if where is None:
                    notice = _open(what, cursor, slow, stops)
                elif what == "replay":
                    notice = _open(what, fetched(*where), slow, stops)
                else:
                    with copied(*where) as path:
                        notice = _open(what, path, slow, stops)
            except UserError as error:  # the run has been removed, or is empty
                notice = str(error)
    finally:
        fleet.close()
    stops.finish()


def _unwatched() -> list[str]:
    from monitor.runs import catalogue

    return unwatched_lines(path for path in catalogue.paths() if catalogue.lives(path))


def _open(what: str, path: Path, slow: bool, stops: StopRequests) -> str:
    """Show one run, and return a message to show on the list afterwards; "" for none."""
    from monitor.running import recorder_process
    from monitor.runs.replay import Playback, open_player

    if what == "replay":
        app: ReplayApp | TrainmonApp = _replaying(Playback(open_player(str(path))), path.name, slow)
    else:
        recorder_process.ensure_recorder(path)
        app = dashboard(path, stops, low_bandwidth=slow)
    return "" if open_screen(app) is not None else "the dashboard crashed; the training is not affected"


def _compared(paths: list[Path]) -> RunsCompared:
    """Return comparisons of the runs with the first of them, and curves of the first and the last."""
    from monitor.model.comparison.overlays import overlays
    from monitor.reports import comparison
    from monitor.runs.follow import compared, load
    from monitor.tui.screens.compare_screen import RunsCompared

    first, *others = map(load, paths)
    text = "\n".join(comparison.text(compared(first, other)) for other in others)
    names = first.report.run.name or "", others[-1].report.run.name or ""
    if names[0] == names[1]:  # repeats of one command
        names = paths[0].name, paths[-1].name
    return RunsCompared(text, names, overlays(first, others[-1]))

"""Commands for existing runs: attach and replay, the list of all; ls, stop, report, compare, export, prune."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from monitor.commands.showing import (
    LINE_SECONDS,
    OBJECT_SECONDS,
    FiniteRange,
    StopRequests,
    can_draw,
    open_screen,
    print_json,
    print_progress,
    show,
    tell_how_to_attach,
    views,
    watching_options,
)
from monitor.errors import UserError, say

if TYPE_CHECKING:
    from monitor.model.view import View

# Runs on the screen: attach, replay, and the list of all.


@click.command()
@click.argument("run", required=False)
@click.option("--once", is_flag=True, help="Print one screen as plain text and leave.")
@click.option("--json", "as_json", is_flag=True, help="A line of JSON a second, as `report --json`; ends with the run.")
@watching_options
@click.pass_context
def attach(
    context: click.Context,
    run: str | None,
    once: bool,
    as_json: bool,
    on_alert: str | None,
    bell: bool | None,
    low_bandwidth: bool,
) -> None:
    """Watch a run: the running one, or any other from its records.

    Without a terminal it prints a line of progress now and then, until the run ends.
    """
    from monitor import settings
    from monitor.alerts import alert_options
    from monitor.running import recorder
    from monitor.runs import catalogue
    from monitor.sources.sockets import shortage

    path = catalogue.resolve(run) if run else _choose()
    alerting = alert_options(bell, on_alert)
    if (short := shortage()) is not None:
        click.echo(f"no live socket: {short}; the journals are read instead", err=True)
    recorder.ensure_recorder(path)
    if once:
        from monitor.reports.listings import as_line
        from monitor.reports.run_summary import screen
        from monitor.runs.follow import load

        view = load(path)
        click.echo(as_line(view.report) + "\n" if as_json else screen(view), nl=False)
        return
    with alerting.while_attached(path):
        if as_json:
            print_json(views(path, OBJECT_SECONDS))
        elif not can_draw():
            click.echo(f"no terminal to draw on: a line each {LINE_SECONDS:g} s until the run ends", err=True)
            print_progress(views(path, LINE_SECONDS))
        else:
            how = show(path, settings.saves_bandwidth(low_bandwidth), alerting)
            if how == "detach" and catalogue.state(path)[0] == "running":
                tell_how_to_attach(path)
            context.exit(1 if how is None else 0)


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
    from monitor.reports.listings import standing

    for number, entry in enumerate(live, 1):
        click.echo(f"{number:3}  {entry.id}  {standing(entry)}", err=True)
    chosen: int = click.prompt("Which one", type=click.IntRange(1, len(live)), default=1, err=True)
    return live[chosen - 1].path


@click.command()
@click.argument("run", required=False, metavar="[RUN|FILE]")
@click.option(
    "--speed",
    type=FiniteRange(min=0, max=1024),
    default=1.0,
    show_default=True,
    help="Seconds of the recording a second; 0 begins in pause.",
)
@click.option("--low-bandwidth", is_flag=True, help="Redraw less, for a slow connection.")
@click.pass_context
def replay(context: click.Context, run: str | None, speed: float, low_bandwidth: bool) -> None:
    """Play a run, or a journal in a file, as if it happened now. Every screen says that it is a replay.

    p pauses and resumes; . and , move by a step, ) and ( by a twentieth of the recording; + and - change the speed.
    """
    from monitor.runs.replay import Playback, open_player

    player = open_player(run)
    if can_draw():
        from monitor import settings
        from monitor.tui.feed import load_preferences
        from monitor.tui.replay_app import ReplayApp

        title = Path(run).stem if run else "replay"
        slow = settings.saves_bandwidth(low_bandwidth)
        how = open_screen(
            ReplayApp(Playback(player, speed), title=title, low_bandwidth=slow, preferences=load_preferences())
        )
        context.exit(1 if how is None else 0)
    if not speed:
        raise UserError("no key can end the pause without a terminal; say how fast: --speed 10")

    print_progress(Playback(player, speed).views(LINE_SECONDS / max(1.0, speed)))


def browse() -> None:
    """Show the list of runs, and open the chosen ones, until the user quits."""
    from monitor import settings
    from monitor.runs.fleet import Fleet
    from monitor.tui.runs_app import RunsApp

    stops = StopRequests()
    slow = settings.saves_bandwidth(False)
    fleet = Fleet()
    cursor: Path | None = None
    notice = ""
    try:
        while (choice := open_screen(RunsApp(fleet, _compared, stops.stop, cursor, notice))) is not None:
            what, cursor = choice
            try:
                notice = _open(what, cursor, slow, stops)
            except UserError as error:  # the run has been removed, or is empty
                notice = str(error)
    finally:
        fleet.close()
    stops.finish()


def _open(what: str, path: Path, slow: bool, stops: StopRequests) -> str:
    """Show one run, and return a message to show on the list afterwards; "" for none."""
    from monitor.running import recorder
    from monitor.runs.follow import Follower
    from monitor.runs.replay import Playback, open_player
    from monitor.tui.app import TrainmonApp
    from monitor.tui.feed import load_preferences
    from monitor.tui.replay_app import ReplayApp

    stop = partial(stops.stop, path)
    if what == "replay":
        app: TrainmonApp = ReplayApp(
            Playback(open_player(str(path))), title=path.name, low_bandwidth=slow, preferences=load_preferences()
        )
    else:
        recorder.ensure_recorder(path)
        app = TrainmonApp(
            Follower(path), title=path.name, stop_training=stop, low_bandwidth=slow, preferences=load_preferences()
        )
    return "" if open_screen(app) is not None else "the dashboard crashed; the training is not affected"


def _compared(paths: list[Path]) -> str:
    """Return comparisons of the runs with the first of them, as text."""
    from monitor.model.comparison.compare import Side, compare
    from monitor.reports import comparison
    from monitor.runs.follow import load

    first, *others = [Side(view.report, view.step_seconds) for view in map(load, paths)]
    return "\n".join(comparison.text(compare(first, other)) for other in others)


# Runs as text, and what is done to them: ls, stop, report, compare, export, prune.


@click.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def ls(as_json: bool) -> None:
    """List the runs, newest first."""
    from monitor.runs import catalogue

    entries = catalogue.list_runs()
    if as_json:
        import msgspec

        encoded = msgspec.json.encode(entries, enc_hook=str)
        click.echo(msgspec.json.format(encoded, indent=2).decode())
    elif not entries:
        click.echo("no runs yet; start one with: trainmon run -- python train.py", err=True)
    else:
        from monitor.reports.listings import listing

        click.echo(listing(entries))


@click.command()
@click.argument("run")
@click.pass_context
def stop(context: click.Context, run: str) -> None:
    """Stop a training: SIGINT, after 30 s SIGTERM, after 30 s more SIGKILL."""
    from monitor.running.lifetime import stop_training
    from monitor.runs import catalogue

    stopped = stop_training(catalogue.resolve(run), say)
    context.exit(0 if stopped else 1)


@click.command()
@click.argument("run", required=False)
@click.option("--json", "form", flag_value="json", help="As JSON, with stable keys.")
@click.option("--markdown", "form", flag_value="markdown", help="As Markdown.")
@click.option(
    "--what-if",
    "assumptions",
    multiple=True,
    metavar="PART=SHARE",
    help="Best-case speed, time and cost if PART took only this share of its time: data=0, forward=0.5. PART is a "
    "phase, a span, startup, between_steps or teardown; repeatable.",
)
def report(run: str | None, form: str | None, assumptions: tuple[str, ...]) -> None:
    """Print a report of a run. RUN can also be a journal file; RUN#2 is the second training of its command."""
    from monitor import settings
    from monitor.reports import comparison, listings, run_text

    settings.bounds()
    view_report = _view(run).report
    if assumptions:
        try:
            view_report.what_if = comparison.assumed(view_report, assumptions)
        except comparison.BadAssumption as error:
            raise UserError(str(error)) from None
    if form == "json":
        click.echo(listings.as_json(view_report))
    else:
        click.echo((run_text.markdown if form == "markdown" else run_text.text)(view_report), nl=False)


def _view(run: str | None, measured: bool = True) -> View:
    """Return the view of a run, or of a journal file."""
    from monitor.runs import catalogue
    from monitor.runs.follow import load
    from monitor.runs.replay import recorded

    if run and os.path.isfile(run):  # Path.is_file raises on a name that is too long
        return recorded(Path(run))
    if run and ("/" in run or run.endswith(".jsonl")) and not os.path.exists(run):
        raise UserError(f"{run}: no such file; `trainmon ls` lists the runs")
    path, chosen = catalogue.resolve_training(run)
    return load(path, measured, chosen)


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN RUN...")
@click.option("--json", "form", flag_value="json", help="As JSON, with stable keys.")
@click.option("--markdown", "form", flag_value="markdown", help="As Markdown.")
@click.option(
    "--fail-slower",
    type=FiniteRange(min=0),
    metavar="PCT",
    help="Exit with 1 if a run is more than PCT percent slower than the first one, and the difference is significant.",
)
@click.pass_context
def compare(context: click.Context, runs: tuple[str, ...], form: str | None, fail_slower: float | None) -> None:
    """Compare runs with the first one: speed, phases, configuration. RUN can also be a journal file."""
    import json

    from monitor.model.comparison.compare import Side
    from monitor.model.comparison.compare import compare as compared
    from monitor.reports import comparison

    if len(runs) < 2:
        raise UserError("name at least two runs: trainmon compare BEFORE AFTER (`trainmon ls` lists them)")
    seen = [_view(named, measured=False) for named in runs]
    first, *other_sides = [Side(view.report, view.step_seconds) for view in seen]
    rows = [compared(first, other) for other in other_sides]
    if form == "json":
        click.echo(json.dumps(comparison.mapping(rows), indent=2, allow_nan=False))
    else:
        click.echo("\n".join(comparison.text(row, form == "markdown") for row in rows), nl=False)
    if fail_slower is not None:
        limit = 1 + fail_slower / 100
        unknown = next((row for row in rows if row.slower is None), None)
        if unknown is not None:
            pair = f"{unknown.after} and {unknown.before}"
            raise UserError(f"--fail-slower: cannot compare {pair}; name runs that have steps")
        context.exit(int(any((row.slower or 0) > limit and row.more_than_noise for row in rows)))


@click.command()
@click.argument("run", required=False)
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "csv", "parquet", "chrome"]),
    required=True,
    help="jsonl: the raw journals; csv, parquet: a table of steps; chrome: a trace for chrome://tracing or Perfetto.",
)
@click.option("--output", "-o", type=click.Path(dir_okay=False, path_type=Path), help="Output file. Default: stdout.")
def export(run: str | None, form: str, output: Path | None) -> None:
    """Export the events of a run."""
    from monitor.exporters import FORMATS, show_jsonl
    from monitor.runs.catalogue import resolve

    path = resolve(run)
    if output is None:
        if form == "parquet" and sys.stdout.isatty():
            raise UserError("Parquet is binary: name a file with --output FILE")
        write = show_jsonl if form == "jsonl" and sys.stdout.isatty() else FORMATS[form]
        write(path, sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    try:
        with open(output, "wb") as target:
            FORMATS[form](path, target)
    except OSError as error:
        raise UserError(f"{output}: {error.strerror or error}") from None


@click.command()
@click.option("--dry-run", is_flag=True, help="Only list what would be removed.")
@click.option("--keep", type=click.IntRange(min=0), metavar="N", help="Number of newest runs to keep.")
@click.option("--keep-gib", type=FiniteRange(0, 2**30), metavar="GIB", help="Total size of the runs to keep, in GiB.")
@click.pass_context
def prune(context: click.Context, dry_run: bool, keep: int | None, keep_gib: float | None) -> None:
    """Remove the oldest runs beyond a number and a total size. Live runs and runs with a file named `pinned` stay.

    This also happens whenever a run starts, to runs that were not modified for a day. Set the limits in config.toml:
    under [retention] the keys runs = 400, gib = 20, automatic = true.

    A live run keeps itself within run_gib, by default a tenth of the free space and 4 GiB at most: its older output and
    its older single steps are removed from disk while it goes on. Its totals and curves keep them.
    """
    from monitor.runs import retention
    from monitor.units import size

    limits = retention.limits()
    max_runs = limits.runs if keep is None else keep
    max_size = limits.size if keep_gib is None else int(keep_gib * 2**30)
    stored = retention.stored()
    removed = []
    failed = False
    for run in retention.surplus(stored, max_runs, max_size):
        done = dry_run or retention.remove(run)
        click.echo(f"{'would remove' if dry_run else 'removed' if done else 'could not remove'}  {run.path.name}")
        removed += [run] if done else []
        failed = failed or not done
    if not dry_run:
        retention.sweep()
    total, freed = (size(sum(run.size for run in runs)) for runs in (stored, removed))
    click.echo(
        f"{'would remove' if dry_run else 'removed'} {len(removed)} of {len(stored)} runs, {freed} of {total} "
        f"(limits: {max_runs} runs, {size(max_size)})"
    )
    context.exit(int(failed))

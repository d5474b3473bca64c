"""The verbs about runs that are there already: listed, stopped, told, compared, exported, removed."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from monitor.errors import UserError, say
from monitor.verbs.amounts import Amount

if TYPE_CHECKING:
    from monitor.model.report import View


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
        click.echo("no runs yet; start one: trainmon run -- python train.py", err=True)
    else:
        from monitor.reports.listing import listing

        click.echo(listing(entries))


@click.command()
@click.argument("run")
@click.pass_context
def stop(context: click.Context, run: str) -> None:
    """Stop a training: SIGINT, after 30 s SIGTERM, after 30 s more SIGKILL."""
    from monitor.running.stop import stop_training
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
    help="The speed, time and cost that would remain, at best, if only this share of a part did: data=0, forward=0.5. "
    "A part is a phase, a span, startup, between_steps or teardown; may be repeated.",
)
def report(run: str | None, form: str | None, assumptions: tuple[str, ...]) -> None:
    """Say how a run went, or how it stands. RUN may also be a recording: a journal in a file."""
    from monitor.reports import as_json, text, what_if
    from monitor.settings import speeds

    speeds.bounds()
    found = _view(run).report
    if assumptions:
        try:
            found.what_if = what_if.assumed(found, assumptions)
        except what_if.BadAssumption as error:
            raise UserError(str(error)) from None
    if form == "json":
        click.echo(as_json.as_json(found))
    else:
        click.echo((text.markdown if form == "markdown" else text.text)(found), nl=False)


def _view(named: str | None, measured: bool = True) -> View:
    """The view of a run, or of a recording in a file of its own."""
    from monitor.runs import catalogue
    from monitor.runs.follow import load
    from monitor.runs.replay import recorded

    if named and os.path.isfile(named):  # pathlib's own raises on a name that is too long
        return recorded(Path(named))
    if named and ("/" in named or named.endswith(".jsonl")) and not os.path.exists(named):
        raise UserError(f"{named}: there is no such file; `trainmon ls` lists the runs")
    return load(catalogue.resolve(named), measured)


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN RUN...")
@click.option("--json", "form", flag_value="json", help="As JSON, with stable keys.")
@click.option("--markdown", "form", flag_value="markdown", help="As Markdown.")
@click.option(
    "--fail-slower",
    type=Amount(min=0),
    metavar="PCT",
    help="Exit with 1 if a run is slower than the first by more than PCT percent, and by more than noise.",
)
@click.pass_context
def compare(context: click.Context, runs: tuple[str, ...], form: str | None, fail_slower: float | None) -> None:
    """Compare runs with the first one: speed, phases, what changed. A RUN may also be a recording in a file."""
    import json

    from monitor.model.compare import Side
    from monitor.model.compare import compare as compared
    from monitor.reports import comparison

    if len(runs) < 2:
        raise UserError("name two runs or more: trainmon compare BEFORE AFTER (`trainmon ls` lists them)")
    views = [_view(each, measured=False) for each in runs]
    first, *others = [Side(view.report, view.step_seconds) for view in views]
    rows = [compared(first, other) for other in others]
    if form == "json":
        click.echo(json.dumps(comparison.mapping(rows), indent=2, allow_nan=False))
    else:
        click.echo("\n".join(comparison.text(row, form == "markdown") for row in rows), nl=False)
    if fail_slower is not None:
        limit = 1 + fail_slower / 100
        unknown = next((row for row in rows if row.slower is None), None)
        if unknown is not None:
            pair = f"{unknown.after} and {unknown.before}"
            raise UserError(f"--fail-slower: {pair} cannot be compared; name two runs that have steps")
        context.exit(int(any((row.slower or 0) > limit and row.more_than_noise for row in rows)))


@click.command()
@click.argument("run", required=False)
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "csv", "parquet", "chrome"]),
    required=True,
    help="The journals as they are, the steps as a table, or a trace for chrome://tracing and Perfetto.",
)
@click.option("--output", "-o", type=click.Path(dir_okay=False, path_type=Path), help="A file; by default stdout.")
def export(run: str | None, form: str, output: Path | None) -> None:
    """Write a run's events in the format of another tool."""
    from monitor.exporters.export import FORMATS, show_jsonl
    from monitor.runs.catalogue import resolve

    path = resolve(run)
    if output is None:
        if form == "parquet" and sys.stdout.isatty():
            raise UserError("Parquet is no text for a terminal: name a file with --output FILE")
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
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@click.option("--keep", type=click.IntRange(min=0), metavar="N", help="How many of the newest runs stay.")
@click.option("--keep-gib", type=Amount(0, 2**30), metavar="GIB", help="How much they may take in all.")
@click.pass_context
def prune(context: click.Context, dry_run: bool, keep: int | None, keep_gib: float | None) -> None:
    """Remove the oldest runs beyond a number and a size. Live runs stay, and those with a file named `pinned`.

    The same happens by itself when a run begins, to runs that nothing has touched for a day. The limits, and whether
    it does, can be set in config.toml: under [retention] the keys runs = 400, gib = 20, automatic = true.
    """
    from monitor.runs import retention
    from monitor.units import size

    told = retention.limits()
    number = told.runs if keep is None else keep
    room = told.size if keep_gib is None else int(keep_gib * 2**30)
    stored = retention.stored()
    gone = []
    stays = False
    for each in retention.surplus(stored, number, room):
        done = dry_run or retention.remove(each)
        click.echo(f"{'would remove' if dry_run else 'removed' if done else 'could not remove'}  {each.path.name}")
        gone += [each] if done else []
        stays = stays or not done
    if not dry_run:
        retention.sweep()
    total = sum(each.size for each in stored)
    verb = "would go" if dry_run else "went"
    freed = size(sum(each.size for each in gone))
    click.echo(
        f"{len(gone)} of {len(stored)} runs {verb}, {freed} of {size(total)} (limits: {number} runs, {size(room)})"
    )
    context.exit(int(stays))

"""Commands for existing runs: ls, stop, report, compare, export, prune."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from monitor.commands.attach_pid import unwatched_lines
from monitor.commands.far_runs import VIA, RunName, done_there
from monitor.commands.showing import FiniteRange, rank_option, within_terminal, write_out
from monitor.errors import UserError, say

if TYPE_CHECKING:
    from monitor.model.view import View
    from monitor.runs.catalogue import RunEntry

WHOLE = 10_000  # cells of a line that no terminal cuts


@click.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.option("--host", "hosts", metavar="HOST[,HOST...]", help="Those of other hosts; `all` is those under [hosts].")
@click.option("--via", metavar="CMD", help=VIA)
@click.pass_context
def ls(context: click.Context, as_json: bool, hosts: str | None, via: str | None) -> None:
    """List the runs, newest first, and this user's trainings on this machine that no run records.

    With --host, those of other hosts instead, as HOST:RUN. A host that cannot be reached is a line on stderr, and the
    exit code then 1.
    """
    from monitor.runs import catalogue
    from monitor.runs.kept_answers import with_answers

    are_here = hosts is None and via is None
    entries, failed = (with_answers(catalogue.list_runs()), False) if are_here else _far_entries(hosts, via)
    if as_json:
        import msgspec

        from monitor.reports.machine_output import encoded

        lines = ",".join(map(encoded, entries))
        click.echo(msgspec.json.format(f"[{lines}]", indent=2))
        context.exit(int(failed))
    from monitor.reports.runs_table import listing

    if entries:
        width = shutil.get_terminal_size((WHOLE, 24)).columns if sys.stdout.isatty() else WHOLE
        click.echo(listing(entries, width))
    elif not failed:
        click.echo("no runs yet; start one with: trainmon run -- python train.py", err=True)
    if not are_here:
        context.exit(int(failed))
    for line in unwatched_lines(path for path in catalogue.paths() if catalogue.lives(path)):
        click.echo(line)


def _far_entries(hosts: str | None, via: str | None) -> tuple[list[RunEntry], bool]:
    """Return the runs of other hosts, newest first, and whether a host could not be reached."""
    from monitor.remote import targets
    from monitor.runs.far_runs import listed

    names = list(targets.configured()) if hosts == "all" else [name for name in (hosts or "").split(",") if name]
    if hosts == "all" and not names:
        raise UserError("no hosts are configured; write them under [hosts] in config.toml")
    if hosts is not None and not names:  # of a variable that is not set, as a rule
        raise UserError("--host names no host: --host HOST[,HOST...]")
    if via is not None and len(names) > 1 and "%h" not in via:
        raise UserError("--via leads to one host, or names it as %h")
    for name in names:
        if targets.HOST.fullmatch(name) is None:
            raise UserError(f"'{name}' is no host")
    wanted = [targets.target(name, via) for name in names] or [targets.target(None, via)]
    found = listed(wanted)
    for host in found:
        if host.error is not None:
            say(f"{host.target.host}: {host.error}")
    entries = [entry for host in found for entry in host.entries]
    return sorted(entries, key=lambda entry: entry.started or 0.0, reverse=True), any(host.error for host in found)


@click.command()
@click.argument("run")
@click.pass_context
def stop(context: click.Context, run: str) -> None:
    """Stop a training: SIGINT, after 30 s SIGTERM, after 30 s more SIGKILL."""
    from monitor.running.stopping import stop_training
    from monitor.runs import catalogue

    if (code := done_there(run, ["stop"])) is not None:
        context.exit(code)
    stopped = stop_training(catalogue.resolve(run), say)
    context.exit(0 if stopped else 1)


@click.command()
@click.argument("run", required=False, metavar="[RUN]", type=RunName())
@click.option("--full", "form", flag_value="full", help="All of it: every finding, table and metric.")
@click.option("--json", "form", flag_value="json", help="As JSON, with stable keys.")
@click.option("--markdown", "form", flag_value="markdown", help="All of it as Markdown.")
@click.option(
    "--html",
    "page",
    metavar="FILE",
    type=click.Path(dir_okay=False, writable=True, allow_dash=True, path_type=Path),
    help="As one page for a browser that loads nothing from elsewhere; - is stdout.",
)
@click.option(
    "--svg",
    "picture_file",
    metavar="FILE",
    type=click.Path(dir_okay=False, writable=True, allow_dash=True, path_type=Path),
    help="The overview as a picture; - is stdout. Other screens: trainmon snapshot.",
)
@rank_option
@click.option("--against", metavar="RUN", type=RunName(), help="With --html: an earlier run to compare with.")
@click.option(
    "--what-if",
    "assumptions",
    multiple=True,
    metavar="PART=SHARE",
    help="Best-case speed, time and cost if PART took only this share of its time: data=0, forward=0.5. PART is a "
    "phase, a span, startup, between_steps or teardown; repeatable.",
)
def report(
    run: str | None,
    form: str | None,
    page: Path | None,
    picture_file: Path | None,
    rank: int | None,
    against: str | None,
    assumptions: tuple[str, ...],
) -> None:
    """Print a report of a run: how it goes, why it is slow, what to do, where the time went.

    RUN can also be a journal file; RUN#2 is the second training of its command.
    """
    from monitor import settings
    from monitor.reports import card, report_json, run_text, what_if_text

    settings.bounds()
    files = [name for name, file in (("html", page), ("svg", picture_file)) if file is not None]
    if len(forms := [*files, *([form] if form is not None else [])]) > 1:
        raise UserError(f"--{forms[0]} and --{forms[1]} are two forms of the report; ask for one at a time")
    if against is not None and page is None:
        raise UserError("--against goes with --html; in text: trainmon compare BEFORE AFTER")
    view = view_of(run, rank=rank)
    view_report = view.report
    if assumptions:
        try:
            view_report.what_if = what_if_text.assumed(view_report, assumptions)
        except what_if_text.BadAssumption as error:
            raise UserError(str(error)) from None
    if page is not None:
        _write_page(view, against, page)
    elif picture_file is not None:
        from monitor.tui.snapshot import picture

        write_out(picture(view), picture_file)
    elif form == "json":
        click.echo(report_json.as_json(view_report))
    elif form is None and not assumptions:
        click.echo(within_terminal(card.text(view), sys.stdout), nl=False)
    else:
        click.echo((run_text.markdown if form == "markdown" else run_text.text)(view_report), nl=False)


def _write_page(view: View, against: str | None, file: Path) -> None:
    from monitor.reports import html_report
    from monitor.runs.follow import compared

    comparison = None if against is None else compared(view_of(against, measured=False), view)
    write_out(html_report.page(view, comparison), file)


def view_of(run: str | None, measured: bool = True, rank: int | None = None) -> View:
    """Return the view of a run, or of a journal file.

    Args:
        rank: the one whose figures it has; None: the lowest.

    Raises:
        UserError: there is no such run, or no such rank of it.
    """
    return _view(*_source_of(run), measured, rank)


def _source_of(run: str | None) -> tuple[Path, int | None]:
    """Return a journal file, or the directory of a run with the place of one of its trainings."""
    from monitor.runs import catalogue

    if run and os.path.isfile(run):  # Path.is_file raises on a name that is too long
        return Path(run), None
    if run and ("/" in run or run.endswith(".jsonl")) and not os.path.exists(run):
        raise UserError(f"{run}: no such file; `trainmon ls` lists the runs")
    return catalogue.resolve_training(run)


def _view(path: Path, chosen: int | None, measured: bool, rank: int | None = None) -> View:
    from monitor.runs.follow import load
    from monitor.runs.replay import check_rank, recorded
    from monitor.sources.run_directory import ranks_of

    if path.is_file():
        return recorded(path, rank)
    if rank is not None:
        check_rank(rank, ranks_of(path), path.name)
    return load(path, measured, chosen, rank)


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN RUN...", type=RunName())
@click.option("--json", "form", flag_value="json", help="As JSON, with stable keys.")
@click.option("--markdown", "form", flag_value="markdown", help="As Markdown.")
@click.option(
    "--fail-slower",
    type=FiniteRange(min=0),
    metavar="PCT",
    help="Exit with 1 if a run is more than PCT percent slower than the first one, for certain: its whole interval.",
)
@click.pass_context
def compare(context: click.Context, runs: tuple[str, ...], form: str | None, fail_slower: float | None) -> None:
    """Compare runs with the first one: speed, phases, configuration. RUN can also be a journal file."""
    import json

    from monitor.reports import comparison
    from monitor.runs.follow import compared

    if len(runs) < 2:
        raise UserError("name at least two runs: trainmon compare BEFORE AFTER (`trainmon ls` lists them)")
    sources = [_source_of(named) for named in runs]
    first, *others = [_view(path, chosen, measured=False) for path, chosen in sources]  # a file may be no journal
    before, *after = [(path.resolve(), chosen) for path, chosen in sources]
    if before in after:
        raise UserError(f"{runs[0]} is both runs: name another one (`trainmon ls` lists them)")
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
            raise UserError(f"--fail-slower: cannot compare {pair}; name runs that have steps")
        context.exit(int(any(row.interval is not None and row.interval[0] > limit for row in rows)))


@click.command()
@click.argument("run", required=False, metavar="[RUN]", type=RunName())
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

"""The command `trace`: ask a running training for a trace of its next steps, and print what ran."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from monitor.commands.far_runs import done_there
from monitor.commands.showing import agreed
from monitor.errors import UserError, complain, say
from trainhooks.protocol.control import MAX_TRACED_STEPS, TraceRequest

if TYPE_CHECKING:
    from monitor.running.trace_requests import Accepted
    from trainhooks.protocol.events import Trace


@click.command()
@click.argument("run")
@click.option(
    "--steps", type=click.IntRange(1, MAX_TRACED_STEPS), default=3, show_default=True, help="Number of steps to trace."
)
@click.option(
    "--output",
    "-o",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write every recorded event to this file, as a trace for Perfetto or chrome://tracing.",
)
@click.option("--yes", is_flag=True, help="Ask no question, and replace the output file if it exists.")
@click.option("--json", "as_json", is_flag=True, help="As JSON: run, rank, and the trace as in `report --json`.")
@click.pass_context
def trace(context: click.Context, run: str, steps: int, output: Path | None, yes: bool, as_json: bool) -> None:
    """Trace the next steps of a running training, and print what ran.

    The training stands still for a moment when a trace ends. Where the trace may print something or leave something
    behind, one question comes first. Ctrl-C ends the waiting, not the training. Exits with 1 if the training refuses.
    """
    from monitor.running.trace_requests import Doubtful, NotTraced
    from monitor.runs import catalogue

    options = [f"--steps={steps}", *(["--yes"] if yes else []), *(["--json"] if as_json else [])]
    if output is None and (code := done_there(run, ["trace", *options])) is not None:
        context.exit(code)
    path = catalogue.resolve(run)
    _check_output(output, yes)
    try:
        try:
            _trace(path, TraceRequest(steps, output is not None, yes), output, as_json)
        except Doubtful as doubts:
            if not agreed(doubts.reasons, "Trace nevertheless?", "to trace nevertheless"):
                say("nothing was traced")
                context.exit(1)
            _trace(path, TraceRequest(steps, output is not None, True), output, as_json)
    except NotTraced as refused:
        context.exit(complain(str(refused), 1))
    except KeyboardInterrupt:
        say(f"no longer waited for; {path.name} goes on")
        raise


def _check_output(output: Path | None, may_replace: bool) -> None:
    """Refuse an output file before anything is traced.

    Raises:
        UserError: it exists, or its directory does not.
    """
    if output is None:
        return
    if os.path.lexists(output) and not may_replace:
        raise UserError(f"{output} exists; name another file, or add --yes to replace it")
    if not os.path.isdir(output.parent):
        raise UserError(f"{output.parent}: no such directory")


def _trace(path: Path, request: TraceRequest, output: Path | None, as_json: bool) -> None:
    from monitor.running.trace_requests import asked
    from monitor.units import plural

    with asked(path, request) as (accepted, connection):
        if accepted.steps and accepted.steps < request.steps:
            say(f"only {plural(accepted.steps, 'step', 'steps')}: more would record too much")
        event = accepted.wait(connection)
    _show(path, accepted, event, as_json)
    if output is not None:
        _write(accepted, event, output)


def _show(path: Path, accepted: Accepted, event: Trace, as_json: bool) -> None:
    from monitor.model.device.trace_report import trace_report
    from monitor.reports import listings, trace_sections

    traced = trace_report(event)
    if as_json:
        import msgspec

        encoded = msgspec.json.encode({"run": path.name, "rank": accepted.rank, "trace": traced})
        click.echo(msgspec.json.format(encoded, indent=2).decode())
    else:
        click.echo("\n".join(listings.plain_section(trace_sections.section(traced))))


def _write(accepted: Accepted, event: Trace, output: Path) -> None:
    from monitor.reports import perfetto
    from monitor.reports.perfetto import Unreadable
    from monitor.running.trace_requests import NotTraced
    from monitor.units import plural

    content = io.BytesIO()  # whole before anything is replaced
    try:
        count, left_out = perfetto.write(accepted.events_file, event, content)
    except Unreadable as error:
        raise NotTraced(f"{output} was not written: of the file of recorded events, {error}") from None
    replaced = os.path.lexists(output)
    try:
        output.write_bytes(content.getbuffer())
    except OSError as error:
        raise UserError(f"{output}: {error.strerror or error}") from None
    missing = f", {left_out:,} more were too many" if left_out else ""
    done = "replaced" if replaced else "written"
    say(f"{output} was {done}: {plural(count, 'event', 'events')}{missing}; open it in https://ui.perfetto.dev")

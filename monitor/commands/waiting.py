"""The command `wait`: block until something is true of a run, for scripts and for programs that watch a training."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from monitor.commands.far_runs import copied, is_here
from monitor.commands.showing import duration_option
from monitor.errors import UserError

if TYPE_CHECKING:
    from monitor.model.conditions import Condition
    from monitor.reports.waited import Waited

LOOK_SECONDS = 1.0  # between two looks at the run
START_SECONDS = 5.0  # for which a run of that name is waited for: `trainmon run` may have just been called


@click.command()
@click.argument("run", required=False)
@click.option(
    "--until",
    "texts",
    multiple=True,
    required=True,
    metavar="WHAT[,WHAT...]",
    help="What to wait for, the first of several that comes true: end (in any way), critical (a finding of that "
    "severity), step=5000, loss.below=2.0 or loss.above=9.5 of any metric (also 'metric:loss<2.0'), eta.below=10m of "
    "the time left (also 'eta<10m').",
)
@click.option(
    "--timeout", callback=duration_option, metavar="TIME", help="Give up after this time: 90s, 10m, 2h. Default: never."
)
@click.pass_context
def wait(context: click.Context, run: str | None, texts: tuple[str, ...], timeout: float | None) -> None:
    """Wait until something is true of a run, and print what happened: a line of text, a line of JSON.

    Exits with 0 once it is true, 3 after the timeout, 4 if the run ended or was lost before, 2 for a mistake. A run of
    a name that does not exist is waited for 5 s.
    """
    from monitor.model.conditions import BadCondition, read_conditions
    from monitor.remote import targets
    from monitor.reports.machine_output import encoded
    from monitor.reports.waited import EXIT_CODES

    try:
        wanted = read_conditions(texts)
    except BadCondition as error:
        raise UserError(f"--until: {error}") from None
    found = None if is_here(run) else targets.named(run)
    if found is not None:
        with copied(*found) as copy:
            waited = wait_for(copy, wanted, timeout)
    else:
        path, chosen = _resolved(run)
        waited = wait_for(path, wanted, timeout, chosen)
    click.echo(f"{waited.text}\n{encoded(waited)}")
    context.exit(EXIT_CODES[waited.result])


def _resolved(run: str | None) -> tuple[Path, int | None]:
    """Return the run that was named; give one that is being started the time to appear, and its program to exist."""
    from monitor.runs.catalogue import resolve_training
    from monitor.runs.run_files import identity

    until = time.monotonic() + START_SECONDS
    while True:
        try:
            path, chosen = resolve_training(run)
            known = identity(path)
            if "pid" in known or not known.get("launched") or time.monotonic() > until:
                return path, chosen
        except UserError:
            if not run or "/" in run or time.monotonic() > until:
                raise
        time.sleep(0.1)


def wait_for(
    path: Path,
    wanted: list[Condition],
    timeout: float | None,
    chosen: int | None = None,
    is_given_up: Callable[[], bool] = lambda: False,
) -> Waited:
    """Block until a condition holds, the run has ended, or `timeout` seconds have passed.

    Args:
        chosen: the place of the training to watch, where several ran under the run's command.
        is_given_up: asked at each look; the wait then ends as if its time were over.
    """
    from monitor.commands.progress import views
    from monitor.model.conditions import Conditions
    from monitor.reports.waited import make_waited

    began = time.monotonic()
    limit = float("inf") if timeout is None else began + timeout
    conditions = Conditions(wanted)
    for view in views(path, LOOK_SECONDS, chosen, limit):
        report, met = view.report, conditions.met(view.report)
        is_over = time.monotonic() >= limit or is_given_up()
        if met or is_over or report.outcome.state != "running":
            return make_waited(report, wanted, met, time.monotonic() - began)
    raise AssertionError("the last view of a run is that of its end")

"""The verb `run`: starts a training, shows it or passes its output through, and gives its exit code."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from monitor.errors import UserError, complain, say
from monitor.terminal import can_draw
from monitor.verbs.amounts import Amount
from monitor.verbs.watching import show, tell_way_back, watching_options
from trainhooks.facts import masked_config

if TYPE_CHECKING:
    from monitor.alerts.alerting import Alerting
    from monitor.running.launch import Ended, Front, Options
    from monitor.running.ties import Tie

ENDING_SECONDS = 5.0  # that the exit code may take after the screen has seen the end


def _tags(_context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    pairs = [tag.partition("=") for tag in given]
    for key, equals, _ in pairs:
        if not key or not equals:
            raise click.BadParameter(f"'{key}' is not of the form KEY=VALUE")
    return {key: str(value) for key, value in masked_config({key: value for key, _, value in pairs}).items()}


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--name", help="What to call the run; by default its script's name.")
@click.option("--no-tui", is_flag=True, help="No dashboard: pass the program's output through untouched.")
@click.option("--price", type=Amount(min=0), help="What the machine costs, in dollars an hour.")
@click.option("--expect-tps", type=Amount(min=0), help="Tokens a second that you expect.")
@click.option("--tag", "tags", multiple=True, metavar="K=V", callback=_tags, help="A note on the run; may be repeated.")
@click.option(
    "--pty",
    is_flag=True,
    help="Give the program a terminal, if it draws only on one. The price: trainmon's supervisor must then keep "
    "emptying it, so stopping that process stops the training, and killing it ends the training.",
)
@click.option(
    "--gpu-clock/--no-gpu-clock",
    default=None,
    help="Whether to time a sample of the steps on the GPU, too, by CUDA events. It does, unless you say no: at a cost "
    "of 0.5% of the step time at most.",
)
@click.option(
    "--gpu-delay/--no-gpu-delay",
    default=None,
    help="Whether to hold the GPU up for some milliseconds at the begin of a few timed steps (of rank 0, 5 s apart at "
    "least), so that kernels run back to back and show how busy usual steps keep it. It does not, unless you say so.",
)
@watching_options
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[--] COMMAND [ARG]...")
@click.pass_context
def run(
    context: click.Context,
    name: str | None,
    no_tui: bool,
    price: float | None,
    expect_tps: float | None,
    tags: dict[str, str],
    pty: bool,
    gpu_clock: bool | None,
    gpu_delay: bool | None,
    on_alert: str | None,
    bell: bool | None,
    low_bandwidth: bool,
    command: tuple[str, ...],
) -> None:
    """Start a training and watch it.

    The training goes on when the dashboard is left, the terminal is closed, or trainmon dies. Its exit code, or
    128 + the signal that ended it, is trainmon's. Without a terminal, or with --no-tui, its output passes through
    untouched, and a short report ends on stderr.
    """
    from monitor.alerts.alerting import wanted
    from monitor.running.launch import Options
    from monitor.settings import config

    if not command:
        click.echo(context.get_usage(), err=True)
        context.exit(2)
    alerting = wanted(bell, on_alert)
    low_bandwidth = config.slow_link(low_bandwidth)
    price = config.amount("run", "price") if price is None else price
    expect_tps = config.amount("run", "expect_tps") if expect_tps is None else expect_tps
    gpu_clock = config.switch("run", "gpu_clock") if gpu_clock is None else gpu_clock
    gpu_delay = config.switch("run", "gpu_delay") if gpu_delay is None else gpu_delay
    options = Options(name, can_draw() and not no_tui, pty, price, expect_tps, tags, gpu_clock, gpu_delay)
    context.exit(_run(list(command), options, alerting, low_bandwidth))


def _run(command: list[str], options: Options, alerting: Alerting, low_bandwidth: bool) -> int:
    from monitor.running.command import CannotRun, check
    from monitor.running.launch import start

    try:
        check(command)
        front = start(command, options)
    except CannotRun as error:
        return complain(str(error), error.code)
    except OSError as error:
        return complain(f"the run's directory cannot be made: {error}; set TRAINMON_DIR to where it can")
    if front.tie is not None and not front.stays and os.isatty(2):
        say(f"trainmon: {front.tie.text}")
    try:
        alerting.start(front.run)
    except UserError as error:
        complain(str(error))
    if options.dashboard:
        return _run_with_dashboard(front, alerting, low_bandwidth)
    ended = front.passthrough()
    _end_report(front.run, ended)
    return ended.status


def _run_with_dashboard(front: Front, alerting: Alerting, low_bandwidth: bool) -> int:
    how = show(front.run, low_bandwidth, alerting, front)
    if front.tie is not None and front.tie.to_us and front.poll() is None:
        return _stay(front, front.tie)
    if how is None:
        return 1
    ended = front.poll()
    until = time.monotonic() + ENDING_SECONDS
    while how == "ended" and ended is None and time.monotonic() < until:
        time.sleep(0.02)
        ended = front.poll()
    if how == "detach" or ended is None:
        tell_way_back(front.run)
        return 0
    _end_report(front.run, ended)
    return ended.status


def _stay(front: Front, tie: Tie) -> int:
    """Whoever left the dashboard did not mean to end the training; leaving would, here."""
    say(f"{tie.text}: so it stays until the training has ended; Ctrl-C is passed on")
    ended = front.wait()
    _end_report(front.run, ended)
    return ended.status


def _end_report(path: Path, ended: Ended) -> None:
    """A few lines on stderr about a run that is over."""
    try:
        from monitor.reports.text import short
        from monitor.runs.follow import load

        lines = short(load(path).report)
    except Exception as error:
        # The report is a courtesy. Whatever is wrong with it, the training's exit code has to get through.
        complain(f"{path.name} ended (code {ended.status}); no report: {type(error).__name__}: {error}")
        return
    say(lines.removesuffix("\n"))

"""The command `run`: start a training, show it or pass its output through, and exit with its exit code."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from monitor.commands.full_screen import can_draw
from monitor.commands.showing import (
    FiniteRange,
    duration_option,
    show,
    tell_how_to_attach,
    watching_options,
    within_terminal,
)
from monitor.errors import UserError, complain, say
from trainhooks.protocol.rundir import UnsafeDirectory
from trainhooks.protocol.secrets import mask_config

if TYPE_CHECKING:
    from monitor.alert_options import AlertOptions
    from monitor.commands.publishing import Publishing
    from monitor.guard import Guard
    from monitor.running.launch import Options
    from monitor.running.launched_training import Ended, LaunchedTraining
    from monitor.running.lifetime import LifetimeLimit


EXIT_CODE_SECONDS = 5.0  # wait for the exit code after the dashboard has seen the end


def _tags(_context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    pairs = [tag.partition("=") for tag in given]
    for key, equals, _ in pairs:
        if not key or not equals:
            raise click.BadParameter(f"'{key}' is not of the form KEY=VALUE")
    return {key: str(value) for key, value in mask_config({key: value for key, _, value in pairs}).items()}


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--name", help="Name of the run. Default: the name of its script.")
@click.option("--no-tui", is_flag=True, help="No dashboard; pass the program's output through unchanged.")
@click.option("--price", type=FiniteRange(min=0), help="Price of the machine in dollars per hour.")
@click.option("--expect-tps", type=FiniteRange(min=0), help="Expected tokens per second.")
@click.option("--tag", "tags", multiple=True, metavar="K=V", callback=_tags, help="Label for the run; repeatable.")
@click.option(
    "--pty",
    is_flag=True,
    help="Run the program on a pseudo-terminal, for programs that need one. Drawback: the supervisor process must then "
    "read all output, so stopping it blocks the training, and killing it ends the training.",
)
@click.option(
    "--gpu-clock/--no-gpu-clock",
    default=None,
    help="Time a sample of the steps on the GPU with CUDA events. On by default; costs at most 0.5% of the step time.",
)
@click.option(
    "--stop-on",
    metavar="WHAT[,WHAT...]",
    help="Stop the training on the first of these: a finding's code at warning or above (nonfinite-loss), for so long "
    "(stalled=20m), critical, cost=50 in dollars, ends-after=6h, step=5000, loss.above=9.5. First it keeps where each "
    "thread is, then it sends SIGINT and SIGTERM. trainmon then exits with 124.",
)
@click.option(
    "--stop-kill-after",
    metavar="TIME",
    callback=duration_option,
    help="Then send SIGKILL once the training has read and written nothing for so long. Default: 10m.",
)
@click.option(
    "--mirror",
    multiple=True,
    type=click.Choice(["wandb", "mlflow", "tensorboard", "trackio"]),
    help="Add step phases, speed, MFU and findings, as trainmon/..., to the run that the program has open there, "
    "along with what it logs itself; repeatable.",
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
    stop_on: str | None,
    stop_kill_after: float | None,
    mirror: tuple[str, ...],
    on_alert: str | None,
    bell: bool | None,
    low_bandwidth: bool,
    command: tuple[str, ...],
) -> None:
    """Start a training and watch it.

    The training continues if you leave the dashboard, close the terminal, or trainmon crashes. trainmon exits with the
    training's exit code, or with 128 + the signal that ended it. Without a terminal, or with --no-tui, the output
    passes through unchanged and a short report follows on stderr.
    """
    from monitor import settings
    from monitor.alert_options import alert_options
    from monitor.commands.publishing import Publishing
    from monitor.running.launch import Options

    def read() -> tuple[AlertOptions, bool, Options, Guard | None, Publishing]:
        """Return the command's options, completed by the configuration."""
        choices = (
            settings.amount("run", "price") if price is None else price,
            settings.amount("run", "expect_tps") if expect_tps is None else expect_tps,
            tags,
            settings.switch("run", "gpu_clock") if gpu_clock is None else gpu_clock,
            settings.switch("run", "trace"),
            settings.switch("run", "control"),
        )
        options = Options(name, can_draw() and not no_tui, pty, *choices, mirror)
        what = settings.words("run", "stop_on") if stop_on is None else stop_on
        guard = None if what is None else _guard(what, stop_kill_after, options.price is not None)
        alerting, publishing = alert_options(bell, on_alert), Publishing.configured()
        return alerting, settings.saves_bandwidth(low_bandwidth), options, guard, publishing

    if not command:
        click.echo(context.get_usage(), err=True)
        context.exit(2)
    try:
        alerting, low_bandwidth, options, guard, publishing = read()
    except (UserError, UnsafeDirectory) as error:
        settings.ignore()
        alerting, low_bandwidth, options, guard, publishing = read()  # raises where an option of the command is wrong
        if isinstance(error, UserError):  # a directory that cannot be used is reported when the run is made there
            complain(f"{error}; the defaults are used")
    context.exit(_run(list(command), options, alerting, low_bandwidth, guard, publishing))


def _guard(what: str, kill_after: float | None, has_price: bool) -> Guard:
    from monitor.guard import Guard  # with all rules: only where it is asked for

    return Guard.read(what, kill_after, has_price)


def _run(
    command: list[str],
    options: Options,
    alerting: AlertOptions,
    low_bandwidth: bool,
    guard: Guard | None,
    publishing: Publishing,
) -> int:
    from monitor.running.command import CannotRecord, CannotRun, check_executable
    from monitor.running.exec_state import drop_coerced_locale
    from monitor.running.launch import start

    drop_coerced_locale()
    try:
        check_executable(command)
        training = start(command, options)
    except CannotRun as error:
        return complain(str(error), error.code)
    except CannotRecord as error:
        complain(f"{error}; the program is started without trainmon")
        return _become(command)
    if training.lifetime_limit is not None and not training.must_outlive_training and os.isatty(2):
        say(f"trainmon: {training.lifetime_limit.text}")
    if training.unrecorded is not None:
        complain(f"the output is not recorded: {training.unrecorded}")
    mirroring = [_start_mirror] if options.mirror else []
    guarding = [guard.start] if guard is not None else []
    for start_process in (alerting.start, publishing.start, *guarding, *mirroring):
        try:
            start_process(training.run)
        except UserError as error:
            complain(str(error))
    status = _run_to_end(training, options, alerting, low_bandwidth)
    return status if guard is None else guard.status(training.run, status)


def _start_mirror(run: Path) -> None:
    from monitor.running.command import start_beside

    try:
        start_beside("monitor.mirror", str(run))
    except OSError as error:  # too many processes, or no memory
        raise UserError(f"--mirror: {error.strerror or error}; the training goes on without it") from None


def _run_to_end(training: LaunchedTraining, options: Options, alerting: AlertOptions, low_bandwidth: bool) -> int:
    if options.dashboard:
        return _run_with_dashboard(training, alerting, low_bandwidth)
    ended = training.passthrough()
    if training.lost_output:
        from monitor.units import size

        complain(f"{size(training.lost_output)} of the output were not passed on: the disk was full")
    _end_report(training.run, ended)
    return ended.status


def _become(command: list[str]) -> int:
    """Replace this process by the program. Return an exit code only where that fails."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these, and the program would inherit that
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        return complain(f"{command[0]}: cannot start: {error.strerror}", 126)


def _run_with_dashboard(training: LaunchedTraining, alerting: AlertOptions, low_bandwidth: bool) -> int:
    how = show(training.run, low_bandwidth, alerting, training)
    if training.lifetime_limit is not None and training.lifetime_limit.this_process and training.poll() is None:
        return wait_in_place(training, training.lifetime_limit)
    if how is None:
        return 1
    ended = training.poll()
    until = time.monotonic() + EXIT_CODE_SECONDS
    while how == "ended" and ended is None and time.monotonic() < until:
        time.sleep(0.02)
        ended = training.poll()
    if how == "detach" or ended is None:
        tell_how_to_attach(training.run)
        return 0
    _end_report(training.run, ended)
    return ended.status


def wait_in_place(training: LaunchedTraining, limit: LifetimeLimit) -> int:
    """Wait for the training here: it would end with this process, and leaving the dashboard must not end it."""
    say(f"{limit.text}; waiting here until the training ends (Ctrl-C is passed to it)")
    ended = training.wait()
    _end_report(training.run, ended)
    return ended.status


def _end_report(path: Path, end: Ended) -> None:
    """Print a short report of a run that has ended on stderr. Of many tasks of a job, the first one speaks for all."""
    if end.status == 0 and os.environ.get("SLURM_STEP_ID") and os.environ.get("SLURM_PROCID", "0") != "0":
        return
    try:
        from monitor.reports.run_summary import short
        from monitor.runs import jobs
        from monitor.runs.follow import load

        view = load(path)
        view.report.run.id = jobs.gathered(path).name  # where more is said of all tasks
        lines = short(view)
    except Exception as error:
        # An error in the report must not change the exit code of the training.
        complain(f"{path.name} ended with exit code {end.status}; report failed: {type(error).__name__}: {error}")
        return
    say(within_terminal(lines.removesuffix("\n"), sys.stderr))

"""The `trainmon` command: one small function a verb. What is heavy is imported where it is needed."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from monitor import __version__, console_verbs, screen_verbs, verbs
from monitor.terminal import can_draw

if TYPE_CHECKING:
    from monitor.alerting import Alerting
    from monitor.launch import Ended, Front, Options
    from monitor.runs import RunEntry
    from monitor.ties import Tie

ENDING_SECONDS = 5.0  # that the exit code may take after the screen has seen the end
ON_ALERT = (
    "Run this command for each finding of severity warning or above that appears, grows worse or clears, and at the "
    "run's end: JSON on its stdin, no shell, at most one in 10 s, killed after 30 s. With `attach`: while it lasts."
)
BELL = "Ring the terminal's bell at an alert, and send a desktop notification where the terminal has them."
PAGE_WIDTH = 100  # columns; longer lines are hard to read


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="trainmon", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context) -> None:
    """See how a training runs, how fast, where the time goes, and why.

    Without a command, on a terminal: all runs, to open, compare, stop and replay.

    RUN is an id, the beginning of one, a name, a directory, or `last`, which is the default.
    """
    if context.invoked_subcommand is None:
        if not can_draw():
            raise click.exceptions.NoArgsIsHelpError(context)
        screen_verbs.browse()


# run


def _tags(_context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    pairs = [tag.partition("=") for tag in given]
    for key, equals, _ in pairs:
        if not key or not equals:
            raise click.BadParameter(f"'{key}' is not of the form KEY=VALUE")
    return {key: value for key, _, value in pairs}


@cli.command(context_settings={"allow_interspersed_args": False})
@click.option("--name", help="What to call the run; by default its script's name.")
@click.option("--no-tui", is_flag=True, help="No dashboard: pass the program's output through untouched.")
@click.option("--price", type=click.FloatRange(min=0), help="What the machine costs, in dollars an hour.")
@click.option("--expect-tps", type=click.FloatRange(min=0), help="Tokens a second that you expect.")
@click.option("--tag", "tags", multiple=True, metavar="K=V", callback=_tags, help="A note on the run; may be repeated.")
@click.option(
    "--pty",
    is_flag=True,
    help="Give the program a terminal, if it draws only on one. The price: trainmon's supervisor must then keep "
    "emptying it, so stopping that process stops the training, and killing it ends the training.",
)
@click.option("--on-alert", metavar="CMD", help=ON_ALERT)
@click.option("--bell/--no-bell", default=None, help=BELL)
@click.option("--low-bandwidth", is_flag=True, help="Redraw less, for a slow connection.")
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
    from monitor import config
    from monitor.alerting import wanted
    from monitor.launch import Options

    if not command:
        click.echo(context.get_usage(), err=True)
        context.exit(2)
    alerting = wanted(bell, on_alert)
    low_bandwidth = config.slow_link(low_bandwidth)
    price = config.amount("run", "price") if price is None else price
    expect_tps = config.amount("run", "expect_tps") if expect_tps is None else expect_tps
    options = Options(name, can_draw() and not no_tui, pty, price, expect_tps, tags)
    context.exit(_run(list(command), options, alerting, low_bandwidth))


def _run(command: list[str], options: Options, alerting: Alerting, low_bandwidth: bool) -> int:
    from monitor.command import CannotRun, check
    from monitor.launch import start
    from monitor.runs import UserError

    try:
        check(command)
        front = start(command, options)
    except CannotRun as error:
        return _complain(str(error), error.code)
    except OSError as error:
        return _complain(f"the run's directory cannot be made: {error}; set TRAINMON_DIR to where it can")
    if front.tie is not None and not front.tie.to_us and os.isatty(2):
        click.echo(f"trainmon: {front.tie.text}", err=True)
    try:
        alerting.start(front.run)
    except UserError as error:
        _complain(str(error))
    if options.dashboard:
        return _run_with_dashboard(front, alerting, low_bandwidth)
    ended = front.passthrough()
    _end_report(front.run, ended)
    return ended.status


def _run_with_dashboard(front: Front, alerting: Alerting, low_bandwidth: bool) -> int:
    how = _show(front.run, low_bandwidth, alerting, front)
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
        _tell_way_back(front.run)
        return 0
    _end_report(front.run, ended)
    return ended.status


def _stay(front: Front, tie: Tie) -> int:
    """Whoever left the dashboard did not mean to end the training; leaving would, here."""
    with contextlib.suppress(OSError):  # the terminal is gone
        click.echo(f"{tie.text}: so it stays until the training has ended; Ctrl-C is passed on", err=True)
    ended = front.wait()
    with contextlib.suppress(OSError):
        _end_report(front.run, ended)
    return ended.status


def _end_report(path: Path, ended: Ended) -> None:
    """A few lines on stderr about a run that is over."""
    try:
        from monitor.follow import load
        from monitor.reports.text import short

        lines = short(load(path).report)
    except Exception as error:
        # The report is a courtesy. Whatever is wrong with it, the training's exit code has to get through.
        _complain(f"{path.name} ended (code {ended.status}); no report: {type(error).__name__}: {error}")
        return
    click.echo(lines, nl=False, err=True)


# The dashboard


def _show(path: Path, low_bandwidth: bool, alerting: Alerting, front: Front | None = None) -> str | None:
    """Show the dashboard; "detach" or "ended", or None where it crashed, which has been said then."""
    how: str | None = None
    try:
        from monitor.follow import Follower
        from monitor.stop import stop_training
        from monitor.tui.app import TrainmonApp
        from monitor.tui.wishes import wishes

        def stop(say: Callable[[str], None]) -> None:
            stop_training(path, say)

        app = TrainmonApp(
            Follower(path),
            title=path.name,
            stop_training=stop,
            low_bandwidth=low_bandwidth,
            bell_at_alerts=alerting.bell,
            wishes=wishes(),
        )

        def end() -> None:
            if front is not None and front.told_to_end:
                app.call_from_thread(app.exit, "ended")

        if front is not None:
            front.watch(end)
        how = app.run()
        reason = "see above"
    except Exception as error:
        # Whatever is wrong with the screen, the training goes on, and the person has to learn that it does.
        reason = f"{type(error).__name__}: {error}"
    if how is None:
        _tell_way_back(path)
        _complain(f"the dashboard crashed ({reason}); the training is not affected")
    return how


def _tell_way_back(path: Path) -> None:
    click.echo(f"the training goes on; come back with: trainmon attach {path.name}", err=True)


# attach


@cli.command()
@click.argument("run", required=False)
@click.option("--once", is_flag=True, help="Print one screen as plain text and leave.")
@click.option("--json", "as_json", is_flag=True, help="A line of JSON a second, as `report --json`; ends with the run.")
@click.option("--on-alert", metavar="CMD", help=ON_ALERT)
@click.option("--bell/--no-bell", default=None, help=BELL)
@click.option("--low-bandwidth", is_flag=True, help="Redraw less, for a slow connection.")
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
    """Watch a run: the living one, or any other from its records.

    Without a terminal it prints a line of progress now and then, until the run ends.
    """
    from monitor import config, plain, recorder, runs
    from monitor.alerting import wanted

    path = runs.resolve(run) if run else _choose()
    alerting = wanted(bell, on_alert)
    recorder.ensure(path)
    if once:
        from monitor.follow import load
        from monitor.reports.as_json import as_line
        from monitor.reports.text import screen

        view = load(path)
        click.echo(as_line(view.report) + "\n" if as_json else screen(view), nl=False)
        return
    with alerting.while_attached(path):
        if as_json:
            plain.print_json(plain.views(path, plain.OBJECT_SECONDS))
        elif not can_draw():
            click.echo(f"no terminal to draw on: a line each {plain.LINE_SECONDS:g} s until the run ends", err=True)
            plain.print_progress(plain.views(path, plain.LINE_SECONDS))
        else:
            how = _show(path, config.slow_link(low_bandwidth), alerting)
            if how == "detach" and runs.state(path)[0] == "running":
                _tell_way_back(path)
            context.exit(1 if how is None else 0)


def _choose() -> Path:
    """The living run, asking which if there are several."""
    from monitor import runs

    live = runs.live_runs()
    if not live:
        raise runs.UserError("no training is running here; `trainmon attach last` shows the last one")
    if len(live) == 1:
        return live[0].path
    if not (os.isatty(0) and os.isatty(2)):
        named = ", ".join(entry.id for entry in live)
        raise runs.UserError(f"{len(live)} trainings are running: {named}; say which: trainmon attach RUN")
    for number, entry in enumerate(live, 1):
        click.echo(f"{number:3}  {entry.id}  {_speed(entry)}", err=True)
    chosen: int = click.prompt("Which one", type=click.IntRange(1, len(live)), default=1, err=True)
    return live[chosen - 1].path


# ls, stop, report, explain


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def ls(as_json: bool) -> None:
    """List the runs, newest first."""
    from monitor import runs

    entries = runs.list_runs()
    if as_json:
        import msgspec

        encoded = msgspec.json.encode(entries, enc_hook=str)
        click.echo(msgspec.json.format(encoded, indent=2).decode())
    elif not entries:
        click.echo("no runs yet; start one with: trainmon run -- python train.py", err=True)
    else:
        from monitor.reports.listing import listing

        click.echo(listing(entries))


@cli.command()
@click.argument("run")
@click.pass_context
def stop(context: click.Context, run: str) -> None:
    """Stop a training: SIGINT, after 30 s SIGTERM, after 30 s more SIGKILL."""
    from monitor import runs
    from monitor.stop import stop_training

    stopped = stop_training(runs.resolve(run), lambda line: click.echo(line, err=True))
    context.exit(0 if stopped else 1)


@cli.command()
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
    """Say how a run went, or how it stands."""
    from monitor import runs, speeds
    from monitor.follow import load
    from monitor.reports import as_json, text, what_if

    speeds.bounds()
    found = load(runs.resolve(run)).report
    if assumptions:
        try:
            found.what_if = what_if.assumed(found, assumptions)
        except what_if.BadAssumption as error:
            raise runs.UserError(str(error)) from None
    if form == "json":
        click.echo(as_json.as_json(found))
    else:
        click.echo((text.markdown if form == "markdown" else text.text)(found), nl=False)


@cli.command()
@click.argument("code", required=False)
def explain(code: str | None) -> None:
    """Say what a finding means, how it is detected, and what to do. Without CODE, list them."""
    from monitor.diagnosis import explain as pages
    from monitor.reports.pages import list_text, page_text
    from monitor.runs import UserError
    from trainhooks.events import clean

    drawn = sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("", "dumb")
    strong = functools.partial(click.style, bold=True) if drawn else None
    if code is None:
        click.echo(list_text(strong), nl=False)
    elif code in pages.CODES:
        width = min(PAGE_WIDTH, shutil.get_terminal_size((PAGE_WIDTH, 24)).columns)
        click.echo(page_text(pages.page(code), width, strong), nl=False)
    else:
        meant = pages.nearest(code)
        hint = f"did you mean {meant}?" if meant else "`trainmon explain` lists them all"
        raise UserError(f"there is no finding called '{clean(code, 60)}'; {hint}")


for verb in (verbs.compare, verbs.export, verbs.prune, verbs.doctor, console_verbs.lines, console_verbs.import_):
    cli.add_command(verb)
for verb in (screen_verbs.replay, screen_verbs.completion):
    cli.add_command(verb)


def _speed(entry: RunEntry) -> str:
    from monitor.reports.listing import standing

    return standing(entry)


# The console script


def _complain(message: str, code: int = 2) -> int:
    from trainhooks.events import clean

    click.echo(f"trainmon: {clean(' '.join(message.split()))}", err=True)
    return code


def main() -> NoReturn:
    """Run the command line; whatever the user got wrong ends in one line on stderr."""
    _open_what_is_closed()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal in an old encoding shows '?', not a traceback
    sys.exit(_main())


def _open_what_is_closed() -> None:
    """Where the caller closed stdin, stdout or stderr, point it at nothing, lest another file lands there."""
    for handle, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(handle)
        except OSError:
            nothing = os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
            setattr(sys, name, os.fdopen(nothing, "w" if handle else "r"))


def _main() -> int:
    from monitor.errors import UserError

    try:
        code = cli.main(prog_name="trainmon", standalone_mode=False)
        sys.stdout.flush()
    except UserError as error:
        return _complain(str(error))
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return 2
    except click.ClickException as error:
        help_of = getattr(getattr(error, "ctx", None), "command_path", "trainmon")
        return _complain(f"{error.format_message()} (see {help_of} --help)")
    except (KeyboardInterrupt, click.Abort):
        return 130
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    return code if isinstance(code, int) else 0

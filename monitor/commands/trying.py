"""The command `try`: put a promised gain to the test, in pairs of short runs."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from monitor.commands.showing import FiniteRange
from monitor.errors import UserError, say

if TYPE_CHECKING:
    from monitor.diagnosis.trial_candidates import Candidate
    from monitor.reports.tried import Tried, TriedSetting
    from monitor.running.isolation import Isolation
    from monitor.running.trial_runs import Length, Trial

MIN_PAIRS, DEFAULT_SECONDS = 5, 10.0
MAX_LISTED = 40  # paths shown before a confirmation
CONFIRMED = "run it"


@click.command(name="try", context_settings={"allow_interspersed_args": False})
@click.option(
    "--set",
    "given",
    multiple=True,
    metavar="NAME=VALUE[,...]",
    help="Settings to test together; repeat for further ones. Default: what the first run's findings advise.",
)
@click.option("--top", type=click.IntRange(1, 5), default=1, help="Test so many of the findings' settings. Default: 1.")
@click.option(
    "--pairs", type=click.IntRange(MIN_PAIRS, 100), default=MIN_PAIRS, help="Pairs of runs: 5, the least, by default."
)
@click.option("--seconds", type=FiniteRange(1, 3600), default=DEFAULT_SECONDS, help="Length of the first run's steps.")
@click.option("--steps", type=click.IntRange(min=10), help="Length of each run in steps. Default: by --seconds.")
@click.option(
    "--over",
    multiple=True,
    type=click.Path(exists=True, file_okay=False),
    help="One more directory that the program writes to; the changes are thrown away, too. Repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="As JSON, with stable keys.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[--] COMMAND [ARG]...")
@click.pass_context
def try_(
    context: click.Context,
    given: tuple[str, ...],
    top: int,
    pairs: int,
    seconds: float,
    steps: int | None,
    over: tuple[str, ...],
    as_json: bool,
    command: tuple[str, ...],
) -> None:
    """Test whether a setting makes a training faster: short runs with it and without it, in turn.

    Prints how many times as fast it is with a 95% interval, and what becomes of the loss. The number of runs is fixed
    beforehand. The program needs no change: num_workers, prefetch_factor, persistent_workers, pin_memory, threads,
    matmul_precision, cudnn_benchmark, fused, foreach, compile and others are set as it starts,
    batch_size by the argument that sets it.

    The runs leave nothing: what they write is thrown away, and they reach no network. Where the system does not permit
    that, the first run is one as always, and the others need a confirmation typed on a terminal.
    """
    from monitor.reports.machine_output import encoded
    from monitor.reports.tried import crowd_line, line
    from monitor.running.command import CannotRun, check_executable

    if not command:
        click.echo(context.get_usage(), err=True)
        context.exit(2)
    try:
        check_executable(command)
    except CannotRun as error:
        raise UserError(str(error)) from None
    if not sys.platform.startswith("linux"):
        raise UserError("try needs Linux")
    chosen = _candidates(given)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    from monitor.running.trial_runs import Length

    tried = _try(list(command), chosen, top, pairs, Length(seconds, steps), over)
    if as_json:
        click.echo(encoded(tried))
    else:
        for one in tried.tried:
            click.echo(line(one))
        if (crowd := crowd_line(tried)) is not None:
            click.echo(crowd)
        if not tried.tried:
            click.echo("no finding of the first run advises a setting that can be tested; name one with --set")


def _leave(number: int, _: object) -> NoReturn:
    raise SystemExit(128 + number)


def _candidates(given: tuple[str, ...]) -> list[Candidate]:
    from monitor.diagnosis.trial_candidates import Candidate
    from trainhooks.protocol.trial_settings import BadSetting, read_words

    try:
        return [Candidate(read_words(text)) for text in given]
    except BadSetting as error:
        raise UserError(f"--set: {error}") from None


def _try(
    command: list[str], chosen: list[Candidate], top: int, pairs: int, length: Length, over: tuple[str, ...]
) -> Tried:
    from dataclasses import replace

    from monitor.diagnosis.trial_candidates import candidates
    from monitor.reports.tried import Tried
    from monitor.running import isolation, trial_runs
    from monitor.running.command import masked_command

    with trial_runs.place() as where:
        wanted = isolation.Isolation(str(where), (str(where / "state"),), isolation.directories(over))
        refused = isolation.refusal(wanted)
        inside = wanted if refused is None else None
        if refused is not None:
            _need_terminal(refused)
        say("first run, as it is")
        first = trial_runs.run_trial(command, {}, length, where, inside, inside is None)
        if first.failed is not None:
            hint = _hint(first.failed, inside)
            raise UserError(f"{first.failed}{hint}")
        chosen = chosen or candidates(first.report)[:top]
        if not chosen:
            return Tried(masked_command(command), "step", first.steps, 0, inside is not None)
        if inside is None:
            _confirm(trial_runs.writes(where), pairs * (1 + len(chosen)))
        length = replace(length, steps=first.steps if length.steps is None else length.steps)
        tried, per, waited = _rounds(command, chosen, pairs, length, where, inside)
        _keep(tried)
        return Tried(masked_command(command), per, first.steps, pairs, inside is not None, waited, tried)


def _hint(failed: str, inside: Isolation | None) -> str:
    if inside is not None and "Read-only file system" in failed:
        return "; name the directory that it writes to with --over"
    return ""


def _rounds(
    command: list[str],
    chosen: list[Candidate],
    pairs: int,
    length: Length,
    where: Path,
    inside: Isolation | None,
) -> tuple[list[TriedSetting], str, float]:
    """Run baseline and candidates in turn, in each round in the other order.

    Returns:
        What they showed, per what, and the share of their time in which they waited for cores.
    """
    from statistics import fmean

    from monitor.running import trial_runs
    from monitor.units import times
    from trainhooks.protocol.trial_settings import words

    rounds: list[list[Trial | None]] = []
    failed: dict[int, str] = {}
    for number in range(pairs):
        row: list[Trial | None] = [None] * (1 + len(chosen))
        for at in sorted(range(len(row)), reverse=bool(number % 2)):
            if at in failed:
                continue
            settings = {} if at == 0 else chosen[at - 1].settings
            trial = trial_runs.run_trial(command, settings, length, where, inside, False)
            if trial.failed is None:
                row[at] = trial
            elif at:
                failed[at] = trial.failed
        rounds.append(row)
        if len(failed) == len(chosen):
            break
        ratios = [f"{words(one.settings)} {times(ratio)}" for one, ratio in _ratios(row, chosen)]
        say(f"pair {number + 1} of {pairs}: {', '.join(ratios) or 'not measured'}")
    done = [trial for row in rounds for trial in row if trial is not None]
    per = trial_runs.unit_of(done)
    waited = fmean(trial.loop.waited for trial in done) if done else 0.0
    return [_outcome(one, at + 1, rounds, per, failed.get(at + 1)) for at, one in enumerate(chosen)], per, waited


def _ratios(row: list[Trial | None], chosen: list[Candidate]) -> list[tuple[Candidate, float]]:
    from monitor.running.trial_runs import unit_of

    found = []
    for at, one in enumerate(chosen):
        before, after = row[0], row[at + 1]
        if before is not None and after is not None:
            per = unit_of([before, after])
            paces = before.pace(per), after.pace(per)
            if paces[0] is not None and paces[1] is not None:
                found.append((one, paces[0].seconds / paces[1].seconds))
    return found


def _outcome(
    candidate: Candidate, at: int, rounds: list[list[Trial | None]], per: str, failed: str | None
) -> TriedSetting:
    from monitor.model.comparison.paired import gain_of, loss_change
    from monitor.reports.tried import make_tried_setting

    seconds, losses, stops = [], [], 0
    for row in rounds:
        before, after = row[0], row[at]
        if before is None or after is None:
            continue
        paces = before.pace(per), after.pace(per)
        if paces[0] is None or paces[1] is None:
            continue
        seconds.append((paces[0].seconds, paces[1].seconds))
        stops += len(paces[0].stops) + len(paces[1].stops)
        steps = min(before.steps, after.steps)
        pair = before.loss(steps), after.loss(steps)
        if pair[0] is not None and pair[1] is not None:
            losses.append((pair[0], pair[1]))
    return make_tried_setting(candidate, gain_of(seconds), loss_change(losses), seconds, stops, failed)


def _keep(tried: list[TriedSetting]) -> None:
    from monitor.runs import promises

    for one in tried:
        if one.code is not None and one.faster is not None and one.failed is None:
            promises.keep(one.code, one.setting, one.promised, one.faster)


# Where the program cannot be isolated


def _need_terminal(why: str) -> None:
    from trainhooks.protocol.limits import clean

    text = f"the program cannot be isolated here ({clean(why.removeprefix('trainmon: '), 200)})"
    if not os.isatty(0) or not os.isatty(2):
        raise UserError(
            f"{text}, and its runs might overwrite or remove files; on a terminal, try shows what one run writes and"
            " asks"
        )
    say(f"{text}: the first run is one as always, and what it writes is then listed")


def _confirm(written: list[tuple[str, str]], runs: int) -> None:
    """Ask for a confirmation, typed as a whole, after a list of what one run wrote.

    Raises:
        UserError: it was not given.
    """
    from trainhooks.protocol.limits import clean

    directory = os.path.realpath(os.getcwd())
    outside = [(what, path) for what, path in written if not os.path.realpath(path).startswith(f"{directory}/")]
    say(f"the run changed {len(written)} paths, {len(outside)} of them outside {clean(directory, 200)}:")
    for what, path in (outside + [row for row in written if row not in outside])[:MAX_LISTED]:
        say(f"  {what} {clean(path, 200)}")
    if len(written) > MAX_LISTED:
        say(f"  and {len(written) - MAX_LISTED} more")
    say("files that a library's own C++ code or another program writes may be missing in this list")
    typed = click.prompt(
        f"{runs} more runs do the same; type '{CONFIRMED}' to go on", default="", show_default=False, err=True
    )
    if typed.strip() != CONFIRMED:
        raise UserError("not confirmed, nothing more was run")

"""How far a run is: steps, epoch and batch, the total, the time left, the cost."""

from __future__ import annotations

from monitor.console.reported import BY_EPOCHS, NOTE_PREFIX
from monitor.model.cycle import MIN_ITERATIONS
from monitor.model.report import Outcome, Progress, Wall
from monitor.model.state import MAX_SPAN_MARKS, RankState, RunState
from monitor.model.steps.time_left import iterations_left, stops, time_left
from monitor.model.wall_time import RunContext


def progress_of(state: RunState, context: RunContext, outcome: Outcome, wall: Wall) -> Progress:
    """Return how far the run is, how much is left and what it costs."""
    main = state.main
    ok, skipped = main.steps_ok, sum(main.skipped.values())
    done = main.start_step + ok + skipped
    total = _planned_steps(state)
    progress = Progress(
        steps_done=done,
        steps_total=total,
        steps_ok=ok,
        steps_skipped=skipped,
        skipped=dict(main.skipped),
        elapsed_seconds=wall.total,
    )
    progress.restarts, progress.steps_again = main.restarts, main.steps_again
    progress.by_epochs = main is state.console and NOTE_PREFIX + BY_EPOCHS in state.notes
    _set_place(state, progress, ok + skipped)
    if total:
        progress.fraction = min(1.0, done / total)
    if outcome.state == "running" and total is not None:
        left = _time_left(main, max(0, total - done), context.now)
        if left is not None:
            progress.eta_seconds, progress.eta_low, progress.eta_high = left
    if outcome.state == "running" and state.job_ends is not None:
        progress.limit_seconds = max(0.0, state.job_ends - context.now)
    price = context.identity.get("price")
    if isinstance(price, int | float) and wall.total is not None:
        progress.cost = price * wall.total / 3600
        if progress.eta_seconds is not None:
            progress.cost_total = price * (wall.total + progress.eta_seconds) / 3600
        elif outcome.state != "running":
            progress.cost_total = progress.cost
    return progress


def _set_place(state: RunState, progress: Progress, done: int) -> None:
    """Set the epoch and the batch: by the passes over a plain loop's loader, else as the program prints them."""
    main, printed = state.main, state.printed
    position = main.passes.position(done, main.latest.steps())
    if position is not None or main.passes.is_late:
        progress.epoch = main.passes.newest(done)
        progress.epochs_total = main.passes.epochs or _printed_epochs(state)
    if position is not None:
        progress.batch, progress.batches = position
    elif printed.place is not None and (main is state.console or _printed_total(state, done) is not None):
        progress.epoch, progress.epochs_total = printed.epoch, printed.epochs
        progress.batch, progress.batches = printed.place


def _printed_epochs(state: RunState) -> int | None:
    """Return the epochs that the program prints, where its epochs are the passes over the loader."""
    printed, passes = state.printed, state.main.passes
    epochs = printed.epochs
    return epochs if epochs is not None and printed.agrees_with(passes.number, epochs) else None


def _printed_total(state: RunState, done: int) -> int | None:
    """Return the printed total in steps of the main figures, where the printed steps are theirs."""
    main = state.main
    if main.restarts or main.source != "hooks":
        return None
    return state.printed.in_steps(main.timelines.steps_by, done)


MIN_STEPS_EACH = 2  # of an iteration: one of a single step has the pace of the steps


def _time_left(main: RankState, steps: int, now: float) -> tuple[float, float, float] | None:
    loop = main.iterations
    stretches = loop.stretches()
    done = sum(count for count, _ in stretches)
    if loop.begin is not None and len(stretches) >= MIN_ITERATIONS and done >= MIN_STEPS_EACH * len(stretches):
        # Rollouts are part of the time that is expected.
        return iterations_left(stretches, steps + loop.steps, now - loop.begin, round(done / len(stretches)))
    regular = stops(main.marks) if len(main.marks) < MAX_SPAN_MARKS // 2 else []  # of many, only the longest are kept
    passed = max(0.0, now - main.pace.end - main.wall.since_last_step) if main.pace.end is not None else 0.0
    return time_left(main.pace, steps, main.last_index, regular, passed)


def _planned_steps(state: RunState) -> int | None:
    """Return the planned steps, by the source of the main figures, else by a rank without steps; None: unknown."""
    main = state.main
    done = main.steps_ok + sum(main.skipped.values())
    if main.total_steps is not None and main.total_steps >= main.start_step + done:
        return main.total_steps  # steps beyond it show that it was an epoch's, or of one of several trainings
    planned = main.passes.total(done, main.latest.steps(), _printed_epochs(state))
    planned = _printed_total(state, done) if planned is None else planned
    if planned is not None:
        return main.start_step + planned
    return next(
        (
            rank_state.total_steps
            for _, rank_state in sorted(state.hooked.items())
            if rank_state.total_steps is not None and rank_state.total_steps >= done
        ),
        None,
    )

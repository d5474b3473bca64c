"""Printed positions beside counted steps: a total is taken where both move in accord, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from monitor import run_facts
from monitor.model.steps.printed_position import MAX_SAMPLES, Printed
from tests.model.conftest import Story, report_of
from trainhooks.protocol.events import Facts, Metrics
from trainhooks.protocol.facts import PrintedPosition


def printed(rows: list[tuple[float, int]], **known: int) -> Printed:
    position = Printed()
    for t, step in rows:
        position.take(PrintedPosition(step=step, **known), t)
    return position


def every(seconds: float) -> Callable[[float], float]:
    """Return a count of steps that take `seconds` each."""
    return lambda moment: float(max(0, int(moment / seconds + 1e-9)))


SECOND = every(1.0)


def test_same_count_gives_its_total() -> None:
    rows = [(float(t), t) for t in range(5, 40, 5)]
    assert printed(rows, total=300).in_steps(SECOND, 35) == 300


def test_epochs_of_equal_length_give_the_steps_of_all() -> None:
    rows = [(25.0, 1), (50.0, 2), (75.0, 3)]
    assert printed(rows, total=10).in_steps(SECOND, 75) == 250


def test_batches_of_accumulated_steps_are_divided() -> None:
    rows = [(float(t), 4 * t) for t in range(4, 60, 4)]
    assert printed(rows, total=960, batches=480).in_steps(SECOND, 56) == 240


@pytest.mark.parametrize(
    ("rows", "known"),
    [
        ([(20.0, 20), (40.0, 40)], {"total": 300}),  # two positions prove nothing
        ([(20.0, 20), (30.0, 23), (40.0, 40)], {"total": 300}),  # not in accord on the way
        ([(7.0, 1), (21.0, 2), (30.0, 3), (44.0, 4)], {"total": 10}),  # epochs, or episodes, of uneven length
        ([(20.0, 2), (40.0, 3), (60.0, 4)], {"total": 10}),  # printed when an epoch begins
        ([(float(t), 4 * t) for t in range(4, 60, 4)], {"total": 966, "batches": 483}),  # ends within a step
        ([(float(t), t) for t in range(5, 40, 5)], {"total": 30}),  # fewer than were done
        ([(float(t), t) for t in range(5, 40, 5)], {}),
        ([(float(t), 100 + t) for t in range(5, 40, 5)], {"total": 300}),  # resumed, by another count
    ],
)
def test_other_counts_give_none(rows: list[tuple[float, int]], known: dict[str, int]) -> None:
    assert printed(rows, **known).in_steps(SECOND, 35) is None


def test_what_passes_while_a_line_is_read_leaves_it_open() -> None:
    rows = [(t / 10, t) for t in range(5, 12)]
    assert printed(rows, total=300).in_steps(every(0.1), 11) is None


def test_memory_is_bounded_and_keeps_first_and_last() -> None:
    position = printed([(float(t), t) for t in range(1, 5000)], total=9000)
    assert len(position.samples) <= MAX_SAMPLES
    assert (position.samples[0].step, position.samples[-1].step) == (1, 4999)
    assert position.in_steps(SECOND, 4999) == 9000


def test_place_needs_epoch_and_batches() -> None:
    assert printed([(1.0, 18)], epoch=2, batch=18, batches=25).place == (18, 25)
    assert printed([(1.0, 18)], epoch=2).place is None
    assert printed([(1.0, 18)], epoch=2, batch=26, batches=25).place is None


@pytest.mark.parametrize("row", [None, [], "x", {"step": "9", "total": -4}, {"step": True}])
def test_malformed_rows_are_ignored(row: object) -> None:
    position = Printed()
    position.take(run_facts.read({"printed": row}).printed or PrintedPosition(), 1.0)
    assert (position.samples, position.total) == ([], None)


# Beside the steps of the hooks, in whichever order the journals are read


def told(steps: int, losses: list[float | str] | None = None) -> Story:
    """Steps of a second each, with the hooks' own loss."""
    hooks = Story("hooks")
    for index in range(steps):
        loss: dict[str, float | str] = {"loss": losses[index] if losses is not None else 37_000.0 + index}
        hooks.step_with({"metrics": loss}, forward=1.0)
    return hooks


def console(rows: list[dict[str, int]], losses: list[float] | None = None) -> Story:
    """A position printed each fifth second."""
    output = Story("console", source="console")
    for row in rows:
        output.wait(5.0).tell(Facts, facts={"printed": row})
    for step, loss in enumerate(losses or (), start=1):
        output.tell(Metrics, values={"loss": loss}, step=step)
    return output


ROWS = [
    {"step": at, "total": 75, "epoch": 1 + at // 25, "epochs": 3, "batch": at % 25, "batches": 25}
    for at in (5, 10, 15, 20)
]


def test_hooked_run_shows_printed_total_epoch_and_batch() -> None:
    for stories in ((told(20), console(ROWS)), (console(ROWS), told(20))):
        progress = report_of(*stories).progress
        assert (progress.steps_done, progress.steps_total) == (20, 75)
        assert (progress.epoch, progress.epochs_total, progress.batch, progress.batches) == (1, 3, 20, 25)


def test_position_that_counts_something_else_is_not_shown() -> None:
    uneven = [{**row, "step": step} for row, step in zip(ROWS, (2, 9, 11, 17), strict=True)]
    progress = report_of(told(20), console(uneven)).progress
    assert (progress.steps_total, progress.epoch, progress.batch) == (None, None, None)


def test_position_is_no_fact_of_the_program() -> None:
    assert "printed" not in report_of(told(20), console(ROWS)).run.facts.table


def test_printed_epochs_count_with_the_passes_over_the_loader() -> None:
    hooks = Story("hooks")
    for index in range(20):
        if index in (0, 10):
            hooks.tell(Facts, facts={"passes": {"number": 1 + index // 10, "batches": 10}})
        hooks.step(data=0.5, forward=0.5)
    row = {"step": 1, "epoch": 1, "epochs": 4}
    progress = report_of(hooks, console([row])).progress
    assert (progress.steps_total, progress.epochs_total) == (40, 4)
    assert report_of(hooks, console([{**row, "epoch": 3}])).progress.steps_total is None  # not the passes


def test_printed_loss_leads_over_the_tensor_that_the_hooks_saw() -> None:
    assert report_of(told(20), console([], [290.0, 289.0])).metrics["loss"].last == 289.0
    assert report_of(told(20), console([], [290.0])).metrics["loss"].last == 37_019.0  # a result at the end, perhaps


def test_loss_that_is_not_finite_is_not_hidden_by_a_printed_one() -> None:
    losses: list[float | str] = [1.0] * 19 + ["nan"]
    assert report_of(told(20, losses), console([], [290.0, 289.0])).metrics["loss"].nonfinite == 1

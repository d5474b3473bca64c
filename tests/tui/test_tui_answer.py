"""The first screen answers: the verdict and its fix, better or worse than the last run, what it learns by, its GPUs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import sample_job
import sample_lanes
import sample_views as views
from by_hand import text

from monitor.diagnosis.answer import answer
from monitor.diagnosis.verdict import NO_FINDING
from monitor.model.comparison.last_run import Standing
from monitor.model.report import Finding, Outcome, Rates
from monitor.model.signals import Signal
from monitor.model.view import PreviousRun, View
from monitor.runs.replay import recorded
from monitor.tui.panels import header
from monitor.tui.panels.base import ViewOptions
from monitor.tui.panels.curve_panels import Tokens

RECORDINGS = sorted((Path(__file__).parents[2] / "demo" / "recordings").glob("*.jsonl"))
SIZES = [(60, 15), (80, 24), (120, 35), (160, 45)]
BEGIN = 15  # characters that tell a text on a screen of 60 cells


def sequential() -> View:
    """The demo's own verdict, whose title fills a row of 120 cells."""
    title = "Sequential rewards: 17% of the time since the first step waits, for one call after the other"
    advice = "Score all completions of a step in one call, or in a pool of threads; keep their order."
    view = views.running()
    found = Finding(code="sequential-rewards", severity="warning", title=title, advice=advice, gain=view.verdict.gain)
    return replace(view, verdict=found, report=replace(view.report, findings=[found]))


def nothing_found() -> View:
    view = views.running()
    none = Finding(code=NO_FINDING, severity="info", title="59% of step time is generation; no bottleneck found")
    return replace(view, verdict=none, report=replace(view.report, findings=[], to_try=[]))


MADE = {path.stem: lambda path=path: recorded(path) for path in RECORDINGS}
MADE |= {"running": views.running, "ranks": views.eight_ranks, "sequential": sequential, "nothing": nothing_found}


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
async def test_the_verdict_and_its_fix_stand_on_the_first_screen(app_on, screen_text, make, size) -> None:
    view = make()
    said = answer(view.report, view.verdict)
    app = app_on(view)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        rows = [row for row in screen_text(app).split("\n") if row.startswith("▌")]
    assert said.title[:BEGIN] in rows[0], rows
    assert any(f"→ {said.fix[:BEGIN]}" in row for row in rows[1:]), rows
    assert all(row.strip(" ▌") for row in rows), "no empty row"


def against_last(view: View, slower: float) -> View:
    started = (view.report.run.started or 0.0) - 86400
    before = PreviousRun("rl-1", "rl", (), started, Standing(slower, slower / 1.05, slower * 1.05))
    return replace(view, previous_run=before)


@pytest.mark.parametrize(
    ("slower", "told"),
    [(1.5, "1.50x slower than the run of"), (1 / 1.06, "6% faster than"), (1.0, "as fast as the run")],
)
@pytest.mark.parametrize(("width", "height"), [(80, 6), (120, 7), (160, 8)])
def test_better_or_worse_than_the_last_run_is_told_beside_the_loss_and_the_gpus(
    options: ViewOptions, slower: float, told: str, width: int, height: int
) -> None:
    loss = Signal("loss", 0.412, "falling", 2.31)
    view = replace(against_last(views.running(), slower), signals=(loss,))
    (row,) = [row for row in text(header.header(view, options, width, height)).split("\n") if told in row]
    assert "loss 0.4120, falling from 2.31" in row and ("GPU 87% busy, 68 °C" in row or width == 80)
    shown = text(header.header(view, options, width, height))
    assert ("$2.75 of ~$7.57" if height < 8 else "of about $7.57") in shown and "ETA" in shown


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_a_run_has_one_speed_in_the_header_and_above_the_chart(options: ViewOptions, make: Callable[[], View]) -> None:
    view = make()
    above = text(Tokens("tokens").body(view, options, 80, 12)[:1])
    above = above.partition("in steps, as drawn")[0]
    rates = re.findall(r"[\d,.]+[KM]? tok/s", above)
    shown = text(header.header(view, options, 160, 8))
    assert bool(rates) == (view.report.throughput.tokens_per_second is not None), above
    assert all(rate.removesuffix(" tok/s") in shown for rate in rates), (above, shown)


def test_what_is_drawn_without_pauses_is_told_beside_the_rate_with_them(options: ViewOptions, tmp_path: Path) -> None:
    view = recorded(sample_lanes.write(tmp_path / "lanes.jsonl"))
    above = text(Tokens("tokens").body(view, options, 80, 12)[:1])
    assert "since the first step 189,758 tok/s  in steps, as drawn 206,829 tok/s" in above


def test_one_of_many_ranks_is_named_with_its_host_and_what_it_is_slow_in(tmp_path: Path) -> None:
    """By the host's clock, as nothing else is told: it waits for its own data and not for its GPU."""
    view = recorded(sample_job.write(tmp_path / "job.jsonl"))
    assert view.verdict.title.startswith("Straggler: rank 37 on h200-box-04 in data, others wait"), view.verdict.title
    assert "workers" in view.verdict.advice


def test_without_an_earlier_run_nothing_is_told_of_one(options: ViewOptions) -> None:
    shown = text(header.header(views.running(), options, 160, 8))
    assert "faster than" not in shown and "slower" not in shown and "as fast" not in shown


def test_ranks_that_train_on_batches_of_their_own_are_told_together(options: ViewOptions) -> None:
    view = views.eight_ranks()
    whole = view.report.throughput
    assert whole.tokens_per_second and whole.samples_per_second
    job = Rates(None, 8 * whole.tokens_per_second, 8 * whole.samples_per_second)
    view = replace(view, report=replace(view.report, throughput=replace(whole, job=job)))
    shown = text(header.header(view, options, 160, 8))
    assert "8 ranks: 2,91" in shown and "8 ranks: 6.1" in shown and "rank 0" not in shown, "eight times 365 and 0.767"
    assert "rank 0: 365 tok/s" in text(header.header(views.eight_ranks(), options, 160, 8)), "they may share a batch"


def test_a_small_screen_tells_what_is_wrong_in_place_of_numbers(options: ViewOptions) -> None:
    view = views.running()
    failed = replace(view, report=replace(view.report, outcome=Outcome("failed", 1, None, "ValueError: no data")))
    silent = replace(view, open=replace(view.open, silent_for=42.0))
    for shown, told in ((failed, "ValueError: no data"), (silent, "no heartbeat for 42 s"), (view, "ETA")):
        rows = text(header.header(shown, options, 60, 4)).split("\n")
        assert told in rows[1] and rows[2].startswith("▌") and rows[3].startswith("▌→")

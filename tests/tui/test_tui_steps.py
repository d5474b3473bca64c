"""The table of steps, and one step opened: what they say, and what stays in sight where there is little room."""

from dataclasses import replace
from itertools import pairwise

import pytest
import sample_views as views
from by_hand import BIG, press, text

from monitor.model.steps.series import Curve
from monitor.model.view import KindRow, View
from monitor.tui.panels.base import ViewOptions
from monitor.tui.screens.step_table import columns, ordered, step_lines
from monitor.tui.screens.steps_screen import KINDS_TITLE, STATUS_WIDTH, StepTable, step_detail


def old_and_new() -> View:
    """A long run: its first 600 steps are known as means of four, apart from a slow one."""
    view = views.running()
    curve = Curve([float(x) for x in range(0, 600, 4)], [2.0] * 150, [1.0] * 150, [3.0] * 150, 4, 640.0)
    steps = tuple(replace(step, index=step.index + 400) for step in view.details.steps)
    slow = [replace(view.report.slow_steps[0], step=90)]
    report = replace(view.report, slow_steps=slow)
    detail = replace(view.details, steps=steps)
    return replace(view, report=report, details=detail, step_seconds=curve, phase_seconds={"generation": curve})


def test_a_row_says_whether_it_is_a_step_or_a_stretch() -> None:
    lines = step_lines(old_and_new())
    single = [line for line in lines if line.count == 1]
    assert len(single) == 128 + 1 and single[0].step == 90 and single[0].slow is not None
    assert single[1].step == 487
    stretches = [line for line in lines if line.count > 1]
    assert stretches[0].name == "1–3" and stretches[1].name == "4–7"
    assert all(line.step + line.count == after.step for line, after in pairwise(stretches[:20])), "each step once"
    assert all(line.step + line.count <= 487 for line in stretches), "nothing is told twice"
    assert stretches[5].phases == {"generation": 2.0}


@pytest.mark.parametrize("falling", [False, True])
def test_the_table_sorts_by_any_column_and_unknown_comes_last(falling: bool) -> None:
    view = old_and_new()
    lines = step_lines(view)
    for by in columns(view, lines):
        values = [by.value(line) for line in ordered(lines, by, falling)]
        known = [value for value in values if value == value]
        assert known == sorted(known, reverse=falling)
        assert all(value != value for value in values[len(known) :])


async def test_an_opened_step_shows_all_that_is_known_and_says_what_is_not(app_on, screen_text) -> None:
    view = views.running()
    last = view.details.steps[-1]
    times = tuple(last.start + 0.2 * index for index in range(5))
    app = app_on(replace(view, console=view.console[-5:], console_times=times))
    async with app.run_test(size=(160, 60)) as pilot:
        await press(pilot, "s", "enter")
        shown = screen_text(app)
        for words in ("step 214", "generation", "median of its stage", "reward", "GPU 0   busy", "[step 214]",
                      "rl_code.py:118 sample", "all steps so far"):  # fmt: skip
            assert words in shown
        app_on.feed.push(old_and_new())
        await press(pilot, "escape", "home", "end", "enter")
        shown = screen_text(app)
        assert "mean of" in shown and "not kept" in shown


def test_the_first_column_is_as_wide_as_its_names() -> None:
    view = views.running()
    short, long = columns(view, step_lines(view)), columns(old_and_new(), step_lines(old_and_new()))
    assert short[0].width == len("step") + 2 and long[0].width == len("483–486") + 2


def test_an_opened_step_tells_what_the_run_has_had_and_whose_it_is(options: ViewOptions) -> None:
    view = views.eight_ranks()
    line = step_lines(view)[-1]
    shown = text(step_detail(line, view, options, 120))
    assert "  rank 0  stage hard  7,614 tokens" in shown and "run's max" in shown
    assert "422 tok/s within the step" in shown.replace("\u00a0", " "), "the head's is from step to step"
    phases = next(row for row in shown.split("\n") if row.startswith(" Phases"))
    first = next(row for row in shown.split("\n") if row.startswith("   generation "))
    assert phases.endswith("this step  median of its stage") and len(phases) == len(first)
    assert next(row for row in shown.split("\n") if "run's max" in row).split()[:3] == ["Metrics", "this", "step"]
    assert not any("stepm" in text(step_detail(line, view, options, width)) for width in range(30, 120))
    row = next(row for row in shown.split("\n") if " reward" in row).split()
    assert row == ["reward", *(f"{value:.4f}" for value in (views.reward(214), 0.3789, 0.1152, 0.5950))]
    assert "run's max" not in text(step_detail(line, view, options, 60))
    same = {"generation": [("a.py:1", 3)], "training": [("a.py:1", 9)], "execution": [("a.py:1", 3), ("b.py:2", 1)]}
    shown = text(step_detail(line, replace(view, details=replace(view.details, frames=same)), options, 120))
    assert "   generation, training\n      100% a.py:1" in shown and shown.count("a.py:1") == 2


def test_the_statistics_beside_a_value_are_of_its_series(options: ViewOptions) -> None:
    view = views.running()
    last = replace(view.details.steps[-1], role="trainer", metrics={"calls": 1, "reward": 0.5})
    curves = {"trainer/calls": views.curve_at({last.index: 4.0}), "calls": views.curve_at({last.index: 1.0}),
              "trainer/reward": views.curve_at({last.index: 0.5})}  # fmt: skip
    rows = {name: views.metric_row(each.mean) for name, each in curves.items()}
    detail = replace(view.details, steps=(last,))
    view = replace(view, report=replace(view.report, metrics=rows), metrics=curves, details=detail)
    shown = [row.split() for row in text(step_detail(step_lines(view)[-1], view, options, 120)).split("\n")]
    assert ["calls", *("1" * 4), *["no", "role"]] in shown
    assert ["reward", *["0.5000"] * 4] in shown


def test_a_metric_with_several_values_in_one_step_says_so(options: ViewOptions) -> None:
    view = views.running()
    line = step_lines(view)[-1]
    curve = replace(views.curve_at({line.step: 0.4}), low=[0.2], high=[0.5])
    shown = text(step_detail(line, replace(view, metrics={"reward": curve}), options, 120))
    assert shown.count("range in this step") == 1 and "range in this step: 0.2000 – 0.5000" in shown
    narrow = text(step_detail(line, replace(view, metrics={"reward": curve}), options, 80))
    assert "range in this step" not in narrow and "run's max" in narrow


def test_a_step_that_is_the_only_one_of_its_kind_has_nothing_usual(options: ViewOptions) -> None:
    view = views.running()
    line = step_lines(view)[-1]
    kind = KindRow(None, "hard", 1, 1, 18.0)
    alone = replace(view, details=replace(view.details, kinds=(kind,)))
    shown = text(step_detail(line, alone, options, 120)).split("\n")
    assert next(row for row in shown if row.startswith("   generation ")).endswith("  –")


def test_a_run_without_a_look_at_its_stack_says_that(options: ViewOptions) -> None:
    view = views.running()
    line = step_lines(view)[-1]
    without = replace(view, details=replace(view.details, frames={}))
    assert "no stack samples" in text(step_detail(line, without, options, 120))
    elsewhere = replace(view, details=replace(view.details, frames={"eval": [("a.py:1", 3)]}))
    assert "phases this short" in text(step_detail(line, elsewhere, options, 120))


@pytest.mark.parametrize("width", range(40, 120))
def test_no_row_ends_between_a_number_and_its_unit(options: ViewOptions, width: int) -> None:
    view = views.eight_ranks()
    line = step_lines(view)[-1]
    shown = text(step_detail(line, view, options, width))
    assert all(words in shown for words in ("7,614 tokens", "16 samples", f"{line.rate:.0f} tok/s"))
    assert line.tokens is not None and line.rate == line.tokens / line.seconds, "a pause before it is none of its work"


@pytest.mark.parametrize("width", [36, 58, 78, 118, 158, 238])
def test_a_long_name_is_shortened_before_a_column_goes(options: ViewOptions, width: int) -> None:
    view = views.running()
    table = StepTable()
    table._update_lines(view, options)
    shown, status = table._placed(width)
    names = [each.column.title for each in shown]
    every = [each.title for each in table._columns]
    assert names == every[: len(names)], "the largest phases first"
    assert 4 + sum(each.width for each in shown) + status <= width
    assert status >= STATUS_WIDTH or width < 40
    hidden = len(every) - len(names) + (status < len(KINDS_TITLE))
    assert text([table._more(view, width)]) == (f"→ {hidden} more columns  " if hidden else "")
    assert (hidden == 0) == (width >= 158)
    titles = text(table.fixed(view, options, width))
    assert ("…" in titles) == (width < 118), "the room between titles goes before a part of one"
    assert ("reward" in titles) == (width >= 158)
    view = replace(view, details=replace(view.details, steps=(replace(view.details.steps[-1], metrics=None),)))
    table = StepTable()
    table._update_lines(view, options)
    assert text([table._more(view, 118)]) == "Enter: details of a step  "


async def test_the_table_sorts_by_what_the_training_is_about(app_on, screen_text) -> None:
    app = app_on(views.running())
    async with app.run_test(size=BIG) as pilot:
        await press(pilot, "s", "left")
        rows = screen_text(app).split("\n")
        at = next(index for index, row in enumerate(rows) if "reward↓" in row)
        assert "0.5950" in rows[at + 1]


def test_the_state_of_a_step_has_a_place_on_a_narrow_screen_too(options: ViewOptions) -> None:
    view = views.running()
    table = StepTable()
    for width in (58, 78, 118):
        rows = [text(table.entry(key, view, options, width, False)) for key in table.keys(view, options)]
        assert sum("skipped" in row for row in rows) == 3 and sum("▲ " in row[10:] for row in rows) == 3
        assert all(len(row) <= width for row in rows)


async def test_only_slow_and_skipped_steps_on_demand(app_on, screen_text) -> None:
    app = app_on(views.running())
    async with app.run_test(size=BIG) as pilot:
        await press(pilot, "s", "x")
        shown = screen_text(app)
        assert "skipped: empty code generated" in shown and "slow: generation grew most" in shown
        assert " 213 " not in shown and "6 single steps" in shown


async def test_the_selected_step_stays_while_others_come(app_on, screen_text) -> None:
    app = app_on(views.running(200))
    async with app.run_test(size=BIG) as pilot:
        await press(pilot, "s", "down", "down")
        app_on.feed.push(views.running(205))
        await press(pilot)
        chosen = next(line for line in screen_text(app).split("\n") if "▶" in line)
        assert " 198 " in chosen

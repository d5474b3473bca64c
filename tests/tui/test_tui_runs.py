"""The screen of all runs: what it shows, and what its keys do."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import sample_views as views
from sample_fleet import HandRuns, entry, fleet

from monitor import run_facts
from monitor.model.comparison.overlays import Overlay
from monitor.model.report import MetricRow
from monitor.runs.fleet import Group, Row, grouped, regrouped, sampled_pace, with_typical_speed
from monitor.runs.run_filter import matches
from monitor.tui.drawing.rows import Row as Spans
from monitor.tui.drawing.rows import row_width
from monitor.tui.drawing.run_preview import MIN_PREVIEW_ROWS, preview
from monitor.tui.drawing.runs_rows import below, footer, layout
from monitor.tui.panels.curve_panels import CHART_GUTTER
from monitor.tui.runs_app import RunsApp, StopQuestion
from monitor.tui.screens.compare_screen import CompareScreen, RunsCompared, overlay_rows

SIZES = [(200, 60), (160, 45), (80, 24), (60, 15), (20, 5)]


class Told:
    """What the app asked of the world."""

    def __init__(self, groups: list[Group] | None = None) -> None:
        self.compared: list[list[Path]] = []
        self.stopped: list[Path] = []
        self.app = RunsApp(HandRuns(fleet() if groups is None else groups), self.compare, self.stop)

    def compare(self, paths: list[Path]) -> RunsCompared:
        self.compared.append(paths)
        low, high = (views.curve([top / step for step in range(1, 41)]) for top in (1.0, 4.0))
        return RunsCompared("2.10x slower [/b]", ("lr-0", "lr-2 [b]"), (Overlay("loss", low, high),))

    def stop(self, path: Path, say) -> bool:
        self.stopped.append(path)
        say("sent SIGINT")
        return True


async def settled(app: RunsApp, pilot) -> None:
    await pilot.pause(0.05)
    await app.workers.wait_for_complete()
    for _ in range(3):
        await pilot.pause()


@pytest.mark.parametrize("size", SIZES)
async def test_it_holds_at_every_size(screen_text, size) -> None:
    told = Told()
    async with told.app.run_test(size=size) as pilot:
        await settled(told.app, pilot)
        lines = screen_text(told.app).split("\n")
        assert all(len(line) <= size[0] for line in lines)
        assert "\x1b" not in "".join(lines)
        if size[0] >= 60:
            assert "pulsar" in "".join(lines)


async def test_what_it_shows(screen_text) -> None:
    told = Told()
    async with told.app.run_test(size=(200, 30)) as pilot:
        await settled(told.app, pilot)
        text = screen_text(told.app)
    assert "5 runs, 1 running" in text
    assert "sweep: 3 runs, 4 planned, 3 finished" in text
    assert "▸  pulsar" in text and "● running" in text and "✖ failed" in text
    assert "200/600" in text
    assert "[/b]" in text


async def test_only_a_living_run_offers_to_be_stopped(screen_text) -> None:
    told = Told()
    async with told.app.run_test(size=(160, 30)) as pilot:
        await settled(told.app, pilot)
        assert "k stop" in screen_text(told.app)
        await pilot.press("end")
        assert "k stop" not in screen_text(told.app) and "r replay" in screen_text(told.app)


@pytest.mark.parametrize("width", [80, 120, 160])
def test_the_preview_says_what_its_speeds_are_over_and_how_long_it_has_run(width: int) -> None:
    pulsar = next(run for group in fleet() for run in group.rows if run.living)
    shown = "\n".join("".join(part for part, _ in row) for row in preview(pulsar, width, 20))
    assert re.search(r"1\d\.\d s/it now, 18\.1 s/it since the first step", shown) and "1 h 2 min elapsed" in shown
    assert "99% of the median steps/s" in shown and "$2.56 of about" in shown
    assert "bar = about" in shown and all(row_width(row) <= width for row in preview(pulsar, width, 20))
    assert shown.count("elapsed") == 1 and "means 368 ms – 28.4 s" in shown


def test_the_preview_says_how_a_run_failed_where_no_error_was_told() -> None:
    evil = next(run for group in fleet() for run in group.rows if run.entry.state == "failed")
    assert "failed: exit code 1" in "\n".join("".join(part for part, _ in row) for row in preview(evil, 80, 20))


async def test_what_is_unknown_has_one_sign_and_a_share_says_of_what_it_is(screen_text) -> None:
    told = Told()
    async with told.app.run_test(size=(160, 20)) as pilot:
        await settled(told.app, pilot)
        rows = screen_text(told.app).split("\n")
    assert "speed against" in rows[2] and "99% of past runs" in rows[3]
    head, failed = rows[2], next(row for row in rows if "failed" in row)
    assert all(failed[: head.index(name) + len(name)].endswith(" –") for name in ("elapsed", "cost"))


@pytest.mark.parametrize(("width", "marked"), [(200, 3), (80, 0), (80, 3), (60, 12)])
def test_how_to_leave_is_in_sight_and_how_many_are_compared(width: int, marked: int) -> None:
    shown = "".join(part for _, key in footer(width, marked) for part, _ in key)
    assert "q quit" in shown and ("k stop" in shown) and len(shown) <= width
    assert (f"c compare {marked}" in shown) == (marked > 1)


async def test_a_narrow_list_has_the_time_that_is_left_beside_the_steps(screen_text) -> None:
    told = Told()
    async with told.app.run_test(size=(60, 15)) as pilot:
        await settled(told.app, pilot)
        line = next(line for line in screen_text(told.app).split("\n") if "pulsar" in line)
    assert "200/600  33%    2 h 0 min" in line


@pytest.mark.parametrize("step", [7, 999_999])
def test_a_million_steps_are_not_cut_and_the_column_does_not_move(step: int) -> None:
    row = replace(entry("long", "running"), step=step, steps_total=1_000_000)
    groups = grouped(with_typical_speed([(row, None)]))
    _, columns = layout(groups, 100)
    assert columns[0].head == "steps" and columns[0].width == len("1,000,000/1,000,000 100%")


@pytest.mark.parametrize("size", [(200, 60), (120, 40), (80, 24)])
async def test_what_is_known_of_the_chosen_run_stands_below_the_list(screen_text, size) -> None:
    told = Told()
    async with told.app.run_test(size=size) as pilot:
        await settled(told.app, pilot)
        shown = screen_text(told.app)
        for words in (
            "─ pulsar ─",
            "Generation takes 58%",
            "step 200 of 600",
            "197 ok, 3 skipped",
            "did no work",
            "python t.py",
        ):
            assert words in shown
        await pilot.press("down")
        assert "verdict" not in screen_text(told.app), "the head of a group"
        await pilot.press("down")
        assert "─ lr-0 ─" in screen_text(told.app) and "step 600 of 600" in screen_text(told.app)
        await pilot.press("end")
        assert "python t.py" in screen_text(told.app) and "verdict" not in screen_text(told.app)


@pytest.mark.parametrize("width", [20, 60, 80, 200])
@pytest.mark.parametrize("height", range(4, 30, 3))
def test_the_preview_keeps_to_its_place(width: int, height: int) -> None:
    for group in fleet():
        for run in group.rows:
            rows = preview(run, width, height)
            assert len(rows) <= height and all(row_width(row) <= width for row in rows)
            assert bool(rows) == (height >= MIN_PREVIEW_ROWS)


@pytest.mark.parametrize("height", [1, 8, 24, 60])
def test_lines_below_the_runs_take_a_quarter_at_most_and_tell_what_they_leave_out(height: int) -> None:
    rows = below(["not watched:", *(f"  trainmon attach --pid {pid}" for pid in range(10, 22))], 40, height)
    assert len(rows) <= height // 4 and all(row_width(row) <= 40 for row in rows)
    if 0 < len(rows) < 13:
        assert f"and {14 - len(rows)} more: trainmon ls" in rows[-1][0][0]
    assert below([], 40, height) == []


def test_step_times_are_kept_as_means_of_stretches() -> None:
    assert sampled_pace([1.0, 2.0, float("nan"), 4.0, 5.0, 6.0], 3) == (1.5, 4.0, 5.5)
    assert sampled_pace([1.0, 2.0], 9) == (1.0, 2.0) and sampled_pace([], 9) == sampled_pace([float("nan")], 9) == ()


async def test_an_end_that_nobody_saw_is_called_no_success(screen_text) -> None:
    unseen = replace(entry("alone"), exit_code=None)
    told = Told(grouped(with_typical_speed([(unseen, None), (entry("seen"), None)])))
    async with told.app.run_test(size=(120, 20)) as pilot:
        await settled(told.app, pilot)
        text = screen_text(told.app)
    assert text.count("✔ finished") == 1 and text.count("? ended") == 1


async def test_no_runs_say_how_to_start_one(screen_text) -> None:
    told = Told([])
    async with told.app.run_test(size=(60, 15)) as pilot:
        await settled(told.app, pilot)
        assert "trainmon run -- python train.py" in screen_text(told.app)
        await pilot.press("enter", "space", "c", "k", "down")
        assert told.app.is_running


@pytest.mark.parametrize(("key", "what"), [("enter", "open"), ("r", "replay")])
async def test_a_run_is_opened(key: str, what: str) -> None:
    told = Told()
    async with told.app.run_test(size=(120, 20)) as pilot:
        await settled(told.app, pilot)
        await pilot.press("down", "down", key)  # past the head of the group
    assert told.app.return_value == (what, Path("/runs/lr-0"))


async def test_the_marked_ones_are_compared_the_oldest_first(screen_text) -> None:
    told = Told()
    async with told.app.run_test(size=(160, 30)) as pilot:
        await settled(told.app, pilot)
        await pilot.press("c")
        assert not told.compared  # nothing is marked
        await pilot.press("down", "space", "c")  # the head of the group marks its members
        await settled(told.app, pilot)
        assert isinstance(told.app.screen, CompareScreen)
        assert told.compared == [[Path(f"/runs/lr-{n}") for n in (2, 1, 0)]]
        shown = screen_text(told.app)
        assert "2.10x slower [/b]" in shown
        assert "loss" in shown and "lr-2 [b]" in shown and "step 1" in shown and "⠒" in shown, shown


def test_curves_of_two_runs_have_one_scale() -> None:
    """Half the loss is drawn half as high, and a run of half the steps reaches half as far."""
    overlay = Overlay("loss", views.curve([2.0] * 20), views.curve([4.0] * 40))
    rows = overlay_rows(overlay, ("a", "b"), 80)[1:-1]
    before, after = (
        [
            (x, y)
            for y, row in enumerate(rows)
            for x, (sign, own) in enumerate(cells(row))
            if own == tone and sign.strip("⠀ ")
        ]
        for tone in ("muted", "accent")
    )
    before = [(x, y) for x, y in before if x >= CHART_GUTTER]  # beside the labels
    assert max(y for _, y in after) < min(y for _, y in before), "the larger one is above"
    assert max(x for x, _ in after) > 1.5 * max(x for x, _ in before)


def cells(row: Spans) -> list[tuple[str, str]]:
    return [(sign, tone) for text, tone in row for sign in text]


@pytest.mark.parametrize(
    ("keys", "stopped"), [(("y",), True), (("n",), False), (("escape",), False), (("enter",), False)]
)
async def test_a_training_is_stopped_after_asking(keys: tuple[str, ...], stopped: bool) -> None:
    told = Told()
    async with told.app.run_test(size=(120, 30)) as pilot:
        await settled(told.app, pilot)
        await pilot.press("k")
        assert isinstance(told.app.screen, StopQuestion)
        await pilot.press(*keys)
        await settled(told.app, pilot)
    assert told.stopped == ([Path("/runs/pulsar")] if stopped else [])


async def test_only_what_runs_can_be_stopped() -> None:
    told = Told()
    async with told.app.run_test(size=(120, 30)) as pilot:
        await settled(told.app, pilot)
        await pilot.press("end", "k")
        assert not isinstance(told.app.screen, StopQuestion)


async def test_the_cursor_stays_with_its_run_when_another_comes() -> None:
    told = Told()
    app = told.app
    async with app.run_test(size=(120, 30)) as pilot:
        await settled(app, pilot)
        await pilot.press("down", "down")
        newer = grouped(with_typical_speed([(entry("newest", "running"), None)]))
        app.list.set_groups([*newer, *fleet()], False)
        assert app.list.selected_line().path == Path("/runs/lr-0")
        app.list.set_groups(newer, False)  # and where its run is gone, it is on one that is there
        assert app.list.selected_line().path == Path("/runs/newest")


async def test_an_equal_look_draws_nothing(monkeypatch) -> None:
    told = Told()
    async with told.app.run_test(size=(120, 30)) as pilot:
        await settled(told.app, pilot)
        drawn = []
        monkeypatch.setattr(told.app.list, "refresh", lambda *regions, **_: drawn.append(regions))
        told.app.list.set_groups([replace(group) for group in fleet()], False)
        assert not drawn


CONFIG = {"config": {"lr": 0.001, "optim": {"betas": "0.9"}}}


def row_of(name: str, lr: str | None = None, facts: dict | None = None, state: str = "finished", steps: int = 9) -> Row:
    known = replace(entry(name, state), tags={} if lr is None else {"lr": lr}, step=steps)
    if facts is None:
        return Row(known)
    told = views.running(30).report
    run = replace(told.run, facts=run_facts.read(facts))
    return Row(known, replace(told, run=run, metrics={"loss": MetricRow(0.5, 0.5, 0.5, 0.5, 1, 0)}))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "abcd"), ("a-id", "a"), ("state:fail", "c"), ("state=fail", ""), ("lr>=1e-3", "bd"), ("lr<0.001", "a"),
        ("lr=0.0010", "bd"), ("lr!=1e-3", "ac"), ("loss<1", "d"), ("loss<1 lr>1", ""), ("betas:0.9", "d"),
        ("steps>=50", "c"), ("unknown>1", ""), ("lr=", "ab"), ("NAME:B", "b"), ("lr>x", ""), (">=", ""),
    ],
)  # fmt: skip
def test_a_filter_has_words_and_conditions(text: str, expected: str) -> None:
    rows = [
        row_of("a", "1e-4"), row_of("b", "1e-3"), row_of("c", state="failed", steps=50), row_of("d", facts=CONFIG),
    ]  # fmt: skip
    assert "".join(row.entry.name for row in rows if matches(row, text)) == expected


async def test_the_list_is_filtered_and_grouped(screen_text) -> None:
    told = Told()
    async with told.app.run_test(size=(160, 30)) as pilot:
        await settled(told.app, pilot)
        number = len([line for line in told.app.list.lines if line.run is not None])
        await pilot.press("slash", *"pulsar", "q", "backspace", "enter")
        await settled(told.app, pilot)
        shown = [line.run.entry.name for line in told.app.list.lines if line.run is not None]
        assert shown and all("pulsar" in name for name in shown) and "find: pulsar" in screen_text(told.app)
        await pilot.press("escape", "slash", *"[/none]", "enter")
        assert "no run matches" in screen_text(told.app)
        await pilot.press("escape")
        for _ in range(12):  # through all ways, back to the first
            await pilot.press("b")
            assert len([line for line in told.app.list.lines if line.run is not None]) == number
        await pilot.press("question_mark")
        await settled(told.app, pilot)
        assert "Compare the marked runs" in screen_text(told.app)


def test_runs_are_grouped_by_their_program_or_a_tag() -> None:
    runs = {
        "a": ({"lr": "1"}, ("python", "x/train.py", "--lr", "1")),
        "b": ({"lr": "1"}, ("python", "train.py")),
        "c": ({}, ("torchrun", "-m", "pkg.train")),
    }
    rows = [Row(replace(entry(name), tags=tags, command=command)) for name, (tags, command) in runs.items()]
    assert {group.name: len(group.rows) for group in regrouped(rows, "command")} == {"train.py": 2, None: 1}
    assert {group.name: len(group.rows) for group in regrouped(rows, "lr")} == {"lr=1": 2, None: 1}
    assert [group.name for group in regrouped(rows, "nothing")] == [None] * 3

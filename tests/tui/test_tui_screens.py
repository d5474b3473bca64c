"""The screens beside the overview: opened by their keys, what they say, and that no size or text harms them."""

from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import pytest
import sample_views as views
from by_hand import BIG, press, text

from monitor import run_facts
from monitor.diagnosis.explain import gain_text
from monitor.keymap import SCREEN_ACTIONS, SCREENS
from monitor.model.report import Gain, Outcome
from monitor.model.steps.series import Curve
from monitor.model.steps.step_clock import StepClock
from monitor.model.view import View
from monitor.sources.console_marks import MARK, STDERR, STDOUT
from monitor.sources.console_marks import NAME as MARKS
from monitor.tui.actions import ACTIONS
from monitor.tui.drawing.curve_columns import grid, logarithms, smoothed
from monitor.tui.drawing.rows import row_width
from monitor.tui.drawing.step_marks import CHECKPOINT, EVAL, SLOW, marked, slow_by_throttle
from monitor.tui.panels import header
from monitor.tui.panels.base import ViewOptions
from monitor.tui.screens.log_screen import progress_bar
from monitor.tui.screens.page import PageScreen, screen_classes
from monitor.tui.screens.setup_screen import flattened
from trainhooks.protocol.events import Step

SIZES = [(80, 24), *(pytest.param(size, marks=pytest.mark.long) for size in (BIG, (20, 5)))]
KEYS = {name: action.keys[0] for name, action in SCREENS.items()}


def test_one_registry_names_every_screen_and_its_keys() -> None:
    assert set(SCREENS) == set(screen_classes()) == set(SCREEN_ACTIONS)
    everywhere = {key for action in ACTIONS for key in action.keys}
    for name, actions in SCREEN_ACTIONS.items():
        keys = [key for action in actions for key in action.keys]
        assert len(keys) == len(set(keys)), name
        body = screen_classes()[name]().body
        assert body.screen_name == name and body.about and body.title
        assert not set(KEYS.values()) & set(keys), "a screen's key leads to it from everywhere"
        assert not {"q", "?", "escape", ":"} & set(keys) and everywhere
        for action in actions:
            assert hasattr(body, f"do_{action.name.split('(')[0]}")


@pytest.mark.parametrize("name", KEYS)
async def test_a_key_opens_a_screen_help_explains_it_and_escape_goes_back(app_on, screen_text, name: str) -> None:
    app = app_on(views.running())
    async with app.run_test(size=BIG) as pilot:
        await press(pilot, KEYS[name])
        page_screen = app.screen
        assert isinstance(page_screen, PageScreen) and page_screen.body.screen_name == name
        assert page_screen.body.title in screen_text(app) and "RUNNING" in screen_text(app)
        await press(pilot, "question_mark")
        assert page_screen.body.about[0][:50] in screen_text(app)
        await press(pilot, "escape")
        assert app.screen is page_screen
        await press(pilot, "escape")
        assert "Where the time goes" in screen_text(app)
        await press(pilot, KEYS[name], KEYS[name])
        assert "Where the time goes" in screen_text(app)


async def test_screens_take_each_others_place(app_on, screen_text) -> None:
    app = app_on(views.running())
    async with app.run_test(size=BIG) as pilot:
        await press(pilot, *KEYS.values())
        assert len(app.screen_stack) == 2
        await press(pilot, "6")
        assert len(app.screen_stack) == 1 and app.focused is not None and app.focused.id == "console"


@pytest.mark.long
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize(
    "make",
    [views.waiting, views.throttled, views.many_ranks, lambda: views.hostile("漢字[/b]\x1b]52;c;x\x07 \u202egnp")],
    ids=["waiting", "throttled", "ranks", "hostile"],
)
async def test_every_screen_at_every_size_with_every_key(app_on, screen_text, make, size) -> None:
    view = make()
    app = app_on(view)
    async with app.run_test(size=size) as pilot:
        for name, key in KEYS.items():
            await press(pilot, key)
            for action in SCREEN_ACTIONS[name]:
                await pilot.press(action.keys[0])
                if action.name == "find":
                    await press(pilot, "l", "escape")
            shown = screen_text(app)
            assert "\x1b" not in shown and "\u202e" not in shown
            if view.label == "SIMULATED GPU" and size[0] >= 60:
                assert view.label in shown, "what is simulated says so on every screen"
        assert app.is_running


async def test_only_the_screen_that_is_seen_is_drawn(app_on, screen_text) -> None:
    app = app_on(views.running(100))
    async with app.run_test(size=BIG) as pilot:
        await press(pilot, "l")
        before = app.board.parts[1]._strips
        app_on.feed.push(views.running(101))
        await press(pilot)
        assert app.board.parts[1]._strips is before
        await press(pilot, "escape")
        assert "step 101 of 600" in screen_text(app)


async def test_the_palette_finds_and_runs(app_on, screen_text) -> None:
    app = app_on(views.running())
    async with app.run_test(size=BIG) as pilot:
        await press(pilot, "colon", *"who waits", "enter")
        assert isinstance(app.screen, PageScreen) and app.screen.body.screen_name == "ranks"
        await press(pilot, "s", "ctrl+p", *"reverse", "enter")
        assert "step↑" in screen_text(app)


# Overview


def test_the_gain_is_told_as_a_factor() -> None:
    assert gain_text(Gain(1.2, 1.61, 1.8)) == "about 1.61x"
    assert gain_text(Gain(None, None, 1.8)) == ""
    assert gain_text(None) == gain_text(Gain(1.0, 1.0, 1.0)) == ""


def test_the_open_step_fills_up_by_phase(options: ViewOptions) -> None:
    view = views.running()
    parts = [("generation", 6.0), (None, 1.0), ("execution", 2.0)]
    work = replace(view.open, step_seconds=9.0, phase="execution", phase_seconds=2.0, parts=parts, typical=18.0)
    row = header.with_open_step(replace(view, open=work), options, [(" now", "text")], 120)
    shown = text([row])
    assert "so far generation 6 s" in shown and "9 s, typical 18.0 s" in shown
    bar = shown[shown.index("▕") + 1 : shown.index("▏")]
    assert abs(bar.count("─") - len(bar) / 2) <= 1, "half of the usual time is still to come"
    assert bar.count("█") > 2 * bar.count(" ") > 0
    assert header.with_open_step(replace(view, open=work), options, [], 120)[-1][1] == "muted"
    late = replace(work, step_seconds=28.0, limit=27.0)
    assert header.with_open_step(replace(view, open=late), options, [], 120)[-1] == (
        " 28 s, typical 18.0 s ",
        "warning bold",
    )
    quick = replace(work, step_seconds=0.4, parts=[("generation", 0.4)])
    assert header.with_open_step(replace(view, open=quick), options, [(" now", "text")], 120) == [(" now", "text")]


def test_the_timeline_marks_slow_steps_checkpoints_evaluations_and_throttling() -> None:
    view = views.throttled()
    layout = grid(view.step_seconds, 80)
    assert layout is not None
    signs = marked(view, layout)
    assert signs[layout.bucket(207)] == SLOW and signs[layout.bucket(50)] == CHECKPOINT
    assert signs[layout.bucket(180)] == EVAL
    line = text([slow_by_throttle(view, layout, 80)])
    assert "GPU 1 HW thermal" in line and line.index("━") == layout.edge(layout.bucket(120))
    assert slow_by_throttle(views.running(), layout, 80) == []


def test_generating_tests_is_no_evaluation() -> None:
    view = views.running(200)
    layout = grid(view.step_seconds, 80)
    assert layout is not None
    before = marked(view, layout)
    view.report.phases.append(views.phase_row("test_generation", [0.5] * 10, 10.0))
    rare = views.curve_at(dict.fromkeys(range(5, 200, 20), 0.5))
    view = replace(view, phase_seconds={**view.phase_seconds, "test_generation": rare})
    assert marked(view, layout) == before


@pytest.mark.parametrize("screen", ["findings", "steps", "gpus", "charts"])
async def test_enter_is_told_by_what_it_does_now(app_on, screen_text, screen: str) -> None:
    app = app_on(views.running())
    async with app.run_test(size=BIG) as pilot:
        for keys, back in ((KEYS[screen], False), ("enter", True), ("enter", False), ("enter", True)):
            await press(pilot, keys)
            foot = screen_text(app).rstrip().split("\n")[-1]
            assert ("Esc back" in foot, "Esc overview" in foot, "Enter" in foot) == (back, not back, not back)
        assert "sort" not in foot, "the order of the list is of no concern to what is opened"
        await press(pilot, "escape")
        assert "Esc overview" in screen_text(app)


@pytest.mark.parametrize("screen", KEYS)
async def test_a_screen_does_not_offer_itself(app_on, screen_text, screen: str) -> None:
    app = app_on(views.running())
    async with app.run_test(size=(200, 24)) as pilot:
        await press(pilot, KEYS[screen])
        foot = screen_text(app).rstrip().split("\n")[-1]
        labels = {action.footer: f"{action.shown} {action.footer} " for action in SCREENS.values() if action.footer}
        missing = [name for name, words in labels.items() if words not in foot + " "]
        assert missing == [name for name in labels if name == SCREENS[screen].footer]


async def test_nothing_to_open_is_not_offered(app_on, screen_text) -> None:
    app = app_on(views.running(gpus=0))
    async with app.run_test(size=BIG) as pilot:
        await press(pilot, KEYS["gpus"])
        assert "Enter" not in screen_text(app).rstrip().split("\n")[-1]


async def test_nothing_printed_is_not_searched(app_on, screen_text) -> None:
    view = views.running()
    for shown, offered in ((view, True), (replace(view, console=(), console_lines=0), False)):
        app = app_on(shown)
        async with app.run_test(size=BIG) as pilot:
            await press(pilot, KEYS["log"])
            foot = screen_text(app).rstrip().split("\n")[-1]
            assert ("/ find" in foot, "n match" in foot) == (offered, offered)


@pytest.mark.parametrize("size", [BIG, (60, 15)])
async def test_the_help_says_that_there_is_more_below(app_on, screen_text, size) -> None:
    app = app_on(views.running())
    async with app.run_test(size=size) as pilot:
        await press(pilot, "question_mark")
        assert "↓ more   Esc closes" in screen_text(app)
        await press(pilot, "end")
        assert "Esc closes" in screen_text(app) and "↓ more" not in screen_text(app)


async def test_keys_take_few_cells_on_a_narrow_screen(app_on, screen_text) -> None:
    app = app_on(views.running())
    async with app.run_test(size=(60, 15)) as pilot:
        await press(pilot, "colon")
        assert "│      w  Why is it slow: every" in screen_text(app)


# Phases, metrics


async def test_phases_have_their_distribution_and_the_usual_of_each_role(app_on, screen_text) -> None:
    app = app_on(views.running())
    async with app.run_test(size=BIG) as pilot:
        await press(pilot, "b")
        shown = screen_text(app)
        for words in ("p50", "p95", "45.2 s", "hard", "18.0 s", "clock: host", "wall time"):
            assert words in shown
        row = next(line for line in shown.split("\n") if "■ generation" in line)
        assert "█" in row and "▁" in row, "the usual steps and the single slow ones are both visible"


async def test_metrics_are_found_overlaid_and_drawn_as_logarithms(app_on, screen_text) -> None:
    app = app_on(views.running())
    async with app.run_test(size=BIG) as pilot:
        await press(pilot, "c")
        assert all(name in screen_text(app) for name in ("reward", "loss", "kl", "learning_rate", "5 metrics"))
        await press(pilot, "slash", *"lo", "enter")
        shown = screen_text(app)
        assert "1 of 5" in shown and "loss" in shown and "learning_rate" not in shown
        await press(pilot, "d", "y", "n", "slash", "escape")
        assert "5 metrics, logarithmic, light smoothing  with loss" in screen_text(app)
        await press(pilot, "slash", "q", "w", "enter")
        assert "no matching metric" in screen_text(app) and app.is_running


@pytest.mark.parametrize("width", [160, 80, 60, 50])
async def test_a_scale_that_is_not_linear_says_so_at_every_width(app_on, screen_text, width: int) -> None:
    app = app_on(views.running())
    async with app.run_test(size=(width, 24)) as pilot:
        await press(pilot, "c", "y", "n", "d")
        heading = next(line for line in screen_text(app).split("\n") if "─ Metrics" in line)
        assert "logarithmic, light smoothing" in heading
        assert "reward" in heading or width == 50


def test_logarithms_leave_a_gap_and_smoothing_keeps_it() -> None:
    curve = Curve([1.0, 2.0, 3.0, 4.0], [10.0, 0.0, float("nan"), 1000.0], [1.0, 0.0, 0.0, 100.0], [10.0] * 4)
    logs = logarithms(curve)
    assert logs.mean[0] == 1.0 and logs.mean[3] == 3.0 and logs.mean[1] != logs.mean[1]
    soft = smoothed(curve, 0.5)
    assert soft.mean[0] == 10.0 and soft.mean[2] != soft.mean[2] and 10.0 < soft.mean[3] < 1000.0


async def test_the_list_of_metrics_says_what_its_numbers_are(app_on, screen_text) -> None:
    app = app_on(views.running())
    async with app.run_test(size=(60, 15)) as pilot:
        await press(pilot, "M")
        shown = screen_text(app)
        assert "Metrics (last value)" in shown and "learning_rate" in shown


# Ranks, console, setup


async def test_all_ranks_are_seen_at_once_and_the_slowest_stands_first(app_on, screen_text) -> None:
    app = app_on(views.many_ranks())
    async with app.run_test(size=BIG) as pilot:
        await press(pilot, "r")
        lines = screen_text(app).split("\n")
        (cells,) = [line.split()[1] for line in lines if "░░░░" in line and line.split()[0] == "0" and "s" not in line]
        assert len(cells) == 64 and cells.index("▒") == 37 and cells.count("▒") == 1
        (first,) = [line for line in lines if "▸" in line]
        assert first.split()[0] == "▸37" and "slowest" in first


@pytest.mark.parametrize(("size", "columns", "before"), [(BIG, 6, 3), ((80, 24), 4, 3), ((60, 15), 2, 0)])
async def test_ranks_by_phase_and_one_opened_beside_the_others(app_on, screen_text, size, columns, before) -> None:
    app = app_on(views.eight_ranks())
    async with app.run_test(size=size) as pilot:
        await press(pilot, "r")
        shown = screen_text(app)
        assert "median step of each rank" in shown
        assert "rank 3 slowest in generation (10.5 s, the others 8.33 s)" in " ".join(shown.split())
        names = next(line for line in shown.split("\n") if " rank " in line and " step " in line and "waits" in line)
        assert len(names.split()) == 3 + columns and "generation" in names and "training" in names
        await press(pilot, *["down"] * before, "enter")  # where not all fit, the slowest stands first
        shown = screen_text(app)
        assert "Rank 3" in shown and "this one" in shown
        row = next(line for line in shown.split("\n") if line.strip().startswith("generation"))
        assert row.split() == ["generation", "10.5", "s", "8.22", "s", "8.08", "s", "10.5", "s"]
        await press(pilot, "escape")
        assert "▸3" in screen_text(app)


async def test_enter_on_an_opened_rank_shows_it_on_all_screens(app_on, screen_text) -> None:
    view = views.eight_ranks()
    app = app_on(view)
    async with app.run_test(size=(160, 45)) as pilot:
        await press(pilot, "r", "down", "enter")
        assert "Enter: rank" in screen_text(app) and app_on.feed.rank is None
        await press(pilot, "enter")
        assert app_on.feed.rank is not None
        rank = app_on.feed.rank
        run = replace(view.report.run, rank=rank)
        app_on.feed.push(replace(view, report=replace(view.report, run=run)))
        await press(pilot, "s")
        assert f"RANK {rank} · Esc for all" in screen_text(app) and f"of rank {rank}" in screen_text(app)
        await press(pilot, "escape")
        assert app_on.feed.rank == rank, "from a screen to the overview of that rank"
        await press(pilot, "escape")
        assert app_on.feed.rank is None


@pytest.mark.parametrize("size", [(160, 45), (80, 24)])
@pytest.mark.parametrize("number", [64, 1024])
async def test_all_ranks_of_a_large_job_are_seen_at_once(app_on, screen_text, number, size) -> None:
    app = app_on(views.many_ranks(number))
    async with app.run_test(size=size) as pilot:
        await press(pilot, "r")
        strip = [row for row in screen_text(app).split("\n") if row.count("░") > 20 and "▇" not in row]
        assert 0 < len(strip) <= 8 and sum(row.count("▒") + row.count("█") for row in strip) >= 1
        await press(pilot, "escape", "8")
        rows = [row for row in screen_text(app).split("\n") if "░" * 8 in row and "▇" not in row]
        assert "slowest" in screen_text(app) and (rows or size == (80, 24))


def test_progress_bars_are_drawn_to_the_width_and_keep_their_figures() -> None:
    row = progress_bar("epoch 2:  46%|████████▌         | 46/100 [00:04<00:05, 9.8it/s]", 70)
    assert row_width(row) <= 70
    assert "46%" in text([row]) and "46/100 [00:04<00:05, 9.8it/s]" in text([row]) and "━" in text([row])
    for other in ("46% of it", "loss 3.1", "120%|██|", "a|b|c"):
        assert progress_bar(other, 70) == []


async def test_the_console_is_searched_and_followed(app_on, screen_text) -> None:
    app = app_on(views.running())
    async with app.run_test(size=(100, 20)) as pilot:
        await press(pilot, "l")
        assert "[step 214]" in screen_text(app) and "following" in screen_text(app)
        await press(pilot, "slash", *"step 17", "enter", "n")
        assert "10 matching" in screen_text(app) and "[step 179]" in screen_text(app)
        assert "[step 214]" not in screen_text(app)
        await press(pilot, "end")
        assert "[step 214]" in screen_text(app)


@pytest.mark.long
async def test_the_whole_console_is_scrolled_and_searched(app_on, screen_text, tmp_path) -> None:
    lines = [f"line {n} {'needle' if n in (17, 2500) else 'of the output'}" for n in range(5000)]
    file = tmp_path / "console.log"
    file.write_text("\n".join(lines) + "\n")
    view = replace(views.running(), console=tuple(lines[-400:]), console_lines=5000, console_file=file)

    def shown() -> list[int]:
        rows = [row.lstrip(" ▸") for row in screen_text(app).split("\n")]
        return [int(row.split()[1]) for row in rows if row.startswith("line ")]

    app = app_on(view)
    async with app.run_test(size=(100, 30)) as pilot:
        await press(pilot, "l")
        assert shown()[-1] == 4999
        seen = shown()
        for _ in range(40):  # over the edge of what is kept, without a gap
            before = shown()
            await press(pilot, "pageup")
            assert shown()[0] < before[0] <= shown()[-1] + 1 and shown() == list(range(shown()[0], shown()[-1] + 1))
            seen = [*range(shown()[0], seen[0]), *seen]
        assert seen[0] < 4999 - 800 and "of the output" in screen_text(app)
        for _ in range(60):
            await press(pilot, "pagedown")
        assert shown()[-1] == 4999 and "following" in screen_text(app)
        await press(pilot, "home")
        assert shown()[0] == 0
        await press(pilot, "pagedown", "end")
        assert shown()[-1] == 4999
        await press(pilot, "slash", *"NEEDLE", "enter", "n")
        assert shown()[-1] == 2500
        await press(pilot, "n")
        assert shown()[-1] == 17
        await press(pilot, "n")
        assert shown()[-1] == 17 and "no match above" in screen_text(app)
        await press(pilot, "N")
        assert shown()[-1] == 2500


def with_console(directory: Path) -> View:
    """A run of 500 steps of a second; each prints ten lines, of which the seventh goes to stderr."""
    lines = [f"line {n} {'needle' if n % 100 == 17 else 'of the output'}" for n in range(5000)]
    (directory / "console.log").write_text("\n".join(lines) + "\n")
    starts = tuple(accumulate((len(line) + 1 for line in lines), initial=0))
    marks = [MARK.pack(n / 10 + 1.05, starts[n + 1], STDERR if n % 10 == 6 else STDOUT) for n in range(5000)]
    (directory / MARKS).write_bytes(b"".join(marks))
    steps = tuple(Step("r0", n, n + 1.0, n, float(n), 1.0, [("forward", 0.9, "host", 1)]) for n in range(1, 501))
    times = tuple(float(n) for n in range(1, 501))
    clock = StepClock(times, tuple(time + 1 for time in times), tuple(range(1, 501)), tuple(range(1, 501)))
    view = views.running()
    return replace(
        view,
        console=tuple(lines[-400:]),
        console_lines=5000,
        console_starts=starts[-401:-1],
        console_file=directory / "console.log",
        details=replace(view.details, steps=steps, clock=clock),
    )


async def test_a_line_of_the_console_finds_its_step_and_a_step_its_lines(app_on, screen_text, tmp_path) -> None:
    app = app_on(with_console(tmp_path))
    async with app.run_test(size=(100, 30)) as pilot:
        await press(pilot, "l", "slash", *"line 1234 ", "enter", "n")
        assert "▸ line 1234" in screen_text(app) and "step 124" in screen_text(app)
        await press(pilot, "enter")
        assert "step 124  1.00 s" in screen_text(app), "its page"
        await press(pilot, "l")
        assert "▸ line 1230" in screen_text(app), "the first that it printed"
        await press(pilot, "escape", "left", "left", "l")
        assert "CURSOR step" in screen_text(app)
        step = int(screen_text(app).split("CURSOR step ")[1].split()[0].strip(","))
        assert f"▸ line {10 * (step - 1)}" in screen_text(app)
        shown = [row for row in screen_text(app).split("\n") if row.lstrip(" ▸│").startswith("line ")]
        for row in shown:
            assert ("│" in row) is (int(row.lstrip(" ▸│").split()[1]) % 10 == 6), "stderr has a mark"


async def test_the_console_shows_only_the_lines_that_match(app_on, screen_text, tmp_path) -> None:
    view = with_console(tmp_path)

    def shown() -> list[int]:
        rows = [row.lstrip(" ▸│") for row in screen_text(app).split("\n")]
        return [int(row.split()[1]) for row in rows if row.startswith("line ")]

    app = app_on(view)
    async with app.run_test(size=(100, 30)) as pilot:
        await press(pilot, "l", "slash", *"NEEDLE", "enter", "ampersand")
        assert shown() == list(range(4917 - 100 * (len(shown()) - 1), 4918, 100)), "of the whole output"
        more = ("line 5000 a needle", "line 5001 without")
        starts = (*view.console_starts[2:], 119_000, 119_100)
        app_on.feed.push(replace(view, console=view.console[2:] + more, console_lines=5002, console_starts=starts))
        for _ in range(200):  # the panels are drawn when they are due
            await pilot.pause(0.05)
            if shown()[-1] == 5000:
                break
        assert shown()[-2:] == [4917, 5000], "it follows"
        await press(pilot, *["pageup"] * 3)
        assert shown()[0] == 17
        await press(pilot, "home")
        assert shown()[0] == 17
        await press(pilot, "end", "n", "n")
        assert "▸ line 4817" in screen_text(app)
        await press(pilot, "ampersand")
        assert shown()[-2:] == [4816, 4817], "the same line, among all"
        await press(pilot, "ampersand", "escape", "end")
        assert shown()[-2:] == [4999, 5000] or shown()[-1] >= 4999
        await press(pilot, "slash", *"nowhere", "enter", "ampersand")
        assert shown() == [] and "no line matches" in screen_text(app)


async def test_the_setup_has_every_fact_and_finds_by_value(app_on, screen_text) -> None:
    view = views.running()
    facts = {"versions": {"torch": "2.13"}, "training_arguments": {"fp16": False, "optim": "adamw_torch"}, "cpus": 12}
    run = replace(view.report.run, facts=run_facts.read(facts))
    app = app_on(replace(view, report=replace(view.report, run=run)))
    async with app.run_test(size=BIG) as pilot:
        await press(pilot, "i")
        shown = screen_text(app)
        assert all(
            word in shown for word in ("Training arguments", "Versions", "fp16", "False", "torch", "2.13", "cpus", "12")
        )
        await press(pilot, "slash", *"adamw", "enter")
        assert "optim" in screen_text(app) and "fp16" not in screen_text(app)
    assert dict(flattened({"a": {"b": {"c": None}}})) == {"a.b.c": "–"}


async def test_an_ended_run_has_all_its_screens(app_on, screen_text) -> None:
    view = views.running()
    view = replace(view, report=replace(view.report, outcome=Outcome("finished", 0)))
    app = app_on(view)
    async with app.run_test(size=BIG) as pilot:
        for key in KEYS.values():
            await press(pilot, key)
            assert "FINISHED" in screen_text(app)

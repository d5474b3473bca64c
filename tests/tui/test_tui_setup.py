"""What a screen tells beside the run itself: what changed since the one before, and a person's own bounds of speed."""

from dataclasses import replace

import pytest
import sample_views as views

from monitor import run_facts
from monitor.model.report import Outcome
from monitor.model.steps.speed_classes import SpeedClasses
from monitor.model.view import PreviousRun
from monitor.tui.panels import header

CHANGES = (("config.batch", 64, 32), ("versions.torch", "2.12.0", "2.13.0"), ("config.lr\x1b[31m", None, "[/b]"))


@pytest.mark.parametrize(
    ("view", "says"),
    [
        (replace(views.running(), previous_run=PreviousRun("2025-rl-1", "rl", CHANGES)), "2025-rl-1"),
        (replace(views.running(), previous_run=PreviousRun("2025-rl-1", "rl", CHANGES)), "64 → 32"),
        (replace(views.running(), previous_run=PreviousRun("2025-rl-1", "rl", CHANGES)), "2.12.0 → 2.13.0"),
        (replace(views.running(), previous_run=PreviousRun("2025-rl-1", "rl", CHANGES)), "not set → [/b]"),
        (replace(views.running(), previous_run=PreviousRun("2025-rl-1", "rl", ())), "no known change"),
        (views.running(), "no comparable earlier run of this command"),
        (views.running(5), "available after 30 steps"),
    ],
)
async def test_setup_tells_what_is_not_as_in_the_run_before(app_on, screen_text, view, says) -> None:
    app = app_on(view)
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.press("i")
        await pilot.pause()
        assert says in screen_text(app)


@pytest.mark.parametrize(
    ("view", "told"),
    [
        (views.running(gpus=8), ["8 × NVIDIA H200, 139 GiB, power limit 700 W", "570.86.15", "16 cores", "128 GiB"]),
        (views.throttled(), ["2 × NVIDIA H200, 139 GiB, power limit 700 W, SIMULATED", "570.86.15"]),
        (views.running(gpus=0), ["libnvidia-ml.so.1 was not found", "16 cores"]),
    ],
    ids=["eight", "simulated", "none"],
)
async def test_setup_tells_the_hardware_as_far_as_it_is_known(app_on, screen_text, view, told) -> None:
    app = app_on(view)
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.press("i")
        await pilot.pause()
        assert all(part in screen_text(app) for part in ("Hardware", "h200-box-04", *told))
        assert "directory" not in screen_text(app), "what nobody told has no row"
        assert "Hardware of one host" not in screen_text(app)
        app_on.feed.push(views.waiting())
        await pilot.pause()
        assert "Hardware" not in screen_text(app)
        app_on.feed.push(views.many_ranks())
        await pilot.pause()
        assert "Hardware of one host" in screen_text(app)


@pytest.mark.parametrize(("size", "columns"), [((200, 60), 2), ((160, 45), 2), ((120, 40), 1), ((80, 24), 1)])
async def test_many_settings_stand_in_columns_where_there_is_room(app_on, screen_text, size, columns: int) -> None:
    view = views.running()
    settings = {f"per_device_setting_{index:03}": index for index in range(150)}
    run = replace(view.report.run, facts=run_facts.read({"training_arguments": settings}))
    app = app_on(replace(view, report=replace(view.report, run=run)))
    async with app.run_test(size=size) as pilot:
        await pilot.press("i")
        await pilot.pause()
        shown = screen_text(app)
        named = [line.count("per_device_setting_") for line in shown.split("\n")]
        assert max(named) == columns and ("Training arguments  continued" in shown) == (columns > 1)
        await pilot.press(*["pagedown"] * 9)
        await pilot.pause()
        assert "per_device_setting_149" in screen_text(app)
        assert columns > 1 or "continued" not in screen_text(app)


async def test_settings_are_read_column_by_column_of_what_is_in_sight(app_on, screen_text) -> None:
    view = views.running()
    table = {"config": {f"name_{index:03}": index for index in range(200)}, "epochs": 1}
    run = replace(view.report.run, facts=run_facts.read(table))
    app = app_on(replace(view, report=replace(view.report, run=run)))
    async with app.run_test(size=(160, 45)) as pilot:
        await pilot.press("i")
        await pilot.pause()
        lines = screen_text(app).split("\n")
        names = [[int(word[5:]) for word in line.split() if word.startswith("name_")] for line in lines]
        left = [row[0] for row in names if len(row) == 2] or [row[0] for row in names if row]
        right = [row[-1] for row in names if row and row[-1] not in left]
        assert max(left) + 1 == min(right), "what follows is beside it, not below the fold"
        assert "planned epochs" in screen_text(app)
        await pilot.press("end")
        await pilot.pause()
        assert "name_199" in screen_text(app)


async def test_few_settings_stay_in_one_column(app_on, screen_text) -> None:
    view = views.running()
    run = replace(view.report.run, facts=run_facts.read({"config": {"lr": 0.1, "batch": 8}}))
    app = app_on(replace(view, report=replace(view.report, run=run)))
    async with app.run_test(size=(160, 45)) as pilot:
        await pilot.press("i")
        await pilot.pause()
        lines = screen_text(app).split("\n")
        assert all("batch" not in line for line in lines if " lr " in line) and "continued" not in "".join(lines)


async def test_steps_carry_the_class_that_a_persons_bounds_give_them(app_on, screen_text) -> None:
    view = views.running()
    app = app_on(replace(view, report=replace(view.report, speed_classes=SpeedClasses(12.0, 30.0, 20, 190, 4))))
    async with app.run_test(size=(160, 45)) as pilot:
        await pilot.press("s")
        await pilot.pause()
        rows = {line.split()[0]: line.split() for line in screen_text(app).split("\n") if line.strip()[:1].isdigit()}
        assert (rows["211"][3], rows["212"][3]) == ("fast", "normal")
        assert "slow" in next(line for line in screen_text(app).split("\n") if " 207 " in line).split()[4:6]


async def test_a_slow_step_is_marked_without_color_where_the_status_has_no_room(app_on, screen_text) -> None:
    app = app_on(views.running())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("s")
        await pilot.pause()
        marked = {line.split()[1] for line in screen_text(app).split("\n") if line.strip().startswith("▲")}
        assert marked == {"207"}


def test_an_end_that_nobody_saw_does_not_look_like_success() -> None:
    assert header.state(Outcome("finished", 0)) == ("✔ FINISHED", "good")
    words, tone = header.state(Outcome("finished", None))
    assert "unknown" in words
    assert tone != "good"


@pytest.mark.parametrize(
    ("view", "label"), [(views.running(), "q detach"), (views.ended("finished", 0), "q quit")], ids=["runs", "ended"]
)
async def test_there_is_something_to_detach_from_only_while_it_runs(app_on, screen_text, view, label) -> None:
    app = app_on(view)
    async with app.run_test(size=(120, 36)):
        assert label in screen_text(app)

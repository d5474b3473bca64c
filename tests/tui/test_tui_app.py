"""Every key, the dialogs, resizing and ending, on the app itself."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
import sample_views as views
from textual.widgets import OptionList

from monitor.model.steps.series import Curve
from monitor.palettes import PALETTES
from monitor.tui.actions import ACTIONS, PANELS
from monitor.tui.app import TrainmonApp
from monitor.tui.panels.footer import panel_keys
from monitor.tui.refresh_rate import RefreshRate
from monitor.tui.screens.dialogs import HelpScreen, MetricScreen, PaletteScreen, QuitScreen, StopScreen

BIG = (160, 45)


async def settled(pilot) -> None:
    for _ in range(3):
        await pilot.pause()


async def press(pilot, *keys: str) -> None:
    await pilot.press(*keys)
    await settled(pilot)


async def until(pilot, shown: Callable[[], bool]) -> None:
    """What a thread tells comes at the next look for it."""
    end = time.monotonic() + 30
    while not shown():
        assert time.monotonic() < end, "it did not come to be shown"
        await pilot.pause(0.02)


def test_every_action_exists_and_no_key_is_taken_twice() -> None:
    keys = [key for action in ACTIONS for key in action.keys]
    assert len(keys) == len(set(keys))
    for action in ACTIONS:
        name = action.name.removeprefix("app.").split("(")[0]
        assert hasattr(TrainmonApp, f"action_{name}")


@pytest.mark.parametrize(("key", "result"), [("q", "detach"), ("ctrl+q", "detach")])
async def test_q_detaches(app_on, key: str, result: str) -> None:
    app = app_on(views.running())
    async with app.run_test(size=BIG) as pilot:
        await press(pilot, key)
    assert app.return_value == result
    assert app_on.feed.stopped


async def test_after_the_end_it_returns_ended(app_on) -> None:
    for key in ("q", "ctrl+c"):
        app = app_on(views.ended("failed", 3))
        async with app.run_test(size=BIG) as pilot:
            await settled(pilot)
            await press(pilot, key)
        assert app.return_value == "ended"


async def test_a_dashboard_whose_thread_has_failed_does_not_stand_still(app_on) -> None:
    app, hook = app_on(views.running()), threading.excepthook
    async with app.run_test(size=BIG) as pilot:
        await settled(pilot)
        thread = threading.Thread(target=lambda: {}["[red]missing"])
        thread.start()
        while thread.is_alive():
            await pilot.pause(0.01)
    assert app.return_value == "detach" and app.return_code == 1
    assert threading.excepthook == hook


@pytest.mark.long
async def test_before_the_first_view_keys_do_no_harm(app_on, screen_text) -> None:
    app = app_on(None)
    async with app.run_test(size=BIG) as pilot:
        keys = [key for action in ACTIONS for key in action.keys if action.name not in ("detach", "ask_to_quit")]
        for key in keys:
            await press(pilot, key)
        await press(pilot, "escape", "escape")
        app_on.feed.push(views.running())
        await settled(pilot)
        assert app.is_running


async def test_ctrl_c_asks_and_cancel_goes_back(app_on, screen_text) -> None:
    app = app_on(views.running(), stop_training=lambda say: None)
    async with app.run_test(size=BIG) as pilot:
        for key in ("c", "escape", "q"):
            await press(pilot, "ctrl+c")
            assert isinstance(app.screen, QuitScreen)
            assert "Stop the training" in screen_text(app) and "trainmon stop" not in screen_text(app)
            await press(pilot, key)
            assert not app.screen.is_modal
        assert app.is_running


@pytest.mark.parametrize("keys", [("d",), ("enter",), ("ctrl+c",)])
async def test_ctrl_c_can_detach(app_on, keys: tuple[str, ...]) -> None:
    app = app_on(views.running())
    async with app.run_test(size=BIG) as pilot:
        await press(pilot, "ctrl+c", *keys)
    assert app.return_value == "detach"


async def test_stopping_runs_in_a_thread_and_shows_what_is_said(app_on, screen_text) -> None:
    go_on, threads = threading.Event(), []

    def stop(say) -> None:
        threads.append(threading.current_thread())
        say("SIGINT sent; [/b] waiting 30 s\x1b[2J")
        go_on.wait(30)
        raise RuntimeError("no such process")

    app = app_on(views.running(), stop_training=stop)
    async with app.run_test(size=BIG) as pilot:
        await press(pilot, "ctrl+c", "s")
        assert isinstance(app.screen, StopScreen)
        await until(pilot, lambda: "SIGINT sent; [/b] waiting 30 s" in screen_text(app))
        await press(pilot, "q")
        assert app.is_running, "there is more to be read"
        go_on.set()
        await until(pilot, lambda: "Stop failed: no such process" in screen_text(app))
        assert threads != [threading.main_thread()]
        await press(pilot, "escape")
        assert not app.screen.is_modal


async def test_when_the_stop_is_over_the_key_that_detaches_leaves(app_on, screen_text) -> None:
    app = app_on(views.running(), stop_training=lambda say: say("it has ended"))
    async with app.run_test(size=BIG) as pilot:
        await press(pilot, "ctrl+c", "s")
        await until(pilot, lambda: "Done" in screen_text(app))
        await press(pilot, "q")
    assert app.return_value == "detach"


async def test_a_stop_under_way_does_not_hold_a_dashboard_that_is_left(app_on) -> None:
    go_on = threading.Event()
    app = app_on(views.running(), stop_training=lambda say: (go_on.wait(60), say("late"))[1])
    began = time.monotonic()
    async with app.run_test(size=BIG) as pilot:
        await press(pilot, "ctrl+c", "s", "escape", "q")
    assert (app.return_value, time.monotonic() - began < 50) == ("detach", True)
    go_on.set()


async def test_where_stopping_is_not_possible_it_says_what_is_and_s_does_nothing(app_on, screen_text) -> None:
    app = app_on(views.running())
    async with app.run_test(size=BIG) as pilot:
        await press(pilot, "ctrl+c", "s")
        assert isinstance(app.screen, QuitScreen) and "trainmon stop RUN" in screen_text(app)


@pytest.mark.parametrize(
    ("key", "screen", "words"),
    [
        ("question_mark", HelpScreen, "Detach: close the dashboard"),
        ("colon", PaletteScreen, "Steps: a table of single steps"),
        ("M", MetricScreen, "gen_passed"),
    ],
)
async def test_dialogs_open_and_close(app_on, screen_text, key, screen, words) -> None:
    app = app_on(views.running())
    async with app.run_test(size=BIG) as pilot:
        await press(pilot, key)
        assert isinstance(app.screen, screen)
        assert words in screen_text(app)
        await press(pilot, "escape")
        assert not app.screen.is_modal


async def test_enter_alone_in_the_palette_does_not_leave_the_dashboard(app_on, screen_text) -> None:
    app = app_on(views.running())
    async with app.run_test(size=BIG) as pilot:
        await press(pilot, "colon")
        assert "↓ more" in screen_text(app), "the list is longer than its box"
        await press(pilot, "up")
        assert "Ctrl-C  Detach, or stop" in screen_text(app) and "↓ more" not in screen_text(app), "leaving comes last"
        await press(pilot, *"full", "down")
        assert "↓ more" not in screen_text(app)
        await press(pilot, "escape", "colon", "enter")
        assert app.is_running


async def test_help_names_every_action(app_on, screen_text) -> None:
    app = app_on(views.running())
    async with app.run_test(size=BIG) as pilot:
        await press(pilot, "question_mark")
        shown = screen_text(app)
        await press(pilot, *["pagedown"] * 5)
        shown += screen_text(app)
        assert all(action.help in shown for action in ACTIONS)


@pytest.mark.parametrize("screen", [None, "s", "c"])
async def test_help_has_the_signs_beside_the_keys_where_there_is_room(app_on, screen_text, screen: str | None) -> None:
    app = app_on(views.running())
    async with app.run_test(size=(200, 60)) as pilot:
        await press(pilot, *([screen] if screen else []), "question_mark")
        shown = screen_text(app)
        assert "C E B  checkpoint; evaluation; both" in shown and "↓ more" not in shown
        assert all(action.help in shown for action in ACTIONS)
        first = next(line for line in shown.split("\n") if "Everywhere" in line)
        assert ("On this screen" if screen else "Signs") in first


async def test_pause_freezes_the_screen_and_goes_on_with_the_newest(app_on, screen_text) -> None:
    app = app_on(views.running(100))
    async with app.run_test(size=BIG) as pilot:
        await press(pilot, "p")
        assert "PAUSED" in screen_text(app)
        app_on.feed.push(views.running(101))
        app_on.feed.push(views.running(102))
        await settled(pilot)
        assert "step 100 of 600" in screen_text(app)
        await press(pilot, "space")
        assert "step 102 of 600" in screen_text(app) and "PAUSED" not in screen_text(app)


@pytest.mark.parametrize("key", ["f", "z", "enter"])
async def test_maximize_and_back(app_on, screen_text, key: str) -> None:
    app = app_on(views.running())
    async with app.run_test(size=BIG) as pilot:
        await press(pilot, "6", key)
        assert "Console" in screen_text(app) and "Where the time goes" not in screen_text(app)
        assert "[step 190]" in screen_text(app)
        await press(pilot, key if key != "enter" else "escape")
        assert "Where the time goes" in screen_text(app)


async def test_number_keys_show_focus_and_hide(app_on, screen_text) -> None:
    app = app_on(views.running())
    async with app.run_test(size=(60, 15)) as pilot:
        for panel in PANELS:
            await press(pilot, str(panel.number))
            assert app.focused is not None and app.focused.id == panel.name
            assert app.focused.region.height >= 5
        await press(pilot, "8")
        assert app.focused is None or app.focused.id != "ranks"
        assert "ranks" not in app.board.rects(app.board.size)
        await press(pilot, "8")
        assert "ranks" in app.board.rects(app.board.size)


async def test_all_panels_hidden_leaves_head_and_footer(app_on, screen_text) -> None:
    app = app_on(views.running())
    async with app.run_test(size=BIG) as pilot:
        for number in "1234567":
            await press(pilot, number, number)
        assert "RUNNING" in screen_text(app) and "detach" in screen_text(app) and "Console" not in screen_text(app)
        await press(pilot, "f", "escape", "tab")


async def test_the_foot_offers_the_panels_that_there_are(app_on, screen_text) -> None:
    app = app_on(views.running())
    async with app.run_test(size=(200, 45)) as pilot:
        await settled(pilot)
        assert "ranks" in app.board.absent, "one rank waits for none"
        assert f"{panel_keys(app.board.absent)} panels" in screen_text(app)
        await press(pilot, "8")
        assert f"{panel_keys(())} panels" in screen_text(app)
        await press(pilot, "s")
        assert f"{panel_keys(())} panels" in screen_text(app)
        app_on.feed.push(views.many_ranks())
        await press(pilot, "escape")
        assert f"{panel_keys(())} panels" in screen_text(app)


async def test_themes_cycle_and_recolor(app_on) -> None:
    app = app_on(views.running())
    async with app.run_test(size=BIG) as pilot:
        await settled(pilot)
        seen = []
        for _ in PALETTES:
            seen.append((app.theme, next(iter(app.board.parts[0].render_line(0))).style.bgcolor.name))
            await press(pilot, "t")
        assert seen == [(palette.name, palette.background) for palette in PALETTES]
        assert app.theme == PALETTES[0].name


async def test_m_goes_through_the_metrics_and_the_list_picks_one(app_on, screen_text) -> None:
    app = app_on(views.running())
    async with app.run_test(size=BIG) as pilot:
        await settled(pilot)
        names = list(views.running().metrics)
        for name in [*names[1:], names[0]]:
            await press(pilot, "m")
            assert f"3 {name} " in screen_text(app)
        await press(pilot, "M", "down", "down", "enter")
        assert f"3 {names[2]} " in screen_text(app)


async def test_the_console_scrolls_and_stays_where_it_was_put(app_on, screen_text) -> None:
    view = views.running()
    app = app_on(view)
    async with app.run_test(size=BIG) as pilot:
        await press(pilot, "6", "up", "up")
        assert "[step 214]" not in screen_text(app) and "[step 212]" in screen_text(app)
        app_on.feed.push(replace(view, console=(*view.console, "one more"), console_lines=view.console_lines + 1))
        await settled(pilot)
        assert "one more" not in screen_text(app) and "[step 212]" in screen_text(app)
        await press(pilot, "end")
        assert "one more" in screen_text(app)
        await press(pilot, "home")
        assert "[step 150]" in screen_text(app)
        await press(pilot, "pagedown", "down", "j", "k")


async def test_alerts_scroll(app_on, screen_text) -> None:
    app = app_on(views.running())
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "5")
        assert "Slow step 207" in screen_text(app)
        await press(pilot, "end")
        assert "Slow step 207" not in screen_text(app) and "did no work" in screen_text(app)


async def test_the_mouse_focuses_scrolls_and_clicks_the_footer(app_on, screen_text) -> None:
    app = app_on(views.running())
    async with app.run_test(size=BIG) as pilot:
        await settled(pilot)
        await pilot.click("#console")
        assert app.focused is not None and app.focused.id == "console"
        await pilot.click("#footer", offset=(3, 0))
        await settled(pilot)
    assert app.return_value == "detach"


async def test_resizing_in_any_order_never_fails(app_on, screen_text) -> None:
    app = app_on(views.running(gpus=8))
    sizes = [(20, 5), (160, 45), (1, 1), (80, 24), (300, 3), (3, 80), (60, 15), (110, 12), (2, 2), (120, 30)]
    async with app.run_test(size=BIG) as pilot:
        for round_, size in enumerate(sizes * 2):
            await pilot.resize_terminal(*size)
            if round_ % 3 == 0:
                app_on.feed.push(views.running(200 + round_, gpus=8))
                await press(pilot, "f")
            await pilot.pause()
        await press(pilot, "escape")
        await settled(pilot)
        assert "Where the time goes" in screen_text(app) or "Time" in screen_text(app)


@pytest.mark.parametrize("size", [(20, 5), (10, 3), (1, 1)])
@pytest.mark.parametrize("key", ["question_mark", "w", "M", "ctrl+c", "f"])
async def test_dialogs_open_on_tiny_screens(app_on, size, key) -> None:
    app = app_on(views.running(gpus=2))
    async with app.run_test(size=size) as pilot:
        await press(pilot, key, "down", "escape")
        assert app.is_running


@pytest.mark.parametrize(
    "view", [views.waiting(), views.starting(), views.silent(), views.replayed(), views.running(1), views.ended("lost")]
)
async def test_every_state_of_a_run_is_drawn_at_every_size(app_on, screen_text, view) -> None:
    app = app_on(view)
    async with app.run_test(size=BIG) as pilot:
        for size in (BIG, (80, 24), (60, 15), (20, 5)):
            await pilot.resize_terminal(*size)
            await settled(pilot)
            if view.label and size[0] >= 60:
                assert view.label in screen_text(app)


async def test_a_busy_link_gets_the_newest_picture_once_it_can_take_it(app_on, screen_text, monkeypatch) -> None:
    waits = [60.0]
    monkeypatch.setattr(RefreshRate, "wait", lambda self, driver: waits[0])
    app = app_on(views.running(100))
    async with app.run_test(size=BIG) as pilot:
        await settled(pilot)
        for step in (101, 102, 103):
            app_on.feed.push(views.running(step))
            await settled(pilot)
        assert "step 100 of 600" in screen_text(app)
        waits[0] = 0.0
        app._show_when_due()
        await settled(pilot)
        assert "step 103 of 600" in screen_text(app)


async def test_a_panel_with_nothing_to_show_leaves_its_place_until_it_is_asked_for(app_on, screen_text) -> None:
    imported = views.from_console(imported=True)
    app = app_on(replace(imported, console=(), console_lines=0, tokens_per_second=Curve()))
    async with app.run_test(size=(160, 45)) as pilot:
        await pilot.pause()
        shown = screen_text(app)
        assert " 6 Console" not in shown and " 4 Tokens" not in shown and " 5 Alerts" in shown
        await pilot.press("6")
        await pilot.pause()
        assert " 6 Console" in screen_text(app) and "see the original file" in screen_text(app)
        app_on.feed.push(replace(imported, console=(), console_lines=0))
        for _ in range(3):
            await pilot.pause()
        assert " 6 Console" in screen_text(app) and " 4 Tokens" in screen_text(app)


@pytest.mark.parametrize("size", [(80, 24), (60, 15), (160, 45)])
async def test_what_is_chosen_in_a_long_list_is_in_sight(app_on, size: tuple[int, int]) -> None:
    app = app_on(views.running())
    async with app.run_test(size=size) as pilot:
        await pilot.press("colon", "up")  # to its last entry
        await pilot.pause()
        box, choices = app.screen.query_one("#dialog").content_region, app.screen.query_one(OptionList)
        assert choices.highlighted == choices.option_count - 1 > 20
        assert box.contains_region(choices.region) and choices.scroll_y == choices.max_scroll_y

"""A replay on the dashboard: the same screens, keys of its own, and the word on every one of them."""

import sample_views as views

from monitor.keymap import REPLAY_ACTIONS, SCREENS
from monitor.tui.actions import ACTIONS
from monitor.tui.replay_app import ReplayApp

BIG = (160, 45)


class Played:
    """A playback that writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple] = []

    def start(self, on_view) -> None:
        on_view(views.replayed())

    def stop(self) -> None:
        pass

    def pause(self) -> None:
        self.told.append(("pause",))

    def faster(self, factor) -> None:
        self.told.append(("faster", factor))

    def step(self, steps) -> None:
        self.told.append(("step", steps))

    def seek(self, share) -> None:
        self.told.append(("seek", share))


async def test_every_key_of_the_replay_reaches_it() -> None:
    feed = Played()
    app = ReplayApp(feed, title="recorded")
    async with app.run_test(size=BIG) as pilot:
        await pilot.press(*(action.keys[0] for action in REPLAY_ACTIONS))
        await pilot.pause()
    assert feed.told == [
        ("pause",), ("step", 1), ("step", -1), ("faster", 2), ("faster", 0.5), ("seek", 0.05), ("seek", -0.05),
    ]  # fmt: skip


async def test_every_screen_says_that_it_is_a_replay(screen_text) -> None:
    app = ReplayApp(Played(), title="recorded")
    async with app.run_test(size=BIG) as pilot:
        for key in ("", *(action.keys[0] for action in SCREENS.values())):
            if key:
                await pilot.press(key)
            for _ in range(3):
                await pilot.pause()
            assert "REPLAY" in screen_text(app), key


async def test_help_tells_the_keys_of_the_replay_too(screen_text) -> None:
    app = ReplayApp(Played(), title="recorded")
    async with app.run_test(size=(160, 80)) as pilot:
        await pilot.press("question_mark")
        await pilot.pause()
        shown = screen_text(app)
        assert all(action.help in shown for action in REPLAY_ACTIONS)
        assert "Pause the screen" not in shown and "Detach" not in shown, "what a key does here is told once"


async def test_leaving_a_replay_asks_nothing() -> None:
    for key in ("q", "ctrl+c"):
        app = ReplayApp(Played(), title="recorded")
        async with app.run_test(size=BIG) as pilot:
            await pilot.press(key)
        assert app.return_value == "ended"


def test_its_keys_mean_nothing_else() -> None:
    others = {key for action in ACTIONS if action.name != "pause" for key in action.keys}
    assert not others & {key for action in REPLAY_ACTIONS for key in action.keys}


async def test_a_replay_is_quit_not_left_to_itself(screen_text) -> None:
    app = ReplayApp(Played(), title="recorded")
    async with app.run_test(size=BIG) as pilot:
        assert "q quit" in screen_text(app)
        await pilot.press("s", "colon")
        await pilot.pause()
        await pilot.press(*"quit")
        await pilot.pause()
        assert "Quit the replay" in screen_text(app)
        assert "Detach: close" not in screen_text(app)

"""Every screen as rows and styles, the themes as pictures. After a wanted change: make snapshots, and read the diff."""

import pytest
import sample_views as views
from by_hand import press
from conftest import drawn

SIZES = [(160, 45), (120, 30), (80, 24), (60, 15), (20, 5)]
STATES = {
    "waiting": views.waiting,
    "starting": views.starting,
    "silent": views.silent,
    "replay": views.replayed,
    "failed": lambda: views.ended("failed", 3, error="ValueError: no such file"),
    "killed": lambda: views.ended("killed", signal=9),
    "finished": lambda: views.ended("finished", 0),
    "eight_gpus": lambda: views.running(gpus=8),
    "no_gpu": lambda: views.running(gpus=0),
    "few_steps": lambda: views.running(5),
    "unheard": views.unheard,
    "from_console": views.from_console,
    "eight_ranks": views.eight_ranks,
    "hostile": lambda: views.hostile("漢字[/b]\x1b]52;c;x\x07 \u202egnp"),
}
KEYS = {
    "help": ["question_mark"],
    "metrics": ["M"],
    "loss": ["m"],
    "quit": ["ctrl+c"],
    "paused": ["p"],
    "console": ["6", "f"],
}
THEMES = {"night": [], "paper": ["t"], "contrast": ["t", "t"], "colour_blind": ["t", "t", "t"]}
SCREENS = {
    "findings": (views.running, ["w"]),
    "page": (views.running, ["w", "enter"]),
    "steps": (views.running, ["s"]),
    "step": (views.running, ["s", "down", "enter"]),
    "phases": (views.running, ["b"]),
    "metrics": (views.running, ["c"]),
    "gpus": (views.throttled, ["u"]),
    "gpus16": (lambda: views.running(gpus=16), ["u"]),
    "ranks": (views.many_ranks, ["r"]),
    "console": (views.running, ["l"]),
    "setup": (views.running, ["i"]),
    "throttled": (views.throttled, []),
    "palette": (views.running, ["colon"]),
}


@pytest.fixture
def shown(app_on):
    """`await shown(view, keys, size)`: what is on the screen then."""

    async def draw(view, keys=(), size=(160, 45), **options) -> str:
        app = app_on(view, **options)
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            await press(pilot, *keys)
            await pilot.wait_for_scheduled_animations()
            await pilot.pause()
            return drawn(app)

    return draw


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_running(held, shown, size) -> None:
    assert await shown(views.running(), size=size) == held


@pytest.mark.parametrize("state", STATES)
async def test_states(held, shown, state) -> None:
    assert await shown(STATES[state](), size=(120, 36)) == held


async def test_the_table_of_ranks(held, shown) -> None:
    assert await shown(views.eight_ranks(), ["8"]) == held


@pytest.mark.parametrize("size", [(160, 45), (80, 24), (60, 15)], ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("name", SCREENS)
async def test_screens(held, shown, name, size) -> None:
    make, keys = SCREENS[name]
    assert await shown(make(), keys, size) == held


@pytest.mark.parametrize("name", KEYS)
async def test_keys(held, shown, name) -> None:
    assert await shown(views.running(), KEYS[name], stop_training=lambda say: None) == held


@pytest.mark.parametrize("name", THEMES)
def test_themes(snap_compare, app_on, name) -> None:
    assert snap_compare(
        app_on(views.running()), run_before=lambda pilot: press(pilot, *THEMES[name]), terminal_size=(160, 45)
    )

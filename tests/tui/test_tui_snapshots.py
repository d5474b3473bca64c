"""Pictures of every screen. After a wanted change: make snapshots, then look at the differences."""

import pytest
import sample_views as views
from by_hand import press

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
    "paper": ["t"],
    "contrast": ["t", "t"],
    "colour_blind": ["t", "t", "t"],
}


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_running(snap_compare, app_on, size) -> None:
    assert snap_compare(app_on(views.running()), terminal_size=size)


@pytest.mark.parametrize("state", STATES)
def test_states(snap_compare, app_on, state) -> None:
    assert snap_compare(app_on(STATES[state]()), terminal_size=(120, 36))


def test_the_table_of_ranks(snap_compare, app_on) -> None:
    assert snap_compare(app_on(views.eight_ranks()), press=["8"], terminal_size=(160, 45))


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


@pytest.mark.parametrize("size", [(160, 45), (80, 24), (60, 15)], ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("name", SCREENS)
def test_screens(snap_compare, app_on, name, size) -> None:
    make, keys = SCREENS[name]
    assert snap_compare(app_on(make()), run_before=lambda pilot: press(pilot, *keys), terminal_size=size)


@pytest.mark.parametrize("name", KEYS)
def test_keys(snap_compare, app_on, name) -> None:
    app = app_on(views.running(), stop_training=lambda say: None)
    assert snap_compare(app, run_before=lambda pilot: press(pilot, *KEYS[name]), terminal_size=(160, 45))

"""Keys of a person's own: what takes effect, and what is refused, in one line with what to do."""

import re
from pathlib import Path

import pytest
from textual.dom import DOMNode

from monitor import keymap, settings
from monitor.assigned_keys import BadKey, assigned_keys
from monitor.errors import UserError
from monitor.keymap import DEFAULT_KEYS, FIXED_KEYS, REPLAY_ACTIONS, SCREEN_ACTIONS
from monitor.tui import runs_app
from monitor.tui.actions import ACTIONS, bindings
from monitor.tui.app import TrainmonApp
from monitor.tui.replay_app import ReplayApp
from monitor.tui.runs_app import RunsApp
from monitor.tui.screens import compare_screen, dialogs
from monitor.tui.screens.dialogs import Dialog
from monitor.tui.screens.page import Finder


def changed(given: dict[str, object]) -> dict[str, tuple[str, ...]]:
    return {name: keys for name, keys in assigned_keys(given).items() if keys != DEFAULT_KEYS[name]}


def test_nothing_chosen_changes_nothing() -> None:
    assert assigned_keys({}) == DEFAULT_KEYS


@pytest.mark.parametrize(
    ("given", "becomes"),
    [
        ({"pause": "space"}, {"pause": ("space",)}),
        ({"why": ["F", "f5", "F"]}, {"why": ("F", "f5")}),
        ({"theme": "p"}, {"theme": ("p",), "pause": ("space",)}),
        ({"why": "t", "theme": "w"}, {"why": ("t",), "theme": ("w",)}),
        ({"cursor_left": "left"}, {"cursor_left": ("left",)}),
    ],
)
def test_a_key_that_is_given_is_taken_from_where_it_was(
    given: dict[str, object], becomes: dict[str, tuple[str, ...]]
) -> None:
    assert changed(given) == becomes


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"pause": "spcae"}, "unknown key 'spcae'; did you mean space"),
        ({"pause": "é"}, "unknown key"),
        ({"pause": "\x1b"}, "unknown key"),
        ({"pause": ""}, "unknown key ''; a key is one character"),
        ({"pause": 7}, "must be a key or a list of keys"),
        ({"pause": []}, "must be a key or a list of keys"),
        ({"pause": ["x", 7]}, "must be a key or a list of keys"),
        ({"why": "v"}, "'v' cannot be reassigned"),
        ({"why": "ctrl+c"}, "'ctrl\\+c' cannot be reassigned"),
        ({"theme": "w"}, "'w' is the only key of why; assign another one"),
        ({"pause": "P", "theme": "P"}, "'P' is assigned to both pause and theme"),
    ],
)
def test_what_cannot_be_is_said(given: dict[str, object], says: str) -> None:
    with pytest.raises(BadKey, match=says):
        assigned_keys(given)


def test_no_key_that_may_be_chosen_means_something_else_anywhere() -> None:
    fixed = {key for action in (*ACTIONS, *REPLAY_ACTIONS) if not action.setting for key in action.keys}
    own = {key for actions in SCREEN_ACTIONS.values() for action in actions for key in action.keys}
    assert fixed | own == FIXED_KEYS
    assert {action.setting for action in ACTIONS} - {""} == set(DEFAULT_KEYS)


TABLES: dict[type[DOMNode], tuple[keymap.Action, ...]] = {
    TrainmonApp: ACTIONS,
    ReplayApp: REPLAY_ACTIONS,
    RunsApp: keymap.RUNS_ACTIONS,
    Dialog: (keymap.CLOSE,),
    dialogs.QuitScreen: keymap.QUIT_ACTIONS,
    dialogs.StopScreen: keymap.STOP_ACTIONS,
    dialogs.TaskScreen: (),
    dialogs.StacksScreen: (),
    dialogs.AskForTraceScreen: keymap.TRACE_ACTIONS,
    dialogs.HelpScreen: keymap.HELP_ACTIONS,
    dialogs.PaletteScreen: keymap.PALETTE_ACTIONS,
    dialogs.MetricScreen: (),
    runs_app.StopQuestion: keymap.STOP_RUN_ACTIONS,
    runs_app.RunsHelp: keymap.HELP_ACTIONS,
    compare_screen.CompareScreen: keymap.COMPARISON_ACTIONS,
}


@pytest.mark.parametrize("owner", TABLES, ids=lambda owner: owner.__name__)
def test_every_binding_is_in_the_table_and_has_a_handler(owner: type[DOMNode]) -> None:
    assert owner.__dict__.get("BINDINGS", []) == bindings(TABLES[owner])
    for action in TABLES[owner]:
        name = action.name.partition("(")[0]
        assert name.startswith("app.") or hasattr(owner, f"action_{name}")


def test_no_key_is_bound_elsewhere() -> None:
    assert {*Dialog.__subclasses__(), Dialog} <= set(TABLES)
    texts = {path.name: path.read_text(encoding="utf-8") for path in Path("monitor").rglob("*.py")}
    assert [name for name, text in texts.items() if "Binding(" in text] == ["actions.py"]
    assert not [name for name, text in texts.items() if re.search(r"event\.key\b [!=]=|event\.key in \(", text)]
    assert all(hasattr(Finder, f"_{action.name}") for action in keymap.SEARCH_ACTIONS)


def test_a_wrong_key_in_the_file_is_told_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINMON_DIR", str(tmp_path))
    source = tmp_path / "config.toml"
    source.write_text('[keys]\npause = "spcae"\n')
    with pytest.raises(UserError, match="did you mean space") as told:
        settings.saves_bandwidth(False)  # before any screen opens
    assert str(source) in str(told.value)
    source.write_text('[keys]\npuase = "space"\n')
    with pytest.raises(UserError, match=r"unknown key puase in \[keys\]; did you mean pause\?"):
        settings.keys()

"""Everything a key can do: the one list from which bindings, footer and help are made."""

from __future__ import annotations

from dataclasses import dataclass

from textual.binding import Binding

PANELS: tuple[tuple[str, str], ...] = (
    ("steps", "Step time by phase"),
    ("phases", "Where the time goes"),
    ("metric", "Metrics"),
    ("tokens", "Tokens a second"),
    ("alerts", "Alerts"),
    ("console", "Console"),
    ("machine", "Machine"),
    ("ranks", "Ranks"),
)


@dataclass(frozen=True)
class Action:
    name: str  # of the app's method action_<name>, with its arguments
    keys: tuple[str, ...]
    shown: str  # the keys as a person reads them
    help: str
    footer: str = ""  # empty: in the help only


ACTIONS: tuple[Action, ...] = (
    Action("detach", ("q", "ctrl+q"), "q", "Detach: close the dashboard, the training goes on", "detach"),
    Action("help", ("question_mark", "f1"), "?", "Show or hide this help", "help"),
    Action("why", ("w",), "w", "Why is it slow: every finding with its evidence and advice", "why"),
    Action("pause", ("p", "space"), "p", "Pause the screen: nothing moves until you press it again", "pause"),
    Action("maximise", ("f", "z", "enter"), "f", "Give the focused panel the whole screen, and back", "full"),
    Action("next_metric", ("m",), "m", "Show the next metric", "metric"),
    Action("choose_metric", ("M",), "M", "Choose a metric from a list"),
    Action("theme", ("t",), "t", "Theme: dark, light, high contrast, colour-blind safe", "theme"),
    *(
        Action(f"panel('{name}')", (str(number),), str(number), f"{title}: go to it; again: hide it")
        for number, (name, title) in enumerate(PANELS, 1)
    ),
    Action("app.focus_next", ("tab",), "Tab", "Go to the next panel"),
    Action("app.focus_previous", ("shift+tab",), "Shift+Tab", "Go to the panel before"),
    Action("scroll(-1)", ("up", "k"), "↑", "Scroll the focused panel up"),
    Action("scroll(1)", ("down", "j"), "↓", "Scroll it down"),
    Action("scroll_page(-1)", ("pageup",), "PgUp", "Scroll it up by a page"),
    Action("scroll_page(1)", ("pagedown",), "PgDn", "Scroll it down by a page"),
    Action("scroll_end(-1)", ("home", "g"), "Home", "Scroll it to its start"),
    Action("scroll_end(1)", ("end", "G"), "End", "Scroll it to its end"),
    Action("restore", ("escape",), "Esc", "Leave full screen, or close a dialog"),
    Action("ask_to_quit", ("ctrl+c",), "Ctrl-C", "Detach, or stop the training: asks first"),
)
_ALWAYS = {"ask_to_quit"}  # works under dialogs too


def bindings() -> list[Binding]:
    return [
        Binding(",".join(action.keys), action.name, action.help, show=False, priority=action.name in _ALWAYS)
        for action in ACTIONS
    ]

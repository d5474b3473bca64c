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
    name: str  # of the app's method action_<name>, with its arguments; on a screen of its body's method do_<name>
    keys: tuple[str, ...]
    shown: str  # the keys as a person reads them
    help: str
    footer: str = ""  # empty: in the help only


@dataclass(frozen=True)
class ScreenRow:
    """A screen beside the overview: its name, the key that opens it, and what it is for."""

    name: str
    key: str
    label: str  # in the footer
    help: str


SCREENS: tuple[ScreenRow, ...] = (
    ScreenRow("findings", "w", "why", "Why is it slow: every finding with its evidence, what to try, and all alerts"),
    ScreenRow("steps", "s", "steps", "Steps: a table of single steps; one opened shows all that is known of it"),
    ScreenRow("breakdown", "b", "phases", "Phases: how long each takes, how often, per role and stage"),
    ScreenRow("charts", "c", "metrics", "Metrics: a small chart of each; filter, log scale, smoothing, two in one"),
    ScreenRow("gpus", "u", "GPUs", "GPUs: clocks, what holds them back, power, memory, links, processes"),
    ScreenRow("ranks", "r", "ranks", "Ranks: who waits for whom"),
    ScreenRow("log", "l", "console", "Console: all that the training printed; search and follow"),
    ScreenRow("setup", "i", "setup", "Setup: the command, its settings, versions and hardware"),
)


ACTIONS: tuple[Action, ...] = (
    Action("detach", ("q", "ctrl+q"), "q", "Detach: close the dashboard, the training goes on", "detach"),
    Action("help", ("question_mark", "f1"), "?", "Show or hide this help", "help"),
    *(Action(f"show('{row.name}')", (row.key,), row.key, row.help, row.label) for row in SCREENS),
    Action("palette", ("colon", "ctrl+p"), ":", "Find an action or a screen by its name"),
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
    Action("restore", ("escape", "o"), "Esc", "Back to the overview; leave full screen, or close a dialog"),
    Action("ask_to_quit", ("ctrl+c",), "Ctrl-C", "Detach, or stop the training: asks first"),
)
_ALWAYS = {"ask_to_quit"}  # works under dialogs too


# What a screen's own keys do, beside those above. A list of rows has these, too.
_ROWS = (
    Action("move(-1)", ("up", "k"), "↑", "Go a row up"),
    Action("move(1)", ("down", "j"), "↓", "Go a row down"),
    Action("move_page(-1)", ("pageup",), "PgUp", "Go a page up"),
    Action("move_page(1)", ("pagedown",), "PgDn", "Go a page down"),
    Action("move(-1000000)", ("home", "g"), "Home", "Go to the first row"),
    Action("move(1000000)", ("end", "G"), "End", "Go to the last row"),
)
_OPEN = Action("open", ("enter",), "Enter", "Open the row; again: back to the list", "open")
_FIND = Action("find", ("slash",), "/", "Find: type a part of a name; Enter keeps it, Esc drops it", "find")
SCREEN_ACTIONS: dict[str, tuple[Action, ...]] = {
    "findings": (_OPEN, *_ROWS),
    "steps": (
        _OPEN,
        Action("sort(1)", ("right", "greater_than_sign"), "→", "Sort by the next column", "sort"),
        Action("sort(-1)", ("left", "less_than_sign"), "←", "Sort by the column before"),
        Action("reverse", ("v",), "v", "Reverse the order", "reverse"),
        Action("slow", ("x",), "x", "Show slow and skipped steps only, or all", "only slow"),
        *_ROWS,
    ),
    "breakdown": (*_ROWS,),
    "charts": (
        _FIND,
        Action("logarithm", ("y",), "y", "Logarithmic scale, or linear", "log"),
        Action("smooth", ("n",), "n", "Smooth: not, a little, much", "smooth"),
        Action("overlay", ("d",), "d", "Mark a metric, and draw it into each other one; again: no longer", "overlay"),
        Action("open", ("enter",), "Enter", "Give the metric the whole screen, and back", "large"),
        Action("move(-1)", ("left", "up", "k"), "←", "Go to the metric before"),
        Action("move(1)", ("right", "down", "j"), "→", "Go to the next metric"),
        *_ROWS[2:],
    ),
    "gpus": (_OPEN, *_ROWS),
    "ranks": (*_ROWS,),
    "log": (
        _FIND,
        Action("next(-1)", ("n",), "n", "Go to the match before", "match"),
        Action("next(1)", ("N",), "N", "Go to the next match"),
        *_ROWS,
    ),
    "setup": (_FIND, *_ROWS),
}


def screen_bindings(screen: str) -> list[Binding]:
    rows = SCREEN_ACTIONS[screen]
    return [Binding(",".join(row.keys), f"body({row.name!r})", row.help, show=False) for row in rows]


def bindings() -> list[Binding]:
    return [
        Binding(",".join(action.keys), action.name, action.help, show=False, priority=action.name in _ALWAYS)
        for action in ACTIONS
    ]

"""The registry of actions: key bindings, footer and help are made from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from textual.binding import Binding

from monitor.settings import DEFAULT
from monitor.tui.panels.base import Action as Action
from monitor.tui.panels.base import board_panels

LANE = "lane"  # an action: the footer names the clock that it switches to; left out where there is only one clock
LEAP = 0.05  # share of a recording that one key press skips
LEAP_WORDS = f"by {LEAP * 100:.0f}%"
PANELS = tuple(panel.place for panel in board_panels())


_SHOWN = {"left": "←", "right": "→", "up": "↑", "down": "↓", "pageup": "PgUp", "pagedown": "PgDn"}


def shown(key: str) -> str:
    """Return a key as it is displayed."""
    return key if len(key) == 1 else _SHOWN.get(key, "-".join(part.capitalize() for part in key.split("+")))


@dataclass(frozen=True)
class ScreenRow:
    """A screen other than the overview: its name, and what it shows."""

    name: str
    label: str  # in the footer
    help: str

    @property
    def key(self) -> str:
        """The default key."""
        return DEFAULT[self.label.lower()][0]


SCREENS: tuple[ScreenRow, ...] = (
    ScreenRow("findings", "why", "Why is it slow: every finding with its evidence, what to try, and all alerts"),
    ScreenRow("steps", "steps", "Steps: a table of single steps; one opened shows all that is known of it"),
    ScreenRow("breakdown", "phases", "Phases: how long each takes, how often, per role and stage"),
    ScreenRow("charts", "metrics", "Metrics: a small chart of each; filter, log scale, smoothing, two in one"),
    ScreenRow("gpus", "GPUs", "GPUs: clocks, what holds them back, power, memory, links, processes"),
    ScreenRow("ranks", "ranks", "Ranks: who waits for whom"),
    ScreenRow("log", "console", "Console: all that the training printed; search and follow"),
    ScreenRow("setup", "setup", "Setup: the command, its settings, versions and hardware"),
)


def _own(name: str, setting: str, help: str, footer: str = "") -> Action:
    """Return an action whose keys are configurable, as `setting`."""
    return Action(name, DEFAULT[setting], shown(DEFAULT[setting][0]), help, footer, setting)


def _screen(row: ScreenRow) -> Action:
    return _own(f"show('{row.name}')", row.label.lower(), row.help, row.label)


ACTIONS: tuple[Action, ...] = (
    _own("detach", "detach", "Detach: close the dashboard, the training goes on", "detach"),
    _own("help", "help", "Help: every key, the signs, and what the screen shows", "help"),
    _screen(SCREENS[0]),
    Action(LANE, ("h",), "h", "Steps and phases by the GPU clock or the host clock", "other clock"),
    *map(_screen, SCREENS[1:]),
    _own("palette", "palette", "Find an action or a screen by its name"),
    _own("pause", "pause", "Pause the screen: nothing moves until you press it again", "pause"),
    _own("maximize", "full", "Give the focused panel the whole screen, and back", "full"),
    _own("next_metric", "next_metric", "Show the next metric", "metric"),
    _own("choose_metric", "choose_metric", "Choose a metric from a list"),
    _own("theme", "theme", "Theme: dark, light, high contrast, color-blind safe", "theme"),
    _own("cursor(-1)", "cursor_left", "Time cursor: each chart tells its value at an earlier step"),
    _own("cursor(1)", "cursor_right", "Time cursor: at a later one; Esc ends it"),
    Action("cursor(-10)", ("shift+left",), "Shift+←", "Time cursor: ten times as far back"),
    Action("cursor(10)", ("shift+right",), "Shift+→", "Time cursor: ten times as far on"),
    *(
        Action(
            f"panel('{panel.name}')",
            (str(panel.number),),
            str(panel.number),
            f"{panel.title}: go to it; again: hide it",
        )
        for panel in PANELS
    ),
    Action("app.focus_next", ("tab",), "Tab", "Go to the next panel"),
    Action("app.focus_previous", ("shift+tab",), "Shift+Tab", "Go to the panel before"),
    Action("scroll(-1)", ("up", "k"), "↑", "Scroll the focused panel up"),
    Action("scroll(1)", ("down", "j"), "↓", "Scroll it down"),
    Action("scroll_page(-1)", ("pageup",), "PgUp", "Scroll it up by a page"),
    Action("scroll_page(1)", ("pagedown",), "PgDn", "Scroll it down by a page"),
    Action("scroll_end(-1)", ("home", "g"), "Home", "Scroll it to its start"),
    Action("scroll_end(1)", ("end", "G"), "End", "Scroll it to its end"),
    Action("restore", ("escape", "o"), "Esc", "Back to the overview; end the time cursor, full screen or a dialog"),
    Action("ask_to_quit", ("ctrl+c",), "Ctrl-C", "Detach, or stop the training: asks first while it runs"),
)
_ALWAYS = {"ask_to_quit"}  # works under dialogs too


# The screens' own keys, in addition to those above. Every list of rows has these.
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
        Action("sort(1)", ("right", "greater_than_sign"), "→", "Sort by the next column, in sight or not", "sort"),
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
        Action(
            "beside(-1)", ("left",), "←", "Go to the metric before; in a large one the time cursor, as [ everywhere"
        ),
        Action("beside(1)", ("right",), "→", "Go to the next metric; in a large one the time cursor, as ] everywhere"),
        *_ROWS,
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
    """Return the bindings of a screen's own keys."""
    rows = SCREEN_ACTIONS[screen]
    return [Binding(",".join(row.keys), f"body({row.name!r})", row.help, show=False) for row in rows]


def with_keys(keys: Mapping[str, tuple[str, ...]], actions: tuple[Action, ...] = ACTIONS) -> tuple[Action, ...]:
    """Return `actions` with the configured keys."""
    return tuple(
        replace(action, keys=keys[action.setting], shown=shown(keys[action.setting][0]))
        if keys.get(action.setting, action.keys) != action.keys
        else action
        for action in actions
    )


def key_of(setting: str, actions: tuple[Action, ...]) -> str:
    """Return the key of a configurable action, as it is displayed."""
    return next(action.shown for action in actions if action.setting == setting)


def bindings(actions: tuple[Action, ...] = ACTIONS) -> list[Binding]:
    """Return Textual's bindings; those with configurable keys have their setting as id."""
    return [
        Binding(
            spelled(action.keys), action.name, action.help, show=False, priority=action.name in _ALWAYS,
            id=action.setting or None,
        )
        for action in actions
    ]  # fmt: skip


def spelled(keys: tuple[str, ...]) -> str:
    """Return keys as Textual takes them: separated by commas."""
    return ",".join("comma" if key == "," else key for key in keys)

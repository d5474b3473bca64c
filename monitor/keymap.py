"""All keys of the screens, and what each does: bindings, footers, help and settings are made from this table. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

LANE = "lane"  # an action: the footer names the clock that it switches to; left out where there is only one clock
LEAP = 0.05  # share of a recording that one key press skips
LEAP_WORDS = f"by {LEAP * 100:.0f}%"
PANELS = 8  # on the board; the key of each is its number

_SHOWN = {
    "left": "←", "right": "→", "up": "↑", "down": "↓", "shift+left": "Shift+←", "shift+right": "Shift+→",
    "shift+tab": "Shift+Tab", "pageup": "PgUp", "pagedown": "PgDn", "escape": "Esc",
}  # fmt: skip


def shown_key(key: str) -> str:
    """Return a key as it is displayed."""
    return key if len(key) == 1 else _SHOWN.get(key, "-".join(part.capitalize() for part in key.split("+")))


@dataclass(frozen=True)
class Action:
    """What a key does."""

    name: str  # its handler: the app's or dialog's method action_<name>, or a body's do_<name>, with arguments
    keys: tuple[str, ...]
    help: str  # empty: a variation of the action before, which tells of it
    footer: str = ""  # empty: in the help only
    setting: str = ""  # its name in the configuration's [keys]; empty: not configurable
    footer_key: str = ""  # shown in the footer in place of its key, for a group of similar actions

    @property
    def shown(self) -> str:
        """Return its first key as it is displayed."""
        return shown_key(self.keys[0])

    @property
    def shown_in_footer(self) -> str:
        return self.footer_key or self.shown


def _screen(name: str, setting: str, key: str, help: str) -> Action:
    """Return the action that opens the screen `name`; `setting` in the footer's spelling."""
    return Action(f"show('{name}')", (key,), help, setting, setting.lower())


# The screens other than the overview.
SCREENS: dict[str, Action] = {
    name: _screen(name, *rest)
    for name, *rest in (
        ("findings", "why", "w", "Why is it slow: every finding with its evidence, what to try, and all alerts"),
        ("steps", "steps", "s", "Steps: a table of single steps; one opened shows all that is known of it"),
        ("breakdown", "phases", "b", "Phases: how long each takes, how often, per role and stage"),
        ("charts", "metrics", "c", "Metrics: a small chart of each; filter, log scale, smoothing, two in one"),
        ("gpus", "GPUs", "u", "GPUs: clocks, what holds them back, power, memory, links, processes"),
        ("ranks", "ranks", "r", "Ranks: the phases of each, who waits for whom; one opened beside the others"),
        ("log", "console", "l", "Console: all that the training printed; search and follow"),
        ("setup", "setup", "i", "Setup: the command, its settings, versions and hardware"),
    )
}
# Looked at rarely: the footer has no room for it.
_TRACE = "Traced steps: the kernels or operators that took their time"
SCREENS["trace"] = Action("show('trace')", ("K",), _TRACE, setting="trace")
_FINDINGS, *_OTHER_SCREENS = SCREENS.values()
_PAUSE_KEYS = ("p", "space")
_HELP = Action("help", ("?", "f1"), "Help: every key, the signs, and what the screen shows", "help", "help")
CLOSE = Action("close", ("escape",), "Close the dialog")
FOCUS_NEXT = Action("app.focus_next", ("tab",), "Go to the next panel", "panels", footer_key=f"1–{PANELS}")
MOUSE = Action("mouse", ("V",), "Select text: give the terminal the mouse, or take it back", setting="mouse")
ASK_TO_QUIT = Action("ask_to_quit", ("ctrl+c",), "Detach, or stop the training: asks first while it runs")
RESTORE = Action("restore", (*CLOSE.keys, "o"), "Back to the overview; end the time cursor, full screen or a dialog")

# On every screen, without the keys of the panels.
GLOBAL_ACTIONS: tuple[Action, ...] = (
    Action("detach", ("q", "ctrl+q"), "Detach: close the dashboard, the training goes on", "detach", "detach"),
    _HELP,
    _FINDINGS,
    Action(LANE, ("h",), "Steps and phases by the GPU clock or the host clock", "other clock"),
    *_OTHER_SCREENS,
    Action("palette", (":", "ctrl+p"), "Find an action or a screen by its name", setting="palette"),
    Action("stacks", ("S",), "Stacks: where each thread of each rank is now", setting="stacks"),
    Action("copy", ("Y",), "Copy the short report to the clipboard: why, what to do", setting="copy"),
    Action("write", ("ctrl+s",), "Write the screen into a file here, as a picture (SVG)", setting="write"),
    MOUSE,
    Action("pause", _PAUSE_KEYS, "Pause the screen: nothing moves until you press it again", "pause", "pause"),
    Action("maximize", ("f", "z", "enter"), "Give the focused panel the whole screen, and back", "full", "full"),
    Action("next_metric", ("m",), "Show the next metric", "metric", "next_metric"),
    Action("choose_metric", ("M",), "Choose a metric from a list", setting="choose_metric"),
    Action("theme", ("t",), "Theme: dark, light, high contrast, color-blind safe", "theme", "theme"),
    Action("cursor(-1)", ("left", "["), "Time cursor: each chart's value at an earlier step", setting="cursor_left"),
    Action("cursor(1)", ("right", "]"), "Time cursor: at a later one, Shift: ten times on", setting="cursor_right"),
    Action("cursor(-10)", ("shift+left",), ""),
    Action("cursor(10)", ("shift+right",), ""),
    Action("zoom(1)", ("e",), "Zoom in: fewer steps in all charts; as the wheel", setting="zoom_in"),
    Action("zoom(-1)", ("E",), "Zoom out; Esc ends cursor and zoom", setting="zoom_out"),
    FOCUS_NEXT,
    Action("app.focus_previous", ("shift+tab",), "Go to the panel before"),
    Action("scroll(-1)", ("up", "k"), "Scroll the focused panel up"),
    Action("scroll(1)", ("down", "j"), "Scroll it down"),
    Action("scroll_page(-1)", ("pageup",), "Scroll it up by a page"),
    Action("scroll_page(1)", ("pagedown",), "Scroll it down by a page"),
    Action("scroll_end(-1)", ("home", "g"), "Scroll it to its start"),
    Action("scroll_end(1)", ("end", "G"), "Scroll it to its end"),
    RESTORE,
    ASK_TO_QUIT,
)

REPLAY_ACTIONS: tuple[Action, ...] = (
    Action("pause", _PAUSE_KEYS, "Pause the replay, or go on; at its end begin anew", "pause", "pause"),
    Action("replay_step(1)", (".",), "Replay: go on by one step", "step"),
    Action("replay_step(-1)", (",",), "Replay: go back by one step"),
    Action("replay_faster(2)", ("+",), "Replay: twice as fast", "faster"),
    Action("replay_faster(0.5)", ("-",), "Replay: half as fast"),
    Action(f"replay_seek({LEAP})", (")",), "Replay: go on by a twentieth of the recording", f"on {LEAP_WORDS}"),
    Action(f"replay_seek(-{LEAP})", ("(",), "Replay: go back by a twentieth of it"),
)

# Of single screens, in addition to the global ones. Every list of rows has these.
_ROWS = (
    Action("move(-1)", ("up", "k"), "Go a row up"),
    Action("move(1)", ("down", "j"), "Go a row down", "scroll", footer_key="↑↓"),
    Action("move_page(-1)", ("pageup",), "Go a page up"),
    Action("move_page(1)", ("pagedown",), "Go a page down"),
    Action("move(-1000000)", ("home", "g"), "Go to the first row"),
    Action("move(1000000)", ("end", "G"), "Go to the last row"),
)
OPEN = Action("open", ("enter",), "Open the row; again: back to the list", "open")
_FIND = Action("find", ("/",), "Find: type a part of a name; Enter keeps it, Esc drops it", "find")
SCREEN_ACTIONS: dict[str, tuple[Action, ...]] = {
    "findings": (OPEN, *_ROWS),
    "steps": (
        OPEN,
        Action("sort(1)", ("right", ">"), "Sort by the next column, in sight or not", "sort"),
        Action("sort(-1)", ("left", "<"), "Sort by the column before"),
        Action("reverse", ("v",), "Reverse the order", "reverse"),
        Action("slow", ("x",), "Show slow and skipped steps only, or all", "only slow"),
        *_ROWS,
    ),
    "breakdown": _ROWS,
    "charts": (
        _FIND,
        Action("logarithm", ("y",), "Logarithmic scale, or linear", "log"),
        Action("smooth", ("n",), "Smooth: not, a little, much", "smooth"),
        Action("overlay", ("d",), "Mark a metric, and draw it into each other one; again: no longer", "overlay"),
        Action("open", ("enter",), "Give the metric the whole screen, and back", "large"),
        Action("beside(-1)", ("left",), "Go to the metric before; in a large one the time cursor, as [ everywhere"),
        Action("beside(1)", ("right",), "Go to the next metric; in a large one the time cursor, as ] everywhere"),
        *_ROWS,
    ),
    "gpus": (OPEN, *_ROWS),
    "ranks": (OPEN, *_ROWS),
    "trace": (Action("ask", ("n",), "Trace three steps now; asks first", "trace now"), *_ROWS),
    "log": (
        _FIND,
        Action("only", ("&",), "Only the lines with a match, of the whole output; again: all", "only matches"),
        Action("step", ("enter",), "Open the step that was open when the line at ▸ was printed", "its step"),
        Action("next(-1)", ("n",), "Go to the match before", "match"),
        Action("next(1)", ("N",), "Go to the next match"),
        *_ROWS,
    ),
    "setup": (_FIND, *_ROWS),
}
SEARCH_ACTIONS = (  # while a search line is open
    Action("keep_search", ("enter",), "Close the line; what it has found stays"),
    Action("drop_search", ("escape",), "Close the line, and show all"),
    Action("erase", ("backspace",), "Erase the last character"),
)

# Of dialogs, in addition to `CLOSE`.
QUIT_ACTIONS = (
    Action("answer('detach')", ("d",), "Detach: close the dashboard; the training continues"),
    Action("answer('stop')", ("s",), "Stop the training"),
    Action("close", ("c", "q"), "Cancel: back to the dashboard"),
)
STOP_ACTIONS = (Action("leave", ("q",), "Close the dashboard once the training has stopped", setting="detach"),)
TRACE_ACTIONS = (
    Action("trace", ("y",), "Trace the next three steps"),
    Action("close", ("n", "q"), "Back to the dashboard"),
)
HELP_ACTIONS = (Action("close", (*_HELP.keys, "q"), "Close the help"),)
PALETTE_ACTIONS = (Action("choose(1)", ("down",), "Next action"), Action("choose(-1)", ("up",), "Action before"))
STOP_RUN_ACTIONS = (
    Action("close", ("n", "q"), "No: leave it running"),
    Action("answer(True)", ("y",), "Stop it: SIGINT, at 30 s SIGTERM, at 60 s SIGKILL"),
)
COMPARISON_ACTIONS = (Action("close", ("c", "q"), "Close the comparison"),)

# Of the list of runs, in the order of its footer.
MARK = Action("mark", ("space",), "Mark the run", "mark")
COMPARE = Action("compare", ("c",), "Compare the marked runs", "compare")
STOP_RUN = Action("stop", ("k",), "Stop the training", "stop")
RUNS_ACTIONS = (
    Action("choose('open')", ("enter",), "Open the run", "open"),
    MARK,
    COMPARE,
    Action("leave", ("q", "ctrl+q", "ctrl+c"), "Quit", "quit"),
    STOP_RUN,
    Action("find", ("/",), "Filter the runs: words, and conditions as lr>=1e-3 or state:running", "filter"),
    Action("help", _HELP.keys, "Help: every key, and what a filter takes", "help"),
    Action("choose('replay')", ("r",), "Replay the run", "replay"),
    Action("group", ("b",), "Group by the next: by name, by command, by a tag, not at all", "group"),
    Action("theme", ("t",), "The next theme", "theme"),
    Action("sort(1)", ("right", ">"), "Sort by the next column"),
    Action("sort(-1)", ("left", "<"), "Sort by the column before"),
    Action("reverse", ("v",), "Reverse the order"),
    MOUSE,
    Action("restore", CLOSE.keys, "Show all runs again"),
    Action("move(-1)", ("up",), "Go a row up"),
    Action("move(1)", ("down", "j"), "Go a row down"),
    Action("move(-20)", ("pageup",), "Go a page up"),
    Action("move(20)", ("pagedown",), "Go a page down"),
    Action("move(-100000)", ("home", "g"), "Go to the first row"),
    Action("move(100000)", ("end", "G"), "Go to the last row"),
)

# Configurable keys: their defaults, by their names in the configuration.
DEFAULT_KEYS = {action.setting: action.keys for action in GLOBAL_ACTIONS if action.setting}
# Keys that cannot be reassigned: of panels, navigation, single screens and a replay.
FIXED_KEYS = frozenset(str(number) for number in range(1, PANELS + 1)) | {
    key
    for actions in (GLOBAL_ACTIONS, REPLAY_ACTIONS, *SCREEN_ACTIONS.values())
    for action in actions
    if not action.setting
    for key in action.keys
}


def with_keys(keys: Mapping[str, tuple[str, ...]], actions: Iterable[Action]) -> tuple[Action, ...]:
    """Return `actions` with the configured keys."""
    return tuple(replace(action, keys=keys.get(action.setting, action.keys)) for action in actions)


def key_of(setting: str, actions: Iterable[Action]) -> str:
    """Return the key of a configurable action, as it is displayed; empty if there is no such action."""
    return next((action.shown for action in actions if action.setting == setting), "")

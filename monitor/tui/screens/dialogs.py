"""The dialogs: help, command palette, quit and stop, choice of a metric."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import ClassVar, TypeVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from monitor import units
from monitor.keymap import (
    ASK_TO_QUIT,
    CLOSE,
    HELP_ACTIONS,
    PALETTE_ACTIONS,
    QUIT_ACTIONS,
    SCREEN_ACTIONS,
    STOP_ACTIONS,
    TRACE_ACTIONS,
    Action,
)
from monitor.model.report import MetricRow
from monitor.tui.actions import ACTIONS, bindings
from monitor.tui.drawing.rows import column, fit, row_width, text_width, wrap
from monitor.tui.feed import AskForTrace, StopTraining, TellStacks
from monitor.tui.screens.page import Body
from monitor.tui.textual_private import PatientScreen

Answer = TypeVar("Answer")
MAX_BOX_WIDTH = 110  # cells of a wide box, as in trainmon.tcss
MAX_BOX_HEIGHT_SHARE = 0.9  # share of the screen's height that a wide box takes at most, as in trainmon.tcss
MAX_LIST_ROWS = 24  # rows of a list
KEYS_WIDTH, NARROW_KEYS_WIDTH = 9, 5  # cells of the keys, on a wide and on a narrow screen
NARROW_SCREEN_WIDTH = 80  # cells; a screen with fewer is narrow


def key_line(key: str, meaning: str, screen: int) -> str:
    """Return a key and its meaning as a line, on a screen of `screen` cells."""
    return f"{key:>{NARROW_KEYS_WIDTH if screen < NARROW_SCREEN_WIDTH else KEYS_WIDTH}}  {meaning}"


class Dialog(PatientScreen[Answer], ModalScreen[Answer]):
    """A titled box in the middle of the screen that Escape closes."""

    BINDINGS: ClassVar[list[BindingType]] = bindings((CLOSE,))
    AUTO_FOCUS = "*"
    wide: ClassVar[bool] = False
    widest: ClassVar[int] = MAX_BOX_WIDTH  # cells of a wide box
    heading: ClassVar[str] = ""

    def parts(self) -> list[Widget]:
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        box = Vertical(*self.parts(), id="dialog", classes="wide" if self.wide else None)
        if self.wide:
            box.styles.width = self.widest
        box.border_title = Content(self.heading)
        box.border_subtitle = Content(f"{CLOSE.shown} closes")
        yield box

    @property
    def _scrolled(self) -> list[Widget]:
        """Return the widgets that can be longer than the box."""
        return [*self.query(VerticalScroll), *self.query(OptionList)]

    def on_mount(self) -> None:
        for scrolled in self._scrolled:
            for what in ("scroll_y", "virtual_size"):
                self.watch(scrolled, what, self._update_hint_later)

    def on_resize(self) -> None:
        self._keep_within()
        self._update_hint_later()

    def _keep_within(self) -> None:
        """Limit lists to the height of the box, so that the selected option is never below its edge."""
        box = self.query_one("#dialog")
        room = int((MAX_BOX_HEIGHT_SHARE if self.wide else 1) * self.size.height) - box.gutter.height
        for options in self.query(OptionList):
            beside = [other for other in box.children if other is not options]
            taken = sum(other.outer_size.height + other.styles.margin.height for other in beside)
            options.styles.max_height = max(1, min(MAX_LIST_ROWS, room - taken))

    def _update_hint_later(self) -> None:
        self.call_after_refresh(self._update_hint)

    def _update_hint(self) -> None:
        """Show at the edge of the box whether more can be scrolled to."""
        more = any(scrolled.scroll_y < scrolled.max_scroll_y for scrolled in self._scrolled)
        self.query_one("#dialog").border_subtitle = Content(f"{'↓ more   ' * more}{CLOSE.shown} closes")

    def action_close(self) -> None:
        self.dismiss(None)


TASK_POLL_SECONDS = 0.1  # between two checks for new lines of a task
NO_STOP = "Stopping needs `trainmon stop RUN`."


class QuitScreen(Dialog[str]):
    """The dialog on Ctrl-C. It answers `detach`, `stop`, or None for going back."""

    heading = "The training is running"
    BINDINGS: ClassVar[list[BindingType]] = bindings(QUIT_ACTIONS)

    def __init__(self, can_stop: bool) -> None:
        super().__init__()
        self._can_stop = can_stop

    def parts(self) -> list[Widget]:
        names = ("detach", "stop", "cancel")
        choices = [
            Option(Content(f"{action.shown}  {action.help}"), id=name)
            for name, action in zip(names, QUIT_ACTIONS, strict=True)
            if name != "stop" or self._can_stop
        ]
        hint = f"{ASK_TO_QUIT.shown} again detaches."
        hint = hint if self._can_stop else f"{NO_STOP} {hint}"
        return [OptionList(*choices), Static(Content(hint), classes="hint")]

    def action_answer(self, answer: str) -> None:
        if answer == "detach" or self._can_stop:
            self.dismiss(answer)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(None if event.option_id == "cancel" else event.option_id)


class TaskScreen(Dialog[None]):
    """Do something in a thread and show each line that it reports. Closing the dialog does not cancel it."""

    done: ClassVar[tuple[str, ...]] = ()  # the last lines, where it does not fail
    kept: ClassVar[slice] = slice(-12, None)  # of the lines that are shown

    def __init__(self, work: Callable[[Callable[[str], None]], None], failed: str) -> None:
        """
        Args:
            failed: the words before the error, where it raises one.
        """
        super().__init__()
        self._work, self._failed = work, failed
        self._lines: list[str] = []
        self._shown = 0
        self._begun = self._over = False
        self._output = Static(Content("…"))

    def parts(self) -> list[Widget]:
        return [self._output, Static(Content(f"{CLOSE.shown}: back to the dashboard"), classes="hint")]

    def begin(self) -> None:
        """Start, once."""
        if not self._begun:
            self._begun = True
            # Not a worker of Textual's: a closing app waits for those, here for the end of the training.
            threading.Thread(target=self._run, name="task-shown", daemon=True).start()
            self.set_interval(TASK_POLL_SECONDS, self._show)

    def _run(self) -> None:
        try:
            self._work(self._lines.append)
            self._lines += self.done
        except Exception as error:  # shown in the dialog; the dashboard goes on
            self._lines.append(f"{self._failed}: {error}")
        self._over = True

    def _show(self) -> None:
        if len(self._lines) > self._shown:
            self._shown = len(self._lines)
            self._output.update(Content("\n".join(fit(line, 400) for line in self._lines[self.kept])))


class StopScreen(TaskScreen):
    """Stop the training, and show how it goes."""

    heading = "Stopping the training"
    done = ("Done",)
    BINDINGS: ClassVar[list[BindingType]] = bindings(STOP_ACTIONS)

    def __init__(self, stop_training: StopTraining, leave: str = "detach") -> None:
        """
        Args:
            leave: the app's action on `q` once the stop is over.
        """
        super().__init__(stop_training, "Stop failed")
        self._leave = leave

    def on_mount(self) -> None:
        self.begin()

    async def action_leave(self) -> None:
        """Run the app's action for this key once the stop is over; until then do nothing."""
        if self._over:
            await self.app.run_action(self._leave)


class StacksScreen(TaskScreen):
    """Show where each thread of the training was when this was opened."""

    heading = "Where it is"
    wide = True
    kept = slice(None)

    def __init__(self, tell_stacks: TellStacks) -> None:
        super().__init__(tell_stacks, "Not known")

    def parts(self) -> list[Widget]:
        return [VerticalScroll(self._output)]

    def on_mount(self) -> None:
        super().on_mount()
        self.begin()


class AskForTraceScreen(TaskScreen):
    """Ask for a trace once the user has agreed, and show what the training answers."""

    heading = "Trace three steps?"
    BINDINGS: ClassVar[list[BindingType]] = bindings(TRACE_ACTIONS)

    def __init__(self, ask_for_trace: AskForTrace) -> None:
        super().__init__(ask_for_trace, "Not traced")

    def parts(self) -> list[Widget]:
        trace, close = TRACE_ACTIONS
        self._output.update(Content("The training stands still for a moment when a trace ends."))
        return [
            self._output,
            Static(Content(f"{trace.shown}: trace   {close.shown}, {CLOSE.shown}: back"), classes="hint"),
        ]

    def action_trace(self) -> None:
        if not self._begun:
            self._output.update(Content("asking…"))
        self.begin()


HELP_GAP = 3  # cells between the keys and the column beside them
MIN_HELP_COLUMN_WIDTH = 48  # cells of that column: less breaks most of its lines
MAX_HELP_WIDTH = 176  # cells of the help box, if the screen is as wide

_NOTES = (
    ("–", "unknown (never zero)"),
    ("×", "non-finite value (nan, inf)"),
    ("▲", "slow step"),
    ("▴ ▾", "chart: value off scale"),
    ("↑ ↓", "list: more rows"),
    ("C E B", "checkpoint; evaluation; both"),
    ("│", "chart: time cursor"),
    ("━", "above the steps: a GPU throttled"),
)


_OVERVIEW = (
    "The overview answers five questions: is it running, how fast, where does the time go, why, and what would make it"
    " faster. The colored line below the header is the verdict; the screen why has the evidence. A letter opens a"
    " screen, Esc returns. A click on a bar, an alert or the verdict opens it.",
)


def help_text(body: Body | None, actions: tuple[Action, ...], screen: int, room: int) -> str:
    """Return the help: first of the open screen, then the keys that work everywhere.

    If there is room, the signs and the screen's own keys are beside the other keys.

    Args:
        screen: cells of the screen.
        room: cells of a line in the box.
    """
    meaning = text_width(f" {key_line('', '', screen)}")
    about = body.about if body is not None else _OVERVIEW
    own = SCREEN_ACTIONS[body.screen_name] if body is not None else ()
    lines = [f" {key_line(action.shown, action.help, screen)}" for action in own]
    heading = ["On this screen", *lines, ""] if lines else []
    everywhere = [
        "Everywhere",
        *(f" {key_line(action.shown, action.help, screen)}" for action in actions if action.help),
    ]
    signs = ["Signs", *(f" {key_line(sign, what, screen)}" for sign, what in _NOTES)]
    above = [*wrapped_help("\n\n".join(about), room), ""]
    keys = max(map(text_width, everywhere))
    beside = room - keys - HELP_GAP
    if beside < MIN_HELP_COLUMN_WIDTH:
        return "\n".join([*above, *wrapped_help("\n".join([*heading, *everywhere, "", *signs]), room, meaning)])
    others = wrapped_help("\n".join([*heading, *signs]), beside, meaning)
    left, right, width = (others, everywhere, beside) if own else (everywhere, others, keys)
    pairs = zip_longest(left, right, fillvalue="")
    return "\n".join([*above, *(f"{column(one, width)}{' ' * HELP_GAP}{other}".rstrip() for one, other in pairs)])


def wrapped_help(text: str, width: int, meaning: int = KEYS_WIDTH + 3) -> list[str]:
    """Return `text` in lines of `width`; the meaning of a key is continued below itself, after `meaning` cells."""
    lines: list[str] = []
    for line in text.split("\n"):
        indent = meaning if line.startswith(" ") else 0
        rows = wrap([(line, "text")], width, indent, 99)
        if row_width(rows[0]) < indent < len(line):  # the first word of a narrow line
            rows = [[(fit(line, width), "text")]]
        lines += ["".join(part for part, _ in row) for row in rows]
    return lines


class HelpScreen(Dialog[None]):
    heading = "Help"
    wide = True
    widest = MAX_HELP_WIDTH
    BINDINGS: ClassVar[list[BindingType]] = bindings(HELP_ACTIONS)

    def __init__(self, body: Body | None = None, actions: tuple[Action, ...] = ACTIONS) -> None:
        super().__init__()
        self._body, self._actions = body, actions

    def parts(self) -> list[Widget]:
        return [VerticalScroll(Static(Content(self.text())))]

    def text(self) -> str:
        return help_text(self._body, self._actions, self.app.size.width, self.room)

    @property
    def room(self) -> int:
        """Return the cells of a line in the box: without frame, margins and scroll bar."""
        return min(self.widest, self.app.size.width) - 8


_LEAVING = ("detach", "ask_to_quit")  # listed last: Enter alone must not close the dashboard


class PaletteScreen(Dialog[str]):
    """The command palette: every action and screen by name. It answers the action to run, or None."""

    heading = "Actions: type part of a name"
    wide = True
    BINDINGS: ClassVar[list[BindingType]] = bindings(PALETTE_ACTIONS)

    def __init__(self, screen: str | None, actions: tuple[Action, ...] = ACTIONS) -> None:
        super().__init__()
        own = [(f"screen.body({row.name!r})", row) for row in SCREEN_ACTIONS.get(screen or "", ())]
        others = sorted(
            (row for row in actions if row.help and row.name != "palette"), key=lambda row: row.name in _LEAVING
        )
        self._rows = [*own, *((row.name, row) for row in others)]
        self._shown = list(self._rows)

    def parts(self) -> list[Widget]:
        self._choices = OptionList(*self._options())  # the size of the screen is known here
        self._choices.highlighted = 0
        words = Input()
        words.cursor_blink = False  # two redrawn lines a second, over a slow connection too
        return [words, self._choices]

    def _options(self) -> list[Option]:
        return [Option(Content(key_line(row.shown, row.help, self.app.size.width))) for _, row in self._shown]

    def on_input_changed(self, event: Input.Changed) -> None:
        words = event.value.lower().split()
        self._shown = [pair for pair in self._rows if all(word in pair[1].help.lower() for word in words)]
        self._choices.clear_options()
        self._choices.add_options(self._options())
        self._choices.highlighted = 0 if self._shown else None

    def action_choose(self, rows: int) -> None:
        if self._shown:
            self._choices.highlighted = ((self._choices.highlighted or 0) + rows) % len(self._shown)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        at = self._choices.highlighted
        self.dismiss(self._shown[at][0] if at is not None and self._shown else None)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._shown[event.option_index][0])


class MetricScreen(Dialog[str]):
    """The list of metrics. It answers the name of the selected one, or None."""

    heading = "Metrics (last value)"

    def __init__(self, names: Sequence[str], rows: dict[str, MetricRow], current: str | None) -> None:
        super().__init__()
        self._names = list(names)
        self._rows = rows
        self._current = current

    def parts(self) -> list[Widget]:
        # Names come from the training: a plain string would be read as markup, Content is not.
        options = [Option(Content(self._label(name))) for name in self._names]
        choices = OptionList(*options)
        if self._current in self._names:
            choices.highlighted = self._names.index(self._current)
        return [choices]

    def _label(self, name: str) -> str:
        row = self._rows.get(name, MetricRow())
        bad = f"  × {row.nonfinite:,} not finite" if row.nonfinite else ""
        return f"{column(name, 36)} {column(units.number(row.last), 10, right=True)}{bad}"

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._names[event.option_index])

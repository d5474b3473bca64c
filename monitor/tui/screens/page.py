"""What all screens except the overview share: the header, a body that fills the rest, and the footer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar, TypeVar

from textual.app import ComposeResult
from textual.events import Key, Resize

from monitor.keymap import LANE, RESTORE, SCREEN_ACTIONS, SEARCH_ACTIONS, Action
from monitor.model.view import View
from monitor.tui.actions import screen_bindings
from monitor.tui.drawing.answer_rows import verdict
from monitor.tui.drawing.clock_lanes import with_clock
from monitor.tui.drawing.layout import MARGIN
from monitor.tui.drawing.rows import Row, Span, fit, row_width, spread
from monitor.tui.panels.base import Rows, ScrollPanel, ViewOptions, import_modules
from monitor.tui.panels.footer import Footer
from monitor.tui.panels.header import Header, header
from monitor.tui.terminal_output import LeanScreen

_CALL = re.compile(r"(\w+)(?:\((-?\d+)\))?")
_OVERVIEW_ONLY = ("maximize", "next_metric")
MAX_SEARCH_CHARACTERS = 80  # characters that may be typed into a filter
NO_BREAK_SPACE = "\u00a0"  # a no-break space


def head_height(height: int, judged: bool = True) -> int:
    """Return the rows of the header on a screen other than the overview.

    Args:
        judged: whether the verdict is in its last row, if there is room.
    """
    return 3 + judged if height >= 30 else 2 if height >= 12 else 1


def with_no_break_spaces(text: str) -> str:
    """Return `text` with no-break spaces, for a number and its unit."""
    return text.replace(" ", NO_BREAK_SPACE)


def with_arrow(row: Row, arrow: str, width: int) -> Row:
    """Return `row` with an arrow at its right end, which marks further rows."""
    kept = list(row)
    while kept and not kept[-1][0].strip():
        kept.pop()
    if kept:
        kept[-1] = (kept[-1][0].rstrip(), kept[-1][1])
    return spread(kept, [(arrow, "accent")], width)


class Body(ScrollPanel):
    """What a screen shows below the header. Its keys call methods `do_<name>`."""

    screen_name: ClassVar[str] = ""
    title: ClassVar[str] = ""
    about: ClassVar[tuple[str, ...]] = ()  # the help of this screen, by paragraphs
    list_actions: ClassVar[tuple[str, ...]] = ()  # actions that are not offered while an entry is opened
    entry_actions: ClassVar[tuple[str, ...]] = ("open",)  # actions that are not offered while there is no entry
    has_lanes: ClassVar[bool] = False  # it can show times by the host clock or the GPU clock
    has_verdict: ClassVar[bool] = False  # it shows the verdict, so the header does not
    opened = False  # one entry of the list takes the whole body
    empty = False  # the list has no entry

    def __init__(self) -> None:
        super().__init__("body")

    @property
    def opened_step(self) -> int | None:
        """Return the step whose page is open."""
        return None

    def begin_at(self, step: int | None) -> None:
        """Take the step that the user looked at on the screen before."""

    def heading(self, view: View, options: ViewOptions) -> str:
        return with_clock(self.title, view.report, options.host) if self.has_lanes else self.title

    def rows(self, view: View, options: ViewOptions, width: int, height: int) -> list[Row]:
        rule: Span = ("─", "rule")
        left: Row = [rule, (" ", "text"), (f"{self.heading(view, options)} ", "text bold")]
        right = self.aside(view, options)
        if not right or row_width(left) + row_width(right) + 4 > width:
            title = spread(left, [], width, rule)
        else:
            title = spread(left, [(" ", "text"), *right, (" ", "text"), rule], width, rule)
        return [title, *(self.body(view, options, width, height - 1) if height > 1 else [])]

    def do(self, call: str) -> None:
        """Run an action of `SCREEN_ACTIONS`, such as `move(-1)`."""
        match = _CALL.fullmatch(call)
        assert match is not None
        method = getattr(self, f"do_{match[1]}")
        method(int(match[2])) if match[2] else method()
        self.draw_again(force=True)

    def do_move(self, rows: int) -> None:
        self.scroll_rows(rows)

    def do_move_page(self, pages: int) -> None:
        self.do_move(pages * max(1, self.size.height - 2))

    def leave(self) -> bool:
        """Close the opened entry. Return False if there is none."""
        return False


class ListBody(Body):
    """A list with one selected entry. It is selected by key, so it stays selected while others come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.selected: object = None  # None: the first
        self._top = 0  # first visible row

    def keys(self, view: View, options: ViewOptions) -> list[object]:
        """Return the key of every entry, in the order shown."""
        raise NotImplementedError

    def entry(self, key: object, view: View, options: ViewOptions, width: int, chosen: bool) -> list[Row]:
        raise NotImplementedError

    def fixed(self, view: View, options: ViewOptions, width: int) -> list[Row]:
        """Return the rows above the list that do not scroll."""
        return []

    def nothing(self, view: View, options: ViewOptions, width: int) -> list[Row]:
        """Return the rows for an empty list: why it is empty, and what to do."""
        raise NotImplementedError

    def opened_rows(self, key: object, view: View, options: ViewOptions, width: int) -> list[Row]:
        """Return all rows of one opened entry."""
        raise NotImplementedError

    def choice(self, keys: list[object]) -> int:
        return keys.index(self.selected) if self.selected in keys else 0

    def body(self, view: View, options: ViewOptions, width: int, height: int) -> list[Row]:
        keys = self.keys(view, options)
        self.empty = not keys
        if not keys:
            return self.nothing(view, options, width)[:height]
        if self.opened:
            return super().body(view, options, width, height)
        return [row for row, _ in self._with_keys(keys, view, options, width, height)]

    def _with_keys(
        self, keys: list[object], view: View, options: ViewOptions, width: int, height: int
    ) -> list[tuple[Row, object]]:
        """Return the rows of the list, each with the key of its entry; None for a blank row and above the entries."""
        fixed = self.fixed(view, options, width)[: max(0, height - 2)]
        room = height - len(fixed)
        return [*((row, None) for row in fixed), *self._window(keys, view, options, width, room)]

    def _window(
        self, keys: list[object], view: View, options: ViewOptions, width: int, room: int
    ) -> list[tuple[Row, object]]:
        """Return the rows around the selected entry; only entries near it are drawn, since a list may be long."""
        at = self.choice(keys)
        first = max(0, at - room)
        drawn = [
            self.entry(key, view, options, width, first + index == at)
            for index, key in enumerate(keys[first : at + room + 1])
        ]
        begins = [sum(len(rows) for rows in drawn[:index]) for index in range(len(drawn) + 1)]
        mine = at - first
        shift = self._top - first  # entries; the window begins with a whole entry
        start = begins[max(0, min(mine, shift))]
        if begins[mine + 1] - start > room:  # it lies below the window: move until its end is at the bottom
            start = next(begin for begin in begins if begins[mine + 1] - begin <= room)
            start = min(start, begins[mine])  # an entry taller than the window: show its beginning
        self._top = first + begins.index(start)
        rows = [(row, key if row else None) for key, entry in zip(keys[first:], drawn, strict=False) for row in entry]
        shown = rows[start : start + room]
        if shown and self._top > 0:
            shown[0] = with_arrow(shown[0][0], "↑", width), shown[0][1]
        if shown and (start + room < len(rows) or first + len(drawn) < len(keys)):
            shown[-1] = with_arrow(shown[-1][0], "↓", width), shown[-1][1]
        return shown

    def hit(self, view: View, options: ViewOptions, x: int, y: int) -> str:
        """Return the action that selects the entry, or opens the selected one."""
        keys = self.keys(view, options)
        if self.opened or not keys:
            return ""
        rows = self._with_keys(keys, view, options, self.size.width, self.size.height - 1)
        return self.select_or_open(keys, rows[y - 1][1]) if 0 < y <= len(rows) else ""

    def select_or_open(self, keys: list[object], key: object) -> str:
        if key is None:
            return ""
        by = keys.index(key) - self.choice(keys)
        return f"screen.body('move({by})')" if by else "screen.body('open')"

    def open_at(self, key: object, view: View, options: ViewOptions) -> None:
        """Open an entry, whether or not it was drawn before."""
        self.show(view, options)
        self.selected, self.opened = key, False
        self.do_open()

    def everything(self, view: View, options: ViewOptions, width: int) -> list[Row]:
        keys = self.keys(view, options)
        return self.opened_rows(keys[self.choice(keys)], view, options, width)

    def do_move(self, rows: int) -> None:
        if self.opened:
            self.scroll_rows(rows)
            return
        if self._view is None or self._options is None:
            return
        keys = self.keys(self._view, self._options)
        if keys:
            self.selected = keys[max(0, min(len(keys) - 1, self.choice(keys) + rows))]

    def do_open(self) -> None:
        if self._view is None or self._options is None:
            return
        keys = self.keys(self._view, self._options)
        if keys:
            self.selected = keys[self.choice(keys)]  # it stays selected, whatever is inserted before it
            self.opened = not self.opened
            self._away, self._count = 0, None

    def leave(self) -> bool:
        was, self.opened = self.opened, False
        if was:
            self.draw_again(force=True)
        return was

    def scroll_rows(self, rows: int) -> None:
        if self.opened:
            super().scroll_rows(rows)
        else:
            self.do_move(rows)
            self.draw_again(force=True)


class Finder:
    """A search line, mixed into a body: while it is open it takes the keys."""

    search_text: str = ""
    typing: bool = False

    def do_find(self) -> None:
        self.typing = True

    def search_key(self, event: Key) -> bool:
        """Take a key into the search line. Return whether it was taken."""
        if not self.typing:
            return False
        name = next((action.name for action in SEARCH_ACTIONS if event.key in action.keys), None)
        if name is not None:
            getattr(self, f"_{name}")()
        elif event.character is not None and event.is_printable:
            self.search_text = (self.search_text + event.character)[:MAX_SEARCH_CHARACTERS]
        else:
            return False
        event.stop()
        event.prevent_default()
        return True

    def _keep_search(self) -> None:
        self.typing = False

    def _drop_search(self) -> None:
        self.typing, self.search_text = False, ""

    def leave(self) -> bool:
        """Close the opened entry, else end the search. Return False if there is neither."""
        if super().leave():  # type: ignore[misc]  # of the body that this is mixed into
            return True
        if not self.search_text:
            return False
        self._drop_search()
        self.draw_again(force=True)  # type: ignore[attr-defined]
        return True

    def _erase(self) -> None:
        self.search_text = self.search_text[:-1]

    def line(self, width: int) -> Row:
        """Return the search line (`find: loss▏`); empty while there is no search."""
        if not self.typing and not self.search_text:
            return []
        cursor: Row = [("▏", "accent bold")] if self.typing else [(f"   {RESTORE.shown} shows all", "muted")]
        return [(" find: ", "accent bold"), (fit(self.search_text, max(1, width - 26)), "text bold"), *cursor]

    def matches(self, text: str) -> bool:
        return self.search_text.lower() in text.lower()


class PageHeader(Header):
    """The header in at most three rows and the verdict, without the reasons of skipped steps."""

    def rows(self, view: View, options: ViewOptions, width: int, height: int) -> list[Row]:
        rows = header(view, options, width, min(height, 3), reasons=False)
        return [*rows, verdict(view, width, whole=True)] if height > 3 else rows


class PageFooter(Footer):
    """The screen's own keys first, then those that work everywhere, without the key of this screen."""

    def __init__(self, body: Body) -> None:
        super().__init__("footer")
        self._body = body

    def data(self, view: View, options: ViewOptions) -> object:
        return super().data(view, options), self._body.opened, self._body.empty

    def _own(self) -> Iterator[Action]:
        """Yield the screen's own keys that apply now."""
        body = self._body
        yield replace(RESTORE, footer="back" if body.opened else "overview")
        if body.has_lanes:
            yield from (action for action in super().actions if action.name == LANE)
        idle = (*(body.entry_actions if body.empty else ()), *(("open", *body.list_actions) if body.opened else ()))
        for row in SCREEN_ACTIONS[body.screen_name]:
            if row.name not in idle:
                yield replace(row, name=f"screen.body({row.name!r})")

    @property
    def actions(self) -> list[Action]:
        elsewhere = {*_OVERVIEW_ONLY, LANE, f"show('{self._body.screen_name}')"}
        return [*self._own(), *(action for action in super().actions if action.name not in elsewhere)]


class PageScreen(LeanScreen):
    """A screen that replaces the overview."""

    AUTO_FOCUS = None
    body_type: ClassVar[type[Body]]

    def __init__(self) -> None:
        super().__init__()
        self.body = self.body_type()
        self.parts: tuple[Rows, ...] = (PageHeader("header"), self.body, PageFooter(self.body))

    def compose(self) -> ComposeResult:
        yield from self.parts

    def on_mount(self) -> None:
        self.body.focus()
        self._fit()

    def on_resize(self, event: Resize) -> None:
        self._fit()

    def _fit(self) -> None:
        head, body, foot = self.parts
        head.styles.height = head_height(self.app.size.height, not self.body.has_verdict)
        body.styles.margin = (0, MARGIN if self.app.size.width >= 40 else 0)
        foot.display = self.app.size.height >= 4

    def on_key(self, event: Key) -> None:
        if isinstance(self.body, Finder) and self.body.search_key(event):
            self.body.draw_again(force=True)

    def action_body(self, call: str) -> None:
        self.body.do(call)
        self.parts[-1].draw_again()

    def leave(self) -> bool:
        """Go back by one level, on Esc. Return False if only the overview is left."""
        left = self.body.leave()
        self.parts[-1].draw_again()
        return left


_SCREENS: dict[str, type[PageScreen]] = {}
_BodyType = TypeVar("_BodyType", bound=type[Body])


def screen(body: _BodyType) -> _BodyType:
    """Register a screen that shows `body`; its keys are its row in `SCREEN_ACTIONS`."""
    attributes = {"BINDINGS": screen_bindings(body.screen_name), "body_type": body}
    _SCREENS[body.screen_name] = type(f"{body.__name__}Screen", (PageScreen,), attributes)
    return body


def screen_classes() -> dict[str, type[PageScreen]]:
    """Return every screen beside the overview by its name in `SCREENS`, from the modules `*_screen` of this package."""
    import_modules(__package__, "_screen")
    return _SCREENS

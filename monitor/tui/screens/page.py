"""What all screens beside the overview share: the head, a body that fills the rest, and the keys at the foot."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from textual.app import ComposeResult
from textual.events import Key, Resize

from monitor.model.report import View
from monitor.tui.actions import LANE, SCREEN_ACTIONS, Action
from monitor.tui.economy import LeanScreen
from monitor.tui.lane import with_clock
from monitor.tui.layout import MARGIN
from monitor.tui.panels.base import Look, Rows, ScrollPanel
from monitor.tui.panels.footer import Footer
from monitor.tui.panels.header import Header, header, verdict
from monitor.tui.rows import Row, Span, fit, row_width, spread

_CALL = re.compile(r"(\w+)(?:\((-?\d+)\))?")
_OVERVIEW_ONLY = ("maximise", "next_metric")
LONGEST_WANTED = 80  # characters that may be typed into a filter
GLUE = "\u00a0"  # drawn as a space


def head_height(height: int, judged: bool = True) -> int:
    """Rows for the head: a screen beside the overview has less for it, and says at least what runs.

    Args:
        judged: with the verdict in its last row, where there is room.
    """
    return 3 + judged if height >= 30 else 2 if height >= 12 else 1


def glued(text: str) -> str:
    """`text` that no row breaks: a number and its unit."""
    return text.replace(" ", GLUE)


def with_arrow(row: Row, arrow: str, width: int) -> Row:
    """`row` with an arrow at its right end: more lies beyond."""
    kept = list(row)
    while kept and not kept[-1][0].strip():
        kept.pop()
    if kept:
        kept[-1] = (kept[-1][0].rstrip(), kept[-1][1])
    return spread(kept, [(arrow, "accent")], width)


class Body(ScrollPanel):
    """What a screen shows below the head. What its keys do are methods `do_<name>`."""

    screen_name: ClassVar[str] = ""
    title: ClassVar[str] = ""
    about: ClassVar[tuple[str, ...]] = ()  # what `?` says of this screen, a paragraph each
    of_the_list: ClassVar[tuple[str, ...]] = ()  # actions without a meaning for an entry that is opened
    of_entries: ClassVar[tuple[str, ...]] = ("open",)  # without one where there is none
    has_lanes: ClassVar[bool] = False  # it shows steps or phases, on a GPU by either clock
    has_verdict: ClassVar[bool] = False  # the head need not say it, too
    opened = False  # one entry of a list takes all the room
    empty = False  # there is no entry

    def __init__(self) -> None:
        super().__init__("body")

    def heading(self, view: View, look: Look) -> str:
        return with_clock(self.title, view.report, look.host) if self.has_lanes else self.title

    def rows(self, view: View, look: Look, width: int, height: int) -> list[Row]:
        rule: Span = ("─", "rule")
        left: Row = [rule, (" ", "text"), (f"{self.heading(view, look)} ", "text bold")]
        right = self.aside(view, look)
        if not right or row_width(left) + row_width(right) + 3 > width:
            title = spread(left, [], width, rule)
        else:
            title = spread(left, [(" ", "text"), *right, (" ", "text"), rule], width, rule)
        return [title, *(self.body(view, look, width, height - 1) if height > 1 else [])]

    def do(self, call: str) -> None:
        """`move(-1)`: a row of `SCREEN_ACTIONS`."""
        found = _CALL.fullmatch(call)
        assert found is not None
        method = getattr(self, f"do_{found[1]}")
        method(int(found[2])) if found[2] else method()
        self.draw_again(force=True)

    def do_move(self, rows: int) -> None:
        self.scroll_rows(rows)

    def do_move_page(self, pages: int) -> None:
        self.do_move(pages * max(1, self.size.height - 2))

    def leave(self) -> bool:
        """Close what is opened; False where nothing is."""
        return False


class ListBody(Body):
    """A list of which one entry is selected, by its key: it stays selected while others come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.selected: object = None  # None: the first
        self._top = 0  # first visible row

    def keys(self, view: View, look: Look) -> list[object]:
        """Every entry, in the order shown."""
        raise NotImplementedError

    def entry(self, key: object, view: View, look: Look, width: int, chosen: bool) -> list[Row]:
        raise NotImplementedError

    def fixed(self, view: View, look: Look, width: int) -> list[Row]:
        """Rows above the list that do not scroll."""
        return []

    def nothing(self, view: View, look: Look, width: int) -> list[Row]:
        """What stands there while the list is empty: why, and what to do."""
        raise NotImplementedError

    def opened_rows(self, key: object, view: View, look: Look, width: int) -> list[Row]:
        """All that is known of one entry."""
        raise NotImplementedError

    def choice(self, keys: list[object]) -> int:
        return keys.index(self.selected) if self.selected in keys else 0

    def body(self, view: View, look: Look, width: int, height: int) -> list[Row]:
        keys = self.keys(view, look)
        self.empty = not keys
        if not keys:
            return self.nothing(view, look, width)[:height]
        if self.opened:
            return super().body(view, look, width, height)
        at = self.choice(keys)
        fixed = self.fixed(view, look, width)[: max(0, height - 2)]
        room = height - len(fixed)
        return [*fixed, *self._window(keys, at, view, look, width, room)]

    def _window(self, keys: list[object], at: int, view: View, look: Look, width: int, room: int) -> list[Row]:
        """The rows around the selected entry. Only entries near it are drawn: a list may be long."""
        first = max(0, at - room)
        drawn = [
            self.entry(key, view, look, width, first + i == at) for i, key in enumerate(keys[first : at + room + 1])
        ]
        begins = [sum(len(rows) for rows in drawn[:index]) for index in range(len(drawn) + 1)]
        mine = at - first
        shift = self._top - first  # entries; the window begins with a whole one
        start = begins[max(0, min(mine, shift))]
        if begins[mine + 1] - start > room:  # it lies below the window: move until its end is at the bottom
            start = next(begin for begin in begins if begins[mine + 1] - begin <= room)
            start = min(start, begins[mine])  # one that is higher than the window: its beginning
        self._top = first + begins.index(start)
        rows = [row for each in drawn for row in each]
        shown = rows[start : start + room]
        if shown and self._top > 0:
            shown[0] = with_arrow(shown[0], "↑", width)
        if shown and (start + room < len(rows) or first + len(drawn) < len(keys)):
            shown[-1] = with_arrow(shown[-1], "↓", width)
        return shown

    def everything(self, view: View, look: Look, width: int) -> list[Row]:
        keys = self.keys(view, look)
        return self.opened_rows(keys[self.choice(keys)], view, look, width)

    def do_move(self, rows: int) -> None:
        if self.opened:
            self.scroll_rows(rows)
            return
        if self._view is None or self._look is None:
            return
        keys = self.keys(self._view, self._look)
        if keys:
            self.selected = keys[max(0, min(len(keys) - 1, self.choice(keys) + rows))]

    def do_open(self) -> None:
        if self._view is None or self._look is None:
            return
        keys = self.keys(self._view, self._look)
        if keys:
            self.selected = keys[self.choice(keys)]  # it stays this one, whatever comes before it in the list
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
    """A line in which the person types what to look for. Mixed into a body: it takes the keys while it is open."""

    wanted: str = ""
    typing: bool = False

    def do_find(self) -> None:
        self.typing = True

    def take_key(self, event: Key) -> bool:
        """Whether the key was typed into the line."""
        if not self.typing:
            return False
        if event.key == "enter":
            self.typing = False
        elif event.key == "escape":
            self.typing, self.wanted = False, ""
        elif event.key == "backspace":
            self.wanted = self.wanted[:-1]
        elif event.character is not None and event.is_printable:
            self.wanted = (self.wanted + event.character)[:LONGEST_WANTED]
        else:
            return False
        event.stop()
        event.prevent_default()
        return True

    def line(self, width: int) -> Row:
        """`find: loss▏`; nothing while there is nothing to find."""
        if not self.typing and not self.wanted:
            return []
        cursor: Row = [("▏", "accent bold")] if self.typing else [("   Esc shows all", "muted")]
        return [(" find: ", "accent bold"), (fit(self.wanted, max(1, width - 26)), "text bold"), *cursor]

    def matches(self, text: str) -> bool:
        return self.wanted.lower() in text.lower()


class PageHeader(Header):
    """The head in brief. Why steps were skipped and what to do is told where that is what the screen is about."""

    def rows(self, view: View, look: Look, width: int, height: int) -> list[Row]:
        rows = header(view, look, width, min(height, 3), reasons=False)
        return [*rows, verdict(view, width)] if height > 3 else rows


class PageFooter(Footer):
    """The screen's own keys first, then those that work everywhere; the one that led here is no longer offered."""

    def __init__(self, body: Body) -> None:
        super().__init__("footer")
        self._body = body

    def data(self, view: View, look: Look) -> object:
        return super().data(view, look), self._body.opened, self._body.empty

    def _own(self) -> Iterator[Action]:
        """The screen's own keys as they are now: Esc leads back by one, and Enter opens what is not opened yet."""
        body = self._body
        yield Action("restore", ("escape",), "Esc", "", "back" if body.opened else "overview")
        if body.has_lanes:
            yield from (action for action in super().actions if action.name == LANE)
        idle = (*(body.of_entries if body.empty else ()), *(("open", *body.of_the_list) if body.opened else ()))
        for row in SCREEN_ACTIONS[body.screen_name]:
            if row.name not in idle:
                yield replace(row, name=f"screen.body({row.name!r})")

    @property
    def actions(self) -> list[Action]:
        elsewhere = {*_OVERVIEW_ONLY, LANE, f"show('{self._body.screen_name}')"}
        return [*self._own(), *(action for action in super().actions if action.name not in elsewhere)]


class PageScreen(LeanScreen):
    """A screen that takes the place of the overview."""

    AUTO_FOCUS = None

    def __init__(self, body: Body) -> None:
        super().__init__()
        self.body = body
        self.parts: tuple[Rows, ...] = (PageHeader("header"), body, PageFooter(body))

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
        if isinstance(self.body, Finder) and self.body.take_key(event):
            self.body.draw_again(force=True)

    def action_body(self, call: str) -> None:
        self.body.do(call)
        self.parts[-1].draw_again()

    def leave(self) -> bool:
        """Esc: go back by one; False where there is nothing to go back to but the overview."""
        left = self.body.leave()
        self.parts[-1].draw_again()
        return left

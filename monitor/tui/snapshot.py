"""A screen of the dashboard as an SVG picture, drawn without a terminal."""

from __future__ import annotations

from collections.abc import Callable

from textual.pilot import Pilot

from monitor.model.view import View
from monitor.palettes import PALETTES
from monitor.tui.app import TrainmonApp
from monitor.tui.drawing.characters import TerminalCapabilities
from monitor.tui.drawing.svg_fonts import without_fonts

OVERVIEW = "overview"


class _Still:
    """A feed of one view."""

    def __init__(self, view: View) -> None:
        self._view = view

    def start(self, on_view: Callable[[View], None]) -> None:
        on_view(self._view)

    def stop(self) -> None:
        """Nothing runs."""

    def show_rank(self, rank: int | None) -> None:
        """There is no other view."""


def picture(
    view: View, screen: str = OVERVIEW, size: tuple[int, int] = (160, 45), theme: str = PALETTES[0].name
) -> str:
    """Return a screen as SVG. It loads nothing: its fonts are those of whoever looks at it.

    Args:
        screen: the overview, or a name in `keymap.SCREENS`.
        size: columns and rows.
        theme: the name of a palette.
    """
    name = view.report.run.name or view.report.run.id or "a run"
    app = TrainmonApp(_Still(view), title=name, ink=TerminalCapabilities())
    drawn: list[str] = []

    async def draw(pilot: Pilot[object]) -> None:
        while app.theme != theme:
            app.action_theme()
        if screen != OVERVIEW:
            app.action_show(screen)
        await pilot.pause()
        drawn.append(app.export_screenshot(title=" "))
        app.exit("detach")

    app.run(headless=True, size=size, auto_pilot=draw)
    return without_fonts(drawn[0])

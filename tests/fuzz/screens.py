"""The dashboard under the same inputs: what every cell of it holds, in sizes of many kinds."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable

from monitor.model.view import View
from monitor.runs.follow import load
from monitor.tui.app import TrainmonApp
from tests.fuzz.targets import Journals, clean_text


class Screens(Journals):
    """The same runs on the dashboard, in sizes of its own: what is sent to the terminal, and every cell of it."""

    name, share = "screens", 0.0004

    def check(self, given: dict[str, bytes]) -> None:
        asyncio.run(self._draw(load(self.laid(given))))

    async def _draw(self, view: View) -> None:
        app = TrainmonApp(_Feed(view), title=view.report.run.name or "run")
        size = (40 + zlib.crc32(repr(view.report.run).encode()) % 160, 45)
        async with app.run_test(size=size) as pilot:
            for key in ("", "w", "escape", "m", "M", "escape"):
                await (pilot.press(key) if key else pilot.pause())
                for strip in app.screen._compositor.render_strips():
                    clean_text(strip.text)
                    assert strip.cell_length == size[0]
            assert app.is_running


class _Feed:
    def __init__(self, view: View) -> None:
        self._view = view

    def start(self, on_view: Callable[[View], None]) -> None:
        on_view(self._view)

    def stop(self) -> None:
        pass

"""What several tests of the screens do by hand: press keys, and read rows as text."""

from __future__ import annotations

from textual.pilot import Pilot

from monitor.tui.drawing.rows import Row

BIG = (160, 45)


def text(rows: list[Row]) -> str:
    return "\n".join("".join(part for part, _ in row) for row in rows)


async def press(pilot: Pilot[None], *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
        for _ in range(3):
            await pilot.pause()

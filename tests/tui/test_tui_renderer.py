"""What goes to the terminal: the cells that changed, in the fewest codes that give the same picture."""

from __future__ import annotations

import asyncio

import pyte
from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import LayoutUpdate
from textual.app import App, ComposeResult
from textual.geometry import Region
from textual.strip import Strip
from textual.widgets import Static

from monitor.tui.terminal_output import LeanScreen, Pen, WholeUpdate


def drawn(pieces: list[tuple[int, int, Strip]], system: ColorSystem | None = ColorSystem.TRUECOLOR) -> tuple[str, str]:
    """The pen's output, and what a terminal has of it: characters with their colors and weight."""
    pen = Pen(system)
    for x, y, strip in pieces:
        pen.write(x, y, strip)
    sent = pen.finish()
    screen = pyte.Screen(20, 3)
    pyte.Stream(screen).feed(sent)
    cells = [screen.buffer[y][x] for y in range(3) for x in range(20)]
    look = " ".join(f"{cell.data}{cell.fg if cell.data != ' ' else ''}/{cell.bg}{cell.bold:d}" for cell in cells)
    return sent, look


def strips() -> list[tuple[int, int, Strip]]:
    styles = [
        Style(color=c, bgcolor=b, bold=w)
        for c in ("#ff0000", "#00ff00", None)
        for b in ("#101010", None)
        for w in (True, False)
    ]
    texts = ("ab", "  ", "c", " d ")
    rows = [Strip([Segment(texts[(n + y) % 4], styles[(n * 5 + y) % 12]) for n in range(6)]) for y in range(3)]
    return [(0, y, row) for y, row in enumerate(rows)]


def test_the_pen_draws_what_whole_styles_would() -> None:
    plain = "".join(
        f"\x1b[{y + 1};{x + 1}H" + "".join(segment.style.render(segment.text) for segment in strip if segment.style)
        for x, y, strip in strips()
    )
    screen = pyte.Screen(20, 3)
    pyte.Stream(screen).feed(plain)
    cells = [screen.buffer[y][x] for y in range(3) for x in range(20)]
    wanted = [(c.data, c.fg if c.data != " " else "", c.bg, c.bold if c.data != " " else "") for c in cells]
    sent, _ = drawn(strips())
    screen.reset()
    pyte.Stream(screen).feed(sent)
    cells = [screen.buffer[y][x] for y in range(3) for x in range(20)]
    assert [(c.data, c.fg if c.data != " " else "", c.bg, c.bold if c.data != " " else "") for c in cells] == wanted
    assert len(sent) < len(plain)


def test_a_whole_picture_is_drawn_with_the_same_pen() -> None:
    rows = [[strip, strip] for _, _, strip in strips()]
    region = Region(0, 0, 2 * rows[0][0].cell_length, len(rows))
    console = Console(color_system="truecolor", force_terminal=True, width=40)
    cells = []
    for update in (LayoutUpdate(rows, region), WholeUpdate(rows, region)):
        screen = pyte.Screen(40, len(rows))
        pyte.Stream(screen).feed(update.render_segments(console))
        told = [screen.buffer[y][x] for y in range(len(rows)) for x in range(region.width)]
        cells.append([(c.data, c.fg if c.data != " " else "", c.bg, c.bold if c.data != " " else "") for c in told])
    assert cells[0] == cells[1]


def test_a_picture_that_is_painted_twice_at_once_goes_out_once() -> None:
    class Painted(App[None]):
        def get_default_screen(self) -> LeanScreen:
            return LeanScreen()

        def compose(self) -> ComposeResult:
            yield Static("first\nsecond\nthird")

    async def paint() -> list[str]:
        app = Painted()
        async with app.run_test(size=(20, 5)):
            console = Console(color_system="truecolor", force_terminal=True, width=20)
            assert isinstance(app.screen, LeanScreen)
            compositor = app.screen.compositor

            def whole() -> str:
                return compositor.render_full_update().render_segments(console)

            compositor.forget()
            one, two = whole(), whole()
            compositor.forget()  # as where another screen was opened over it, or a part was drawn anew
            return [one, two, whole()]

    one, two, three = asyncio.run(paint())
    assert "second" in one and two == "" and three == one


def test_no_colors_means_no_codes() -> None:
    sent, _ = drawn([(0, 0, Strip([Segment("ab", Style(color="red"))]))], None)
    assert sent == "\x1b[1;1Hab"


def test_the_pen_leaves_the_terminal_plain_and_moves_only_where_it_must() -> None:
    red = Style(color="#ff0000", bgcolor="#000000")
    sent, _ = drawn([(0, 0, Strip([Segment("ab", red)], 2)), (2, 0, Strip([Segment("cd", red)], 2))])
    assert sent.count("\x1b") == 3  # one move, one color, one end
    assert sent.endswith("\x1b[0m")

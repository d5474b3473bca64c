"""What goes to the terminal: how much, in which colours, and never more than it can take."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from contextlib import suppress
from fcntl import ioctl
from math import inf
from pathlib import Path

import pyte
import pytest
from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import LayoutUpdate
from textual.app import App, ComposeResult
from textual.geometry import Region
from textual.strip import Strip
from textual.widgets import Static

from monitor.tui.economy import CroppingCompositor, LeanScreen, Pen, WholeUpdate
from monitor.tui.link import ASK, BUSY_LINK, ONCE, OWED, SAVED, SLOW_LINK, USUAL, Budget

ROOT = Path(__file__).resolve().parents[2]
SIZE = (160, 45)


def test_on_average_no_more_than_the_budget_goes_out() -> None:
    budget, now, sent = Budget(1000.0, 0.0), 0.0, 0
    while now < 600:
        wait = budget.wait(now, sent)
        if wait == 0:
            sent += 700
        now += wait or 0.5
    assert sent <= 1000 * (600 + SAVED) + 700


def test_a_quiet_spell_saves_up_a_little_only() -> None:
    budget = Budget(1000.0, 0.0, inf)
    assert budget.wait(3600.0, 0) == 0
    assert budget.wait(3600.0, int(1000 * SAVED)) == 0
    assert budget.wait(3600.0, int(1000 * SAVED) + 500) == pytest.approx(0.5)


def test_a_big_picture_does_not_hold_up_the_usual_ones() -> None:
    """The first picture is one: nobody waits for seconds until the second comes."""
    budget, now, sent, latest = Budget(1000.0, 0.0), 0.0, 40_000, 0.0
    while now < 60:
        begun, sent = now, sent + (20_000 if 30 < now < 31 else 400)
        while (wait := budget.wait(now, sent)) > 0:
            now += wait
        now = max(now, begun + 0.5)
        latest = max(latest, now - begun)
    assert latest == 0.5 < ONCE
    assert sent <= 40_000 + 20_000 + 1000 * (60 + SAVED)


def test_on_a_slow_link_a_big_picture_is_paid_back_first() -> None:
    assert Budget(1000.0, 0.0, inf).wait(0.0, 10**6) == OWED


def test_many_big_pictures_wait_until_each_is_paid_for() -> None:
    budget, now, sent = Budget(1000.0, 0.0), 0.0, 0
    while now < 600:
        sent += 3000
        while (wait := budget.wait(now, sent)) > 0:
            now += wait
    assert sent <= 1000 * (600 + SAVED + OWED) + 3000 * USUAL


def drawn(pieces: list[tuple[int, int, Strip]], system: ColorSystem | None = ColorSystem.TRUECOLOR) -> tuple[str, str]:
    """The pen's output, and what a terminal has of it: characters with their colours and weight."""
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
            compositor = app.screen._compositor
            assert isinstance(compositor, CroppingCompositor)

            def whole() -> str:
                return compositor.render_full_update().render_segments(console)

            compositor.forget()
            one, two = whole(), whole()
            compositor.forget()  # as where another screen was opened over it, or a part was drawn anew
            return [one, two, whole()]

    one, two, three = asyncio.run(paint())
    assert "second" in one and two == "" and three == one


def test_no_colours_means_no_codes() -> None:
    sent, _ = drawn([(0, 0, Strip([Segment("ab", Style(color="red"))]))], None)
    assert sent == "\x1b[1;1Hab"


def test_the_pen_leaves_the_terminal_plain_and_moves_only_where_it_must() -> None:
    red = Style(color="#ff0000", bgcolor="#000000")
    sent, _ = drawn([(0, 0, Strip([Segment("ab", red)], 2)), (2, 0, Strip([Segment("cd", red)], 2))])
    assert sent.count("\x1b") == 3  # one move, one colour, one end
    assert sent.endswith("\x1b[0m")


TRAINING = """
import time, random
import trainhooks as th
th.init(name="pulsar", total_steps=100000)
for index in th.steps(range(100000)):
    for name, seconds in (("generation", .05), ("execution", .03), ("training", .02)):
        with th.phase(name): time.sleep(seconds * random.uniform(.7, 1.4))
    th.log(reward=random.random(), loss=random.random()); th.count(tokens=random.randrange(900, 1100))
    print("step", index, random.random(), flush=True)
"""


class SlowTerminal:
    """A terminal that reads so many bytes a second, and answers as one does when it comes to a question."""

    def __init__(self, command: list[str], environment: dict[str, str], speed: float) -> None:
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.chdir(ROOT)
            os.execve(command[0], command, environment)
        ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", SIZE[1], SIZE[0], 0, 0))
        self.speed = speed
        self.screen = pyte.Screen(*SIZE)
        self._stream = pyte.ByteStream(self.screen)
        self.count = 0

    def read(self, seconds: float) -> int:
        """Read for so long, at its own speed; the bytes that came."""
        begin, count = time.monotonic(), 0
        while time.monotonic() - begin < seconds:
            time.sleep(0.05)
            room = int((time.monotonic() - begin) * self.speed) - count
            if room > 0 and select.select([self.master], [], [], 0)[0]:
                with suppress(OSError):
                    data = os.read(self.master, min(room, 4096))
                    count += len(data)
                    self._stream.feed(data)
                    for _ in range(data.count(ASK.encode())):
                        os.write(self.master, b"\x1b[?2026;2$y")
        self.count += count
        return count

    @property
    def step(self) -> int:
        found = re.search(r"step ([\d,]+) of", "\n".join(self.screen.display))
        return int(found.group(1).replace(",", "")) if found else 0

    def end(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        os.close(self.master)


@pytest.fixture
def training(tmp_path: Path):
    import subprocess

    environment = {**os.environ, "TRAINMON_DIR": str(tmp_path), "PYTHONPATH": str(ROOT), "TERM": "xterm-256color"}
    environment["COLORTERM"] = "truecolor"
    process = subprocess.Popen([sys.executable, "-c", TRAINING], env=environment, stdout=subprocess.DEVNULL)
    yield tmp_path, environment
    process.kill()
    process.wait()


def steps_done(state: Path) -> int:
    return sum(path.read_bytes().count(b'"kind":"step"') for path in state.glob("runs/*/rank-*.jsonl"))


def within(terminal: SlowTerminal, budget: float) -> bool:
    """Whether what comes in eight seconds keeps to the budget; one picture may be on its way."""
    begin = time.monotonic()
    count = terminal.read(8.0)
    return count <= budget * (time.monotonic() - begin + SAVED) + 4096


@pytest.mark.parametrize(("words", "budget"), [([], BUSY_LINK), (["--low-bandwidth"], SLOW_LINK)])
def test_a_busy_run_stays_within_its_budget_and_on_a_slow_terminal_up_to_date(training, words, budget) -> None:
    state, environment = training
    until = time.monotonic() + 60
    while steps_done(state) < 5:
        assert time.monotonic() < until
        time.sleep(0.1)
    terminal = SlowTerminal([sys.executable, "-m", "monitor", "attach", *words], environment, 10_000)
    try:
        while terminal.step == 0:
            terminal.read(0.5)
            assert time.monotonic() < until, "\n".join(terminal.screen.display)
        terminal.read(6.0)  # what the first picture cost
        # A panel that comes, as the first alert brings it, is drawn whole, whatever it takes: not in each stretch.
        assert any(within(terminal, budget) for _ in range(3))
        # No backlog: what has not come yet is far less than a second's worth of the terminal.
        os.kill(terminal.pid, signal.SIGSTOP)
        backlog = terminal.read(2.0)
        assert backlog < 10_000
        assert terminal.step > 0
    finally:
        terminal.end()

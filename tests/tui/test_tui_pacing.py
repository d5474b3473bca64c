"""The refresh rate follows how fast the terminal takes what is written: by a made-up clock, then on slow terminals."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from fcntl import ioctl
from pathlib import Path
from statistics import quantiles

import pyte
import pytest
import sample_views as views

from monitor.tui import refresh_rate
from monitor.tui.refresh_rate import (
    LOW_HEADER_SECONDS,
    LOW_PANELS_SECONDS,
    MAX_HEADER_PAUSE,
    MAX_PANELS_PAUSE,
    MAX_PATIENCE,
    PANELS_PAUSE,
    PANELS_SECONDS,
    PATIENCE,
    QUESTION,
    RETRY_SECONDS,
    SLOW_SECONDS,
    RefreshRate,
)
from monitor.tui.textual_private import CountingDriver

ROOT = Path(__file__).resolve().parents[2]
SIZE = (160, 45)
MAX_AHEAD = 4  # a frame's question, and the same again after 1, 3 and 7 seconds
SLOW = 2_000  # bytes a second: a third of what the dashboard writes where it may


class Terminal(CountingDriver):
    """A driver without a terminal: the test says what was taken, and when."""

    waiting = 0
    written_at = 0.0

    def __init__(self) -> None:
        self.questions = 0
        self.pictures: list[str] = []

    def write(self, data: str) -> None:
        self.questions += data == QUESTION
        self.pictures += [data] if "\x1b[1;1H" in data else []


class Clock:
    """A rate, its terminal and the time, which passes only where a test says so."""

    def __init__(self, low_bandwidth: bool = False) -> None:
        self.now = 1000.0
        self.terminal, self.rate = Terminal(), RefreshRate(low_bandwidth)

    def frame(self, took: float | None = None, panels: bool = False) -> None:
        """Send a frame, to a terminal that answers after so many seconds; None: not yet."""
        self.rate.sent(self.terminal, True, panels)
        if took is not None:
            self.now += took
            self.rate.answered()

    def wait(self) -> float:
        return self.rate.wait(self.terminal)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(refresh_rate, "monotonic", lambda: made.now)
    return made


def test_on_a_fast_terminal_nothing_waits_but_the_panels(clock: Clock) -> None:
    for _ in range(100):
        clock.frame(took=0.02)
        assert clock.wait() == 0
    clock.frame(took=0.02, panels=True)
    assert clock.wait() == 0 and clock.rate.panels_wait() == pytest.approx(PANELS_SECONDS - 0.02)


def test_a_terminal_that_answers_nothing_is_as_fast_as_it_takes_what_is_written(clock: Clock) -> None:
    def frame(took: float) -> None:
        clock.rate.sent(clock.terminal, False, False)
        clock.terminal.waiting, clock.terminal.written_at = 3, clock.now + took
        assert clock.wait() == RETRY_SECONDS
        clock.now += took
        clock.terminal.waiting = 0

    frame(took=0.01)
    clock.now += 5  # no View came meanwhile
    assert clock.wait() == 0
    frame(took=0.5)
    assert clock.wait() == pytest.approx(0.5)
    assert clock.terminal.questions == 0


def test_the_rate_falls_with_a_slow_frame_and_rises_with_a_fast_one(clock: Clock) -> None:
    clock.frame(took=2 * SLOW_SECONDS)
    assert clock.wait() == pytest.approx(2 * SLOW_SECONDS), "half of the line's time is left"
    clock.now += clock.wait()
    clock.frame(took=SLOW_SECONDS / 2)
    assert clock.wait() == 0


def test_the_header_waits_no_longer_than_so_much_and_leaves_the_panels_behind(clock: Clock) -> None:
    clock.frame(took=0.9, panels=True)
    assert clock.wait() == pytest.approx(MAX_HEADER_PAUSE)
    assert clock.rate.panels_wait() == pytest.approx(PANELS_PAUSE * 0.9)
    clock.now += MAX_HEADER_PAUSE
    clock.frame(took=0.1)  # the header alone says nothing of what panels take
    assert clock.wait() == 0 and clock.rate.panels_wait() == pytest.approx(PANELS_PAUSE * 0.9 - MAX_HEADER_PAUSE - 0.1)


def test_a_frame_is_on_its_way_until_all_answers_have_come(clock: Clock) -> None:
    clock.frame()
    clock.frame()  # a key
    clock.rate.answered()
    assert clock.wait() == RETRY_SECONDS, "the second frame is on its way"
    clock.rate.answered()
    assert clock.wait() == 0
    clock.rate.answered()  # nobody asked: Textual's own query, or a late answer
    assert clock.wait() == 0


def test_an_answer_that_is_lost_is_asked_for_again_and_is_no_sign_of_a_slow_terminal(clock: Clock) -> None:
    clock.frame()
    clock.now += PATIENCE
    assert clock.wait() == RETRY_SECONDS and clock.terminal.questions == 2
    clock.now += 0.02
    clock.rate.answered()
    assert clock.wait() == 0
    clock.terminal.waiting = 1
    clock.now += 60
    assert clock.wait() == RETRY_SECONDS and clock.terminal.questions == 2, "more would fill the driver's queue"


def test_a_terminal_that_stops_answering_gets_frames_at_the_low_rate_until_it_answers(clock: Clock) -> None:
    clock.frame()
    asked = []
    begun = clock.now
    while clock.wait() == RETRY_SECONDS:
        asked.append(clock.terminal.questions)
        clock.now += RETRY_SECONDS
        assert clock.now < begun + 2 * MAX_PATIENCE
    assert max(asked) == 4, "after 1, 3 and 7 seconds"
    for _ in range(3):
        assert clock.wait() == 0
        clock.frame(panels=True)
        assert clock.wait() == LOW_HEADER_SECONDS and clock.rate.panels_wait() == LOW_PANELS_SECONDS
        clock.now += LOW_HEADER_SECONDS
    clock.rate.answered()
    clock.frame(took=0.02)
    assert clock.wait() == 0


def test_a_line_that_stood_still_is_no_slow_line(clock: Clock) -> None:
    """As while a laptop slept."""
    clock.frame(took=3600, panels=True)
    assert clock.rate.panels_wait() == MAX_PANELS_PAUSE


def test_a_frame_that_is_held_back_is_on_its_way_and_its_question_follows_it(clock: Clock) -> None:
    clock.terminal.holds = True
    clock.frame()
    clock.frame()  # another key: still one picture
    clock.now += 60
    assert clock.wait() == RETRY_SECONDS and clock.terminal.questions == 0
    clock.terminal.holds = False
    assert clock.wait() == RETRY_SECONDS and clock.terminal.questions == 1
    clock.now += 0.02
    assert clock.wait() == RETRY_SECONDS and clock.terminal.questions == 1, "no older question is late"
    clock.rate.answered()
    assert clock.wait() == 0


@pytest.mark.parametrize("keys", ["t", "w t", "? down", "5 6 f"])
async def test_keys_on_a_terminal_that_takes_nothing_leave_one_picture(app_on, keys: str) -> None:
    """Else each would wait for the pictures of those before it."""
    app = app_on(views.running())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause(0.1)
        before, app._driver = app._driver, (terminal := Terminal())
        terminal.send_message = before.send_message  # keys
        try:
            terminal.waiting = 1
            for key in 10 * keys.split():
                await pilot.press(key)
            await pilot.pause()
            assert not terminal.pictures and terminal.questions == 0
            terminal.waiting = 0
            while not terminal.pictures:
                await pilot.pause(0.05)
            await pilot.pause(0.1)
            assert len(terminal.pictures) == 1
        finally:
            app._driver = before


def test_low_bandwidth_is_a_low_rate_however_fast_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(low_bandwidth=True)
    monkeypatch.setattr(refresh_rate, "monotonic", lambda: clock.now)
    clock.frame(took=0.01, panels=True)
    assert clock.wait() == pytest.approx(LOW_HEADER_SECONDS - 0.01)
    assert clock.rate.panels_wait() == pytest.approx(LOW_PANELS_SECONDS - 0.01)
    clock.frame(took=3.0)  # a key's frame; on a slow terminal the rate is lower still
    assert clock.wait() == pytest.approx(MAX_HEADER_PAUSE)


# On terminals of a given speed


TRAINING = """
import time, random
import trainhooks as th
th.init(name="pulsar", total_steps=100000)
for index in th.steps(range(100000)):
    for name, seconds in (("generation", .05), ("execution", .03), ("training", .02)):
        with th.phase(name): time.sleep(seconds * random.uniform(.7, 1.4))
    th.log(reward=random.random(), loss=random.random()); th.count(tokens=random.randrange(900, 1100))
    print(time.monotonic(), flush=True)
"""


class SlowTerminal:
    """A terminal that takes so many bytes a second, and answers as one does when it comes to a question.

    Args:
        speed: bytes a second.
        buffer: bytes between it and the pseudoterminal, as a connection to another machine has them.
    """

    def __init__(self, command: list[str], environment: dict[str, str], speed: float, buffer: int = 0) -> None:
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.chdir(ROOT)
            os.execve(command[0], command, environment)
        ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", SIZE[1], SIZE[0], 0, 0))
        self.speed = speed
        self._buffer = buffer
        self.on_the_way = b""  # what the buffer holds
        self._tail = b""  # of what was taken: a question may come in two pieces
        self.screen = pyte.Screen(*SIZE)
        self._stream = pyte.ByteStream(self.screen)
        self.idle = False  # whether there was nothing to read once
        self.answers = True
        self.questions = 0
        self.most_ahead = 0  # questions in the buffer at once

    def read(self, seconds: float) -> int:
        """Take what comes for so long, at its own speed; return the number of bytes."""
        begin, count = time.monotonic(), 0
        while time.monotonic() - begin < seconds:
            time.sleep(0.02)
            room = int((time.monotonic() - begin) * self.speed) - count
            if room <= 0:
                continue
            most = max(self._buffer, room) - len(self.on_the_way)
            if most > 0 and select.select([self.master], [], [], 0)[0]:
                self.on_the_way += os.read(self.master, min(most, 65536))  # an error: the dashboard has ended
            self.most_ahead = max(self.most_ahead, self.on_the_way.count(QUESTION.encode()))
            data, self.on_the_way = self.on_the_way[:room], self.on_the_way[room:]
            self.idle |= not data
            count += len(data)
            self._take(data)
        return count

    def _take(self, data: bytes) -> None:
        self._stream.feed(data)
        asked = (self._tail + data).count(QUESTION.encode())
        self._tail = (self._tail + data)[1 - len(QUESTION) :]
        self.questions += asked
        for _ in range(asked if self.answers else 0):
            os.write(self.master, b"\x1b[?2026;2$y")

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


class Training:
    """A training of ten steps a second, with the time at which each of its steps ended."""

    def __init__(self, place: Path) -> None:
        self.environment = {**os.environ, "TRAINMON_DIR": str(place), "PYTHONPATH": str(ROOT), "TERM": "xterm-256color"}
        self.environment["COLORTERM"] = "truecolor"
        self._ends = place / "ends"
        with open(self._ends, "wb") as out:
            self.process = subprocess.Popen([sys.executable, "-c", TRAINING], env=self.environment, stdout=out)

    @property
    def ends(self) -> list[float]:
        return [float(line) for line in self._ends.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def age(self, terminal: SlowTerminal) -> float:
        """The seconds since the step after the one on the screen ended; 0 where that is still open."""
        newer = self.ends[terminal.step :]
        return time.monotonic() - newer[0] if newer else 0.0


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Training]:
    made = Training(tmp_path)
    yield made
    made.process.kill()
    made.process.wait()


def opened(training: Training, speed: float, *words: str, buffer: int = 0, answers: bool = True) -> SlowTerminal:
    """The dashboard on a terminal of so many bytes a second, once it shows a step and what came first is through."""
    until = time.monotonic() + 90
    while len(training.ends) < 5:
        assert time.monotonic() < until
        time.sleep(0.1)
    command = [sys.executable, "-m", "monitor", "attach", *words]
    terminal = SlowTerminal(command, training.environment, speed, buffer)
    terminal.answers = answers
    while terminal.step == 0:
        terminal.read(0.5)
        assert time.monotonic() < until, "\n".join(terminal.screen.display)
    terminal.idle = False
    while not terminal.idle and time.monotonic() < until:  # the rest of the first frame
        terminal.read(0.5)
    return terminal


def ages(training: Training, terminal: SlowTerminal, seconds: float) -> list[float]:
    """How old the step on the screen is, again and again for so long."""
    found, until = [], time.monotonic() + seconds
    while time.monotonic() < until:
        terminal.read(0.1)
        found.append(training.age(terminal))
    return found


def answer_time(terminal: SlowTerminal, paused: bool) -> float:
    """The seconds until the key that pauses, or goes on, shows."""
    os.write(terminal.master, b" ")
    begun = time.monotonic()
    while ("paused" in "\n".join(terminal.screen.display).lower()) != paused:
        terminal.read(0.05)
        assert time.monotonic() - begun < 60, "\n".join(terminal.screen.display)
    return time.monotonic() - begun


def backlog(terminal: SlowTerminal) -> int:
    """The bytes that were on their way when the dashboard was stopped; it goes on after."""
    os.kill(terminal.pid, signal.SIGSTOP)
    speed, terminal.speed = terminal.speed, 10**6
    count = terminal.read(1.0)
    os.kill(terminal.pid, signal.SIGCONT)
    terminal.read(2.0)  # it paints its whole screen
    terminal.speed = speed
    terminal.read(4.0)
    return count


def assert_no_backlog(terminal: SlowTerminal) -> None:
    before = terminal.step
    # A panel that comes, as the first alert brings it, is drawn whole, whatever it takes: not at each stop.
    assert any(backlog(terminal) < 5_000 for _ in range(3)), "the frame that was drawn last"
    terminal.read(10.0)
    assert terminal.step > before


@pytest.mark.parametrize("answers", [True, pytest.param(False, marks=pytest.mark.long)])
@pytest.mark.long
def test_a_slow_terminal_shows_what_is_new_and_answers_keys(training: Training, answers: bool) -> None:
    """Beside a fast one, which is as late as the machine is. Without answers the buffers must be short."""
    fast = opened(training, 10**6)
    slow = opened(training, 10**6, buffer=10**6 if answers else 0, answers=answers)
    slow.speed, slow.most_ahead = SLOW, 0
    try:
        with ThreadPoolExecutor(2) as both:

            def is_new() -> bool:
                """Whether a quarter of the time is new. A frame with all panels takes seconds, so not at each look."""
                quick, late = both.map(lambda terminal: ages(training, terminal, 12.0), (fast, slow))
                return quantiles(late, n=4)[0] <= MAX_HEADER_PAUSE + max(quick)

            assert any(is_new() for _ in range(3))
            assert slow.most_ahead <= MAX_AHEAD, "a frame only when the last one has arrived"

            def is_quick() -> bool:
                """Whether a key is answered at once. One that comes behind a frame with panels waits for that."""
                # Each key once the last is answered on both: `map` alone would hand over all of them at once.
                keys = [list(both.map(answer_time, (fast, slow), (paused, paused))) for paused in (True, False)]
                quick, late = zip(*keys, strict=True)
                return min(late) <= MAX_HEADER_PAUSE + max(quick)

            assert any(is_quick() for _ in range(6))
        assert_no_backlog(slow)
    finally:
        fast.end()
        slow.end()


@pytest.mark.long
def test_the_slowest_terminal_has_one_frame_on_its_way(training: Training) -> None:
    terminal = opened(training, 1_000)
    try:
        assert_no_backlog(terminal)
    finally:
        terminal.end()


@pytest.mark.long
def test_low_bandwidth_draws_at_its_low_rate(training: Training) -> None:
    terminal = opened(training, 10**6, "--low-bandwidth")
    try:
        begun, before, step = time.monotonic(), terminal.questions, terminal.step
        terminal.read(8.0)
        assert terminal.questions - before <= (time.monotonic() - begun) / LOW_HEADER_SECONDS + 1
        assert terminal.step > step
    finally:
        terminal.end()

"""A view waits only where the line is slow, and then for a second of the budget at most."""

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
from contextlib import suppress
from fcntl import ioctl
from pathlib import Path

import pyte
import pytest

from monitor.tui import terminal_output
from monitor.tui.terminal_output import (
    LOW_BANDWIDTH_RATE,
    MAX_ANSWER_SECONDS,
    MAX_DEBT_SECONDS,
    MAX_PROMPT_ANSWER_SECONDS,
    PANELS_DEBT_SECONDS,
    QUESTION,
    QUICK_RATE,
    SAVED_SECONDS,
    SLOW_ANSWER,
    SLOW_FOR,
    Budget,
    Line,
    Pacer,
)
from monitor.tui.textual_private import CountingDriver
from tests.journal_lines import steps_in

ROOT = Path(__file__).resolve().parents[2]
SIZE = (160, 45)


def test_pictures_of_the_usual_size_keep_to_the_budget_on_average() -> None:
    budget, now, sent = Budget(1000.0, 0.0), 0.0, 0
    while now < 600:
        wait = budget.wait(now, sent)
        if wait == 0:
            sent += 700
        now += wait or 0.15
    assert sent <= 1000 * (600 + SAVED_SECONDS) + 700


def test_a_quiet_spell_saves_up_a_little_only() -> None:
    budget = Budget(1000.0, 0.0)
    assert budget.wait(3600.0, 0) == 0
    assert budget.wait(3600.0, int(1000 * SAVED_SECONDS)) == 0
    assert budget.wait(3600.0, int(1000 * SAVED_SECONDS) + 500) == pytest.approx(0.5)


def test_many_big_pictures_are_paid_for_one_by_one() -> None:
    budget, now, sent = Budget(1000.0, 0.0), 0.0, 0
    while now < 600:
        sent += 3000
        while (wait := budget.wait(now, sent)) > 0:
            now += wait
    assert sent <= 1000 * (600 + SAVED_SECONDS) + 3000


def test_no_picture_however_big_is_paid_back_by_more_than_so_many_seconds() -> None:
    assert Budget(1000.0, 0.0).wait(0.0, 10**6) == PANELS_DEBT_SECONDS


def test_a_line_is_behind_until_its_answers_have_come() -> None:
    line = Line()
    line.ask(0.0, 500)
    line.ask(0.1, 900)
    assert line.is_behind(0.2, 0)
    line.answered(0.2)
    assert line.is_behind(0.2, 0), "the second picture is on its way"
    line.answered(0.3)
    assert not line.is_behind(0.3, 0)
    line.answered(90.0)  # nobody asked: Textual's own question, or an answer that was given up
    assert not line.is_behind(90.0, 0)


def test_an_answer_that_is_lost_holds_a_quick_line_up_for_a_second_and_a_slow_one_for_longer() -> None:
    line = Line()
    line.ask(0.0, 500)
    assert line.is_behind(MAX_PROMPT_ANSWER_SECONDS, 0) and not line.is_behind(MAX_PROMPT_ANSWER_SECONDS + 0.1, 0)
    assert not line.is_slow(MAX_PROMPT_ANSWER_SECONDS + 0.1)
    line.ask(10.0, 1000)
    line.answered(10.0 + 2 * SLOW_ANSWER)
    line.ask(11.0, 1500)
    assert line.is_behind(11.0 + 2 * MAX_PROMPT_ANSWER_SECONDS, 0)
    assert not line.is_behind(11.1 + MAX_ANSWER_SECONDS, 0)


def test_bytes_that_the_terminal_leaves_make_a_line_slow_for_a_while() -> None:
    line = Line()
    assert line.is_behind(100.0, 500) and not line.is_slow(100.0), "every picture takes a moment"
    assert line.is_behind(100.1, 0) is False
    assert line.is_behind(200.0, 500)
    now = 200.0 + 2 * SLOW_ANSWER
    assert line.is_behind(now, 400) and line.is_slow(now)
    assert not line.is_behind(now + 1, 0) and line.is_slow(now + 1)
    assert not line.is_slow(now + SLOW_FOR)


def test_a_late_answer_makes_a_line_slow_and_a_prompt_one_does_not() -> None:
    line = Line()
    line.ask(0.0, 500)
    line.answered(SLOW_ANSWER / 2)
    assert not line.is_slow(SLOW_ANSWER / 2)
    big = 500 + int(QUICK_RATE)  # it takes its second on a quick line, too
    line.ask(1.0, big)
    line.answered(2.0)
    assert not line.is_slow(2.0)
    line.ask(3.0, big + 500)
    line.answered(3.0 + 2 * SLOW_ANSWER)
    assert line.is_slow(3.0 + 2 * SLOW_ANSWER)


class Terminal(CountingDriver):
    """A driver without a terminal: the test says what was given and what was taken."""

    waiting = 0

    def __init__(self) -> None:
        self.given = 0
        self.questions = 0

    def write(self, data: str) -> None:
        self.given += len(data)
        self.questions += data == QUESTION


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(terminal_output.time, "monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize("answers", [True, False])
def test_on_a_quick_line_nothing_waits_whatever_was_sent(clock: list[float], answers: bool) -> None:
    terminal, pacer = Terminal(), Pacer(low_bandwidth=False)
    for _ in range(100):
        terminal.write("x" * 30_000)
        pacer.sent(terminal, answers)
        if answers:
            pacer.answered()
        clock[0] += 0.05
        assert pacer.wait(terminal) == 0
    assert terminal.questions == (100 if answers else 0)


@pytest.mark.parametrize("low_bandwidth", [True, False])
def test_on_a_slow_line_a_view_waits_for_a_second_at_most_once_the_last_one_has_arrived(
    clock: list[float], low_bandwidth: bool
) -> None:
    terminal, pacer = Terminal(), Pacer(low_bandwidth)
    for _ in range(20):
        pacer.wait(terminal)
        terminal.write("x" * 10_000)
        pacer.sent(terminal, True)
        clock[0] += 2 * SLOW_ANSWER
        assert pacer.wait(terminal) > 0, "it has not arrived"
        clock[0] += SLOW_ANSWER
        pacer.answered()
        terminal.write("x" * 10_000)  # a key
        pacer.sent(terminal, False)
        assert 0 < pacer.wait(terminal) <= MAX_DEBT_SECONDS < 1
        assert (pacer.panels_wait(terminal) > MAX_DEBT_SECONDS) == low_bandwidth
        clock[0] += MAX_DEBT_SECONDS
        assert pacer.wait(terminal) == 0
        assert (pacer.panels_wait(terminal) > 0) == low_bandwidth
        clock[0] += PANELS_DEBT_SECONDS
        assert pacer.panels_wait(terminal) == 0


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
        self.idle = False  # whether there was nothing to read once

    def read(self, seconds: float) -> int:
        """Read for so long, at its own speed; the bytes that came."""
        begin, count = time.monotonic(), 0
        while time.monotonic() - begin < seconds:
            time.sleep(0.05)
            room = int((time.monotonic() - begin) * self.speed) - count
            if room <= 0:
                continue
            if not select.select([self.master], [], [], 0)[0]:
                self.idle = True
            else:
                with suppress(OSError):
                    data = os.read(self.master, min(room, 4096))
                    count += len(data)
                    self._stream.feed(data)
                    for _ in range(data.count(QUESTION.encode())):
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
def training(tmp_path: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    environment = {**os.environ, "TRAINMON_DIR": str(tmp_path), "PYTHONPATH": str(ROOT), "TERM": "xterm-256color"}
    environment["COLORTERM"] = "truecolor"
    process = subprocess.Popen([sys.executable, "-c", TRAINING], env=environment, stdout=subprocess.DEVNULL)
    yield tmp_path, environment
    process.kill()
    process.wait()


def steps_done(state: Path) -> int:
    return sum(map(steps_in, state.glob("runs/*/rank-*.jsonl")))


def opened(training: tuple[Path, dict[str, str]], speed: float, *words: str) -> SlowTerminal:
    """The dashboard on a terminal of so many bytes a second, once it shows a step."""
    state, environment = training
    until = time.monotonic() + 90
    while steps_done(state) < 5:
        assert time.monotonic() < until
        time.sleep(0.1)
    terminal = SlowTerminal([sys.executable, "-m", "monitor", "attach", *words], environment, speed)
    while terminal.step == 0:
        terminal.read(0.5)
        assert time.monotonic() < until, "\n".join(terminal.screen.display)
    return terminal


def within(terminal: SlowTerminal, budget: float) -> bool:
    """Whether what comes in eight seconds keeps to the budget; one picture may be on its way."""
    begin = time.monotonic()
    count = terminal.read(8.0)
    return count <= budget * (time.monotonic() - begin + SAVED_SECONDS) + 4096


@pytest.mark.long
def test_low_bandwidth_keeps_to_its_budget(training: tuple[Path, dict[str, str]]) -> None:
    terminal = opened(training, 10_000, "--low-bandwidth")
    try:
        terminal.read(6.0)  # what the first picture cost
        # A panel that comes, as the first alert brings it, is drawn whole, whatever it takes: not in each stretch.
        assert any(within(terminal, LOW_BANDWIDTH_RATE) for _ in range(3))
    finally:
        terminal.end()


def backlog(terminal: SlowTerminal) -> int:
    """The bytes that were on their way when the dashboard was stopped; it goes on after."""
    os.kill(terminal.pid, signal.SIGSTOP)
    speed, terminal.speed = terminal.speed, 10**6
    count = terminal.read(1.0)
    terminal.speed = speed
    os.kill(terminal.pid, signal.SIGCONT)
    terminal.read(4.0)
    return count


@pytest.mark.parametrize("speed", [pytest.param(1_000, marks=pytest.mark.long), 10_000])
def test_a_slow_terminal_has_one_picture_on_its_way_and_no_backlog(
    training: tuple[Path, dict[str, str]], speed: int
) -> None:
    terminal = opened(training, speed)
    try:
        until = time.monotonic() + 90
        terminal.idle = False
        while not terminal.idle and time.monotonic() < until:  # the rest of the first picture
            terminal.read(0.5)
        before = terminal.step
        # A panel that comes, as the first alert brings it, is drawn whole, whatever it takes: not at each stop.
        assert any(backlog(terminal) < 5_000 for _ in range(3)), "the picture that was drawn last"
        terminal.read(10.0)
        assert terminal.step > before
    finally:
        terminal.end()

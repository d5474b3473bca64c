"""What the readers cost: the start of the command, the fold, the first paint of `attach`, the running dashboard."""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import ioctl
from pathlib import Path

import psutil

from tests.bench.journals import write_run

TRAINMON = [sys.executable, "-m", "monitor"]
PAINTED = b"Where the time goes"  # a panel's title: the screen stands, with the run's state on it
COLUMNS, LINES = 160, 45

# A training of four steps a second, for the dashboard to follow.
LIVE = """
import time, random
import trainhooks as th
th.init(name="live", total_steps=100000)
for _ in th.steps(range(100000)):
    for name, seconds in (("generation", .15), ("execution", .06), ("training", .04)):
        with th.phase(name): time.sleep(seconds * random.uniform(.8, 1.2))
    th.log(reward=random.random(), loss=random.random()); th.count(tokens=1000)
"""


def command_start(times: int = 7) -> dict[str, float]:
    """Seconds of `trainmon --help` beside those of an empty Python program, in turns."""
    helps, bares = [], []
    for _ in range(times):
        bares.append(_seconds([sys.executable, "-c", "pass"]))
        helps.append(_seconds([*TRAINMON, "--help"]))
    bare, help_ = statistics.median(bares), statistics.median(helps)
    return {"python -c pass, ms": 1e3 * bare, "trainmon --help, ms": 1e3 * help_, "ratio": help_ / bare}


def _seconds(command: list[str]) -> float:
    begin = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begin


def fold_speed(steps: int = 50_000) -> dict[str, float]:
    """Steps a second from a journal to a state, and that in units of a bare JSON decode of the same lines."""
    import msgspec

    from monitor.runs.follow import Run

    with _state_dir() as state:
        path = write_run(state / "runs", steps)
        lines = next(path.glob("rank-*.jsonl")).read_bytes().splitlines()
        begin = time.process_time()
        for line in lines:
            msgspec.json.decode(line)
        decode = time.process_time() - begin
        run = Run(path)
        begin = time.process_time()
        while run.advance(1.0):
            pass
        fold = time.process_time() - begin
        begin = time.process_time()
        for _ in range(20):
            run.view()
        view = (time.process_time() - begin) / 20
        run.close()
        return {
            "events folded a second": steps / fold,
            "fold / bare JSON decode": fold / decode,
            "one view, ms": 1e3 * view,
        }


def first_paint(sizes: tuple[int, ...] = (10_000, 1_000_000)) -> dict[str, float]:
    """Seconds from `trainmon attach` to the first full screen, for an empty run and for long ones."""
    out = {}
    with _state_dir() as state:
        for steps in (0, *sizes):
            path = write_run(state / "runs", steps)
            out[f"attach, {steps} steps: first paint, s"] = _paint(path, state)
        if sizes[-1] >= 100_000:
            out[f"report, {sizes[-1]} steps, first time, s"] = _seconds_in(state, path)
            out[f"report, {sizes[-1]} steps, again, s"] = _seconds_in(state, path)
            out[f"attach, {sizes[-1]} steps, again: first paint, s"] = _paint(path, state)
    return out


def _seconds_in(state: Path, path: Path) -> float:
    os.environ["TRAINMON_DIR"] = str(state)
    return _seconds([*TRAINMON, "report", str(path)])


def _paint(path: Path, state: Path) -> float:
    begin = time.perf_counter()
    with _screen([*TRAINMON, "attach", str(path)], state) as (_, master):
        seen = b""
        while PAINTED not in seen:
            if time.perf_counter() - begin > 60:
                raise TimeoutError("no first paint in a minute")
            seen += _read(master, 0.05)
        return time.perf_counter() - begin


def dashboard(seconds: float = 15.0, *words: str) -> dict[str, float]:
    """CPU share, bytes a second and memory of the dashboard on a run of four steps a second."""
    with _state_dir() as state:
        environment = {**os.environ, "TRAINMON_DIR": str(state)}
        training = subprocess.Popen([sys.executable, "-c", LIVE], env=environment)
        try:
            while not list(state.glob("runs/*/rank-*.jsonl")):
                time.sleep(0.1)
            with _screen([*TRAINMON, "attach", *words], state) as (process, master):
                _drain(master, 8.0)
                watched = psutil.Process(process)
                before = sum(watched.cpu_times()[:2])
                count = _drain(master, seconds)
                cpu = sum(watched.cpu_times()[:2]) - before
                return {
                    "dashboard: CPU, % of a core": 100 * cpu / seconds,
                    "dashboard: bytes a second": count / seconds,
                    "dashboard: memory, MiB": watched.memory_info().rss / 2**20,
                }
        finally:
            training.kill()
            training.wait()


@contextmanager
def _state_dir() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="trainmon-bench-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _screen(command: list[str], state: Path) -> Iterator[tuple[int, int]]:
    """A command on a terminal of its own; gives its pid and the terminal's other end."""
    pid, master = pty.fork()
    if pid == 0:
        os.environ.update(TRAINMON_DIR=str(state), TERM="xterm-256color", COLORTERM="truecolor")
        os.execv(command[0], command)
    ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    try:
        yield pid, master
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(master)


def _read(master: int, seconds: float) -> bytes:
    ready, _, _ = select.select([master], [], [], seconds)
    try:
        return os.read(master, 1 << 16) if ready else b""
    except OSError:  # the other end is closed
        return b""


def _drain(master: int, seconds: float) -> int:
    until, count = time.perf_counter() + seconds, 0
    while time.perf_counter() < until:
        count += len(_read(master, 0.05))
    return count

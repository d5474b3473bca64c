"""Eight ranks, viewers, a dashboard on a pseudo-terminal, and random faults, for as many minutes as are asked for."""

from __future__ import annotations

import argparse
import os
import random
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.e2e.conftest import Terminal
from tests.faults.checker import differences, journalled
from tests.faults.place import HERE, TRAINMON, Place, done_by, recorder_of, steps_told, wait_for
from tests.soak.measures import ENOUGH, WARM_UP, Frames, Life, resident, slope
from tests.soak.mischief import Mischief
from trainhooks.protocol import rundir

RANKS = 8
PACE = 0.02  # seconds a step
LOOK = 0.05
BETWEEN = 4.0  # seconds between two faults, on average
LATEST_FRAME = 1.0  # seconds
STEEPEST = 1.0  # MiB an hour
JUDGED = 10.0  # minutes from which on frames and memory are: no short check asserts on an absolute time


class Soak:
    def __init__(self, place: Place, seed: int) -> None:
        self.place, self.at = place, place.work()
        start = (
            'for i in $(seq 0 $(($1 - 1))); do mkdir "$2/$i"; RANK=$i WORLD_SIZE=$1 "$3" "$4" "$2/$i" "$5" 0 0 & done'
        )
        words = ["sh", "-c", start + "; wait", "sh", str(RANKS), str(self.at), sys.executable]
        words += [str(HERE / "training.py"), str(PACE)]
        self.front = place.start(*TRAINMON, "run", "--no-tui", "--name", "soak", "--", *words)
        wait_for(lambda: place.runs() and len(list(place.runs()[0].glob("rank-*.jsonl"))) == RANKS, "the ranks")
        (self.run,) = place.runs()
        self.mischief = Mischief(place, self.run, self.front.pid, seed)
        self.mischief.view()
        self.screen: Terminal = place.trainmon("attach", self.run.name)
        self.screen.wait_for("training")
        self.frames = Frames()
        self.lives: dict[str, dict[int, Life]] = {"dashboard": {}, "recorder": {}}  # by process
        self._random = random.Random(seed)
        self._shown = b""  # last on the screen

    def last(self, seconds: float) -> None:
        """Watch the screen, sample the memory, strike."""
        began = now = time.monotonic()
        strike, sample = now + BETWEEN, now
        while now < began + seconds:
            ready, _, _ = select.select([self.screen.master], [], [], LOOK)
            if ready:
                self._shown = (self._shown + self._arrived())[-2000:]
            now = time.monotonic()
            self.frames.look(now, bool(ready))
            self.mischief.undo(now)
            if now >= sample:
                sample = now + 1.0
                self._sample(now - began)
            if now >= strike and now < began + seconds - 2 * BETWEEN:
                strike = now + self._random.uniform(0.5, 1.5) * BETWEEN
                self.mischief.strike(now)
                self.frames.pause(time.monotonic())

    def _arrived(self) -> bytes:
        try:
            return os.read(self.screen.master, 1 << 16)
        except OSError:  # the other end is closed
            raise AssertionError(f"the dashboard has ended, with {self._shown!r}") from None

    def _sample(self, at: float) -> None:
        for name, pid in (("dashboard", self.screen.pid), ("recorder", recorder_of(self.run))):
            size = resident(pid)
            if size is not None:
                self.lives[name].setdefault(pid, Life()).add(at, size)

    def end(self) -> tuple[int, list[int]]:
        """Let the ranks end; the events that there were, and how many the journals and each viewer lack."""
        self.mischief.undo(float("inf"))
        for rank in range(RANKS):
            (self.at / str(rank) / "done").touch()
        self.front.wait(60)
        lost = [sum(done_by(self.at / str(rank)) for rank in range(RANKS)) - steps_told(self.run)]
        wait_for(lambda: not rundir.run_alive(self.run), "the training's end")
        for viewer, out in self.mischief.viewers:
            viewer.wait(60)
            lost.append(differences(self.run, out))
        return len(journalled(self.run)), lost


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="of the faults; printed")
    given = parser.parse_args()
    print(f"{given.minutes:g} minutes, {RANKS} ranks, seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="trainmon-soak-") as path:
        place = Place(Path(path))
        try:
            soak = Soak(place, given.seed)
            soak.last(given.minutes * 60)
            events, lost = soak.end()
        except (AssertionError, subprocess.SubprocessError) as error:
            print(f"it did not hold: {error}")
            return 1
        finally:
            place.clear()
    return tell(soak, events, lost, given.minutes)


def tell(soak: Soak, events: int, lost: list[int], minutes: float) -> int:
    """Print what was found; 1 where it is not as promised."""
    faults = ", ".join(f"{name} {times}" for name, times in sorted(soak.mischief.done.items()))
    print(f"faults       {soak.mischief.done.total()}: {faults}")
    whole = lost[1:].count(0)
    print(f"events       {events:,}; viewers that hold them all: {whole} of {len(lost) - 1}; steps lost: {lost[0]}")
    frames = soak.frames
    print(f"frame after  p50 {frames.at(0.5):.2f} s, p99 {frames.at(0.99):.2f} s, latest {frames.at(1):.2f} s", end="")
    print(f"; {frames.standstills} times the box itself stood still" if frames.standstills else "")
    bad = any(lost) or (minutes >= JUDGED and not frames.at(1) <= LATEST_FRAME)
    for name, lives in soak.lives.items():
        steep = [slope(life.warm()) for life in lives.values()]
        for life, each in zip(lives.values(), steep, strict=True):
            print(f"memory of the {name:9} {memory(life, each)}")
        # One that was replaced too soon is told and not judged; that none lived to be judged is not as promised.
        judged = [each for each in steep if each == each]
        bad |= minutes >= JUDGED and (not judged or max(judged) > STEEPEST)
    if minutes < JUDGED:
        print(f"(frames and memory are judged from {JUDGED:g} minutes on: less is a box's moment, a sawtooth's tooth)")
    print("not as promised" if bad else "as promised")
    return int(bad)


def memory(life: Life, steep: float) -> str:
    """One process's memory: from when it came, and how it climbed once it was warm."""
    (_, first), (_, last) = life.samples[0], life.samples[-1]
    whole = f"{first:.1f} to {last:.1f} MiB in {life.seconds / 60:.1f} minutes"
    warm = life.warm()
    if not warm:
        return f"{whole}; judged from {(WARM_UP + ENOUGH) / 60:g} minutes on"
    return f"{whole}; after {WARM_UP / 60:g} of them {warm[0][1]:.1f} to {warm[-1][1]:.1f}, {steep:+.2f} MiB an hour"


if __name__ == "__main__":
    sys.exit(main())

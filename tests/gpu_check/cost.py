"""What watching costs a step: the same loops bare and watched, other processes in turn."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from tests.gpu_check.budget import Deadline
from tests.gpu_check.loops import NAMES
from tests.gpu_check.runner import Ran, bare, watched

BARE, ZERO, API, OFF = "bare", "zero code", "trainhooks API", "zero code, device lane off"
MODES = (BARE, ZERO, API, OFF)
ROUNDS = 3
SECONDS = 2.0  # of a loop, after its warm-up
RUN = 9.0  # seconds that one run takes at most, until that was seen
HANGS = 120.0
CLOCK_OFF = {"TRAINMON_GPU_CLOCK": "0"}

TITLES = {
    "mlp": "launch-bound MLP",
    "mlp-item": "the same with loss.item()",
    "gpt": "GPT 124M, bf16",
    "resnet": "eager ResNet-like, 24 layers",
}
# What watching may add to a step, as a share of it. On long steps that is what two runs of one loop differ by.
MOST = 0.05
MOST_LONG, LONG = 0.02, 5e-3
MOST_P99 = 0.25  # to the 99th percentile, which differs more from run to run
LANE = 0.005  # the device lane's own budget, of the step time
EQUAL = 1e-3  # of losses after a few steps, and of peaks of memory
NOISE = 0.015  # between two runs' means


@dataclass
class Measured:
    """The runs of a loop, by mode."""

    name: str
    runs: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {mode: [] for mode in MODES})
    trouble: list[str] = field(default_factory=list)

    def figure(self, mode: str, key: str) -> float | None:
        values = [run[key] for run in self.runs[mode] if run.get(key) is not None]
        return median(values) if values else None

    def same(self, key: str) -> bool:
        """Whether all runs tell one value. Attention's and convolutions' backwards add up in any order."""
        values = [run[key] for runs in self.runs.values() for run in runs if run.get(key) is not None]
        return not values or max(values) - min(values) <= EQUAL * max(map(abs, values))


Start = Callable[[str, str, Path], Ran]


def start(device: str, seconds: float = SECONDS) -> Start:
    """Runs one loop in one mode."""

    def run(loop: str, mode: str, state: Path) -> Ran:
        words = [sys.executable, "-m", "tests.gpu_check.loops", loop, "--seconds", str(seconds), "--device", device]
        if mode == BARE:
            return bare(words, state, HANGS)
        more: Mapping[str, str] | None = CLOCK_OFF if mode == OFF else None
        return watched(loop, [*words, "--api"] if mode == API else words, state, HANGS, more)

    return run


def measure(deadline: Deadline, scratch: Path, run: Start, rounds: int = ROUNDS) -> list[Measured]:
    """Each loop in each mode, in turns, as often as there is time; once at least."""
    found = [Measured(name) for name in NAMES]
    longest = RUN
    for turn in range(rounds):
        for each in found:
            for mode in MODES:
                if turn and deadline.over(longest):
                    return found
                ran = run(each.name, mode, scratch / f"{each.name}-{MODES.index(mode)}-{turn}")
                longest = ran.wall if not turn and each is found[0] else max(longest, ran.wall)
                if ran.trouble or not ran.told:
                    each.trouble.append(f"{mode}: {ran.trouble or 'it told nothing'}")
                else:
                    each.runs[mode].append(ran.told)
    return found


HEAD = ("loop", BARE, ZERO, API, OFF, "verdict")
WIDTHS = (30, 10, 20, 20, 26, 30)


def rows(each: Measured) -> list[tuple[tuple[str, ...], bool]]:
    """A loop's rows: its step, for the one that reads its loss the 99th percentile as well."""
    if each.trouble or each.figure(BARE, "mean") is None:
        return [((TITLES[each.name], "-", "-", "-", "-", f"BROKEN: {'; '.join(each.trouble)[:200]}"), True)]
    found = [_row(each, "mean", TITLES[each.name])]
    if each.name == "mlp-item":
        found.append(_row(each, "p99", "its 99th percentile"))
    return found


def _row(each: Measured, key: str, title: str) -> tuple[tuple[str, ...], bool]:
    base = each.figure(BARE, key)
    assert base is not None
    shown, words = [duration(base)], list[str]()
    most = MOST_P99 if key == "p99" else MOST if base < LONG else MOST_LONG
    for mode in MODES[1:]:
        value = each.figure(mode, key)
        if value is None:
            shown.append("-")
            continue
        share = value / base - 1.0
        shown.append(f"{duration(value - base, sign=True)} ({100 * share:+.1f}%)")
        if share > most:
            words.append(f"{mode}: more than {100 * most:g}%")
    lane, off = each.figure(ZERO, "mean"), each.figure(OFF, "mean")
    if key == "mean" and lane is not None and off is not None and lane / off - 1.0 > LANE + NOISE:
        words.append(f"device lane: {100 * (lane / off - 1.0):.1f}%, budget {100 * LANE:g}%")
    if key == "mean" and not each.same("loss"):
        words.append("the losses differ")
    if key == "mean" and not each.same("peak"):
        words.append("the peaks of GPU memory differ")
    return (title, *shown, "; ".join(words) or "ok"), bool(words)


def duration(seconds: float, sign: bool = False) -> str:
    form = "+" if sign else ""
    return f"{seconds * 1e6:{form}.0f} us" if abs(seconds) < 1e-3 else f"{seconds * 1e3:{form}.2f} ms"


def notes(found: list[Measured]) -> list[str]:
    runs = sorted({len(each.runs[mode]) for each in found for mode in MODES})
    count = " or ".join(map(str, runs))
    return [
        f"Each figure is the median of {count} runs of {SECONDS:g} s, other processes in turn; "
        f"as far as {100 * NOISE:g}% two runs of one loop may differ by themselves.",
        "The losses and the peaks of the GPU's memory are compared over all runs of a loop.",
    ]

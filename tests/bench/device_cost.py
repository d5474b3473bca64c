"""What the device's lane costs a training: its part of the step time on a simulated device, calibrated to a real one.

There a step that is timed costs the training thread 0.45 ms (an H100 in a virtual machine, eight marks a step). Only
calls to CUDA are charged; time is virtual, so the figures are the same on every machine.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.simulated_device import checks
from tests.simulated_device.plays import Plays, Zygote

LENGTHS = {0.5: "half-a-millisecond", 1.0: "one-millisecond", 10.0: "ten-milliseconds", 100.0: "hundred-milliseconds"}


def measure() -> dict[str, float]:
    """Percent of the step time, beside the budget, and what of the steps is timed."""
    rows: dict[str, float] = {"budget, %": 100.0 * checks.BUDGET}
    zygote = Zygote()
    try:
        with tempfile.TemporaryDirectory() as work:
            play = Plays(zygote, Path(work), Path(work, "shared"))
            for milliseconds, name in LENGTHS.items():
                played = play(name)
                untimed = checks.untimed_costs(played)
                rows[f"steps of {milliseconds:g} ms, %"] = 100.0 * checks.cost(played)
                rows[f"    timed, of 1,000 ({milliseconds:g} ms)"] = 1000.0 * len(played.timed) / len(played.indices)
                worst = untimed[len(untimed) * 99 // 100]
                rows[f"    99th percentile of an untimed one, us ({milliseconds:g} ms)"] = 1e6 * worst
    finally:
        zygote.end()
    return rows


if __name__ == "__main__":
    for name, value in measure().items():
        print(f"{name:52} {value:8.4g}")

"""A GPU that overheats in the middle of a training, to show how trainmon reports it. The GPUs are SIMULATED.

    python demo/throttle.py                  # two minutes; on the dashboard, where there is a terminal
    python demo/throttle.py --no-cut         # the same training on GPUs that stay cool
    python demo/throttle.py --seconds 10     # how long the cut lasts, and the time before and after it

No GPU is needed: a small C library (tests/gpu/nvml_stub.c) stands in for NVIDIA's driver and answers from a text file.
The training writes that file while it runs, and the durations of its steps follow the simulated clocks:

  at first     two H200 at 1980 MHz, one of them a little warmer with every second
  the cut      GPU 1 reaches its limit: hardware thermal slowdown, 1290 MHz; every step waits for it
  afterwards   it has cooled down, and the steps are as quick as before
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import trainhooks as th

LIBRARY = "libnvidia-ml.so.1"
STUB = Path(__file__).resolve().parents[1] / "tests" / "gpu"
FULL_CLOCK, CUT_CLOCK = 1980, 1290  # MHz
HW_SLOWDOWN, HW_THERMAL = 0x8, 0x40  # clock event reasons, as the driver sets them together
COOL, LIMIT = 65.0, 87.0  # Celsius
STEP_SECONDS = 0.25  # at full clock
SCENE_SECONDS = 0.2
HW_THERMAL_FIELD = 270  # nanoseconds in hardware thermal slowdown, by the number of driver 580.95


class Scenes:
    """Writes the readings of the simulated driver over time."""

    def __init__(self, file: Path, cut: tuple[float, float] | None) -> None:
        """Prepare the readings.

        Args:
            file: the text file that the simulated driver reads.
            cut: when the clock drops and recovers, in seconds since the start; None for never.
        """
        self.clock = FULL_CLOCK  # MHz, of the slowest GPU
        self._over = threading.Event()
        self._player = threading.Thread(target=self._play, daemon=True)
        self._file = file
        self._cut = cut
        self._base = (STUB / "scenes" / "h200x8.txt").read_text() + "driver.count = 2\n"
        self._slow_ns = 0.0
        self._last = 0.0

    def start(self) -> None:
        """Write the readings repeatedly, in a thread."""
        self._player.start()

    def stop(self) -> None:
        self._over.set()
        self._player.join()

    def _play(self) -> None:
        began = time.monotonic()
        while not self._over.wait(SCENE_SECONDS):
            self.show(time.monotonic() - began)

    def show(self, now: float) -> None:
        """Write the readings at `now`, in seconds since the start."""
        is_cut = self._cut is not None and self._cut[0] <= now < self._cut[1]
        self._slow_ns += 1e9 * (now - self._last) if is_cut else 0.0
        self._last = now
        self.clock = CUT_CLOCK if is_cut else FULL_CLOCK
        heat = self._heat(now)
        lines = {
            "gpu1.sm_clock": self.clock,
            "gpu1.temperature": round(heat),
            "gpu1.temperature_margin": round(LIMIT - heat),
            "gpu1.power": 430_000 if is_cut else 612_500,
            "gpu1.reasons": hex(HW_SLOWDOWN | HW_THERMAL) if is_cut else "0",
            f"gpu1.field.{HW_THERMAL_FIELD}": f"ull:{int(self._slow_ns)}",
            "gpu.processes": f"{os.getpid()}:96636764160",
        }
        new = self._file.with_suffix(".new")
        new.write_text(self._base + "".join(f"{key} = {value}\n" for key, value in lines.items()))
        new.replace(self._file)  # atomically: the driver never reads a partial file

    def _heat(self, now: float) -> float:
        """Return the temperature in Celsius: rising to the limit, constant during the cut, then falling."""
        if self._cut is None:
            return COOL
        begin, end = self._cut
        if now < begin:
            return COOL + (LIMIT - COOL) * now / begin
        return max(COOL, LIMIT - 2 * max(0.0, now - end))


def train(scenes: Scenes, seconds: float) -> None:
    """Run steps whose duration follows the simulated clock."""
    steps = round(seconds / STEP_SECONDS)
    th.init(name="throttle", total_steps=steps, config={"gpus": "SIMULATED", "step_seconds": STEP_SECONDS})
    noise = random.Random(0)
    for step in th.steps(range(1, steps + 1)):
        work = STEP_SECONDS * noise.uniform(0.98, 1.02) * FULL_CLOCK / scenes.clock
        for phase, share in (("forward", 0.3), ("backward", 0.6), ("optimizer", 0.1)):
            with th.phase(phase):
                time.sleep(share * work)
        th.log(loss=2.5 / (1 + step / 100) + noise.gauss(0, 0.02))
        th.count(tokens=16_384, samples=8)


def watch(words: list[str], no_tui: bool) -> int:
    """Build the simulated driver, and run this program again under trainmon with it; the training cleans up."""
    directory = Path(tempfile.mkdtemp(prefix="trainmon-throttle-"))
    scene, library = directory / "scene.txt", directory / LIBRARY
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", library, STUB / "nvml_stub.c", "-pthread"], check=True)
    Scenes(scene, None).show(0.0)
    search = os.pathsep.join(filter(None, (str(directory), os.environ.get("LD_LIBRARY_PATH"))))
    environment = {**os.environ, "NVML_STUB": str(scene), "LD_LIBRARY_PATH": search}
    trainmon = [sys.executable, "-m", "monitor", "run", "--name", "throttle", *(["--no-tui"] if no_tui else [])]
    training = [sys.executable, __file__, "--scene", str(scene), *words]
    return subprocess.run([*trainmon, "--", *training], env=environment).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=40.0, help="how long the cut lasts, and each part around it")
    parser.add_argument("--no-cut", action="store_true", help="leave the GPUs alone")
    parser.add_argument("--no-tui", action="store_true", help="no dashboard")
    parser.add_argument("--scene", type=Path, help=argparse.SUPPRESS)  # set where this is the training itself
    given = parser.parse_args()
    if given.scene is None:
        words = ["--seconds", str(given.seconds), *(["--no-cut"] if given.no_cut else [])]
        return watch(words, given.no_tui)
    scenes = Scenes(given.scene, None if given.no_cut else (given.seconds, 2 * given.seconds))
    scenes.start()
    try:
        train(scenes, 3 * given.seconds)
    finally:
        scenes.stop()
        for path in (given.scene, given.scene.with_name(LIBRARY)):
            path.unlink(missing_ok=True)
        given.scene.parent.rmdir()
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Print the whole table: `make bench`, or `python -m tests.bench --short` for a minute's worth."""

from __future__ import annotations

import compileall
import json
import os
import subprocess
import sys

from tests.bench import (
    cuda_path_cost,
    dashboard_cost,
    device_cost,
    readers_cost,
    recorder_cost,
    relay_cost,
    rivals,
    zero_code_cost,
)


def main() -> None:
    short = "--short" in sys.argv
    for package in ("monitor", "trainhooks"):  # an installed package has its bytecode: the compiler is not measured
        compileall.compile_dir(package, quiet=1)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}. Trust the ratios and the differences.\n")
    _show("Hooks, on a training step of about 1 ms", _hooks(10 if short else 80))
    _show("No code changed, on a step of about 1 ms", _hooks(10 if short else 80, "zero_code_cost"))
    _show("The device's lane, on a simulated device (virtual time)", device_cost.measure())
    _show("The training thread of a CUDA program, on a simulated device", cuda_path_cost.measure(6 if short else 20))
    _show("What `trainmon run` adds to the start of a Python", zero_code_cost.starts(4 if short else 12))
    beside = zero_code_cost.traceml(10 if short else 80)
    _show("TraceML on the same loop" if beside else "TraceML is not installed here: nothing to set beside it.", beside)
    _show("Start of the command", readers_cost.command_start())
    _show("Fold", readers_cost.fold_speed())
    _show("Diagnosis, of the dearest of four runs", readers_cost.diagnosis())
    _show("First paint", readers_cost.first_paint((10_000, 100_000) if short else (10_000, 1_000_000)))
    _show("Many ranks", readers_cost.many_ranks(64 if short else 1024))
    for ranks in (64,) if short else (64, 256, 1024):
        _show(f"{ranks} ranks at 4 steps a second, followed over a relay", relay_cost.measure(ranks))
    _show("Recorder, once a second", recorder_cost.measure(20 if short else recorder_cost.POLLS))
    seconds = 5.0 if short else 20.0
    _show("Dashboard, 160x45, ten steps a second, eight GPUs", dashboard_cost.running(seconds))
    _show("The same with --low-bandwidth", dashboard_cost.running(seconds, "--low-bandwidth"))
    _show("Dashboard on a run that has ended", dashboard_cost.idle(seconds))
    for name, rows in rivals.measure(seconds).items():
        _show(f"{name}, same terminal, same GPUs", rows)


def _hooks(pairs: int, which: str = "hooks_cost") -> dict[str, float]:
    """In a process of its own: its background thread must not see ours."""
    code = f"import json; from tests.bench.{which} import measure; print(json.dumps(measure({pairs})))"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    out: dict[str, float] = json.loads(found.stdout.splitlines()[-1])
    return out


def _show(title: str, rows: dict[str, float]) -> None:
    print(title)
    for name, value in rows.items():
        print(f"  {name:52} {value:12.4g}")
    print(flush=True)


if __name__ == "__main__":
    main()

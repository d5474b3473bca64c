"""One workload on the simulated device, with the real hooks, in this process; what was true is written at its end.

SIMULATED_PLAY='{"workload": "healthy"}' TRAINMON_DIR=... python -m tests.simulated_device.play
"""

from __future__ import annotations

import atexit
import glob
import json
import os
import random
import time
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

VARIABLE = "SIMULATED_PLAY"
DRIVER = 600 * 2**20  # bytes of a context
_ACTIVITY, _COUNTED = ("sm_active", "tensor_active", "memory_active"), ("pcie_rx", "pcie_tx", "memory_used")
TRUTH = "truth.json"  # in the working directory


def main() -> None:
    order: dict[str, Any] = json.loads(os.environ[VARIABLE])
    way = order.get("way", "auto")

    os.environ.update(order.get("environment", {}))
    from tests.simulated_device import begin, mutants
    from tests.simulated_device.beat import Beat
    from tests.simulated_device.install import install, install_fake
    from tests.simulated_device.workloads import WAYS, WORKLOADS, Workload

    workload, program = Workload(""), None
    if "program" in order:
        from tests.simulated_device import programs

        program = programs.PROGRAMS[order["program"]]
        foreign = (0.0, 0.0)
    else:
        workload = replace(WORKLOADS[order["workload"]], **order.get("changes", {}))
        foreign = workload.foreign
    wall = time.time()
    device, clock = begin(foreign=foreign, **order.get("device", {}))
    _same_chances(order.get("seed", 1))
    began = clock.now
    face = (install_fake if order.get("fake") else install)(device)
    done: dict[str, int] = {}
    # Registered before the hooks register anything: it runs after all that they do at the end.
    atexit.register(lambda: _write(order, face, done, wall, began, memory))
    if way == "auto" and order.get("hooks", True):
        from trainhooks.auto import imports

        imports.install()
    memory: list[int] = []  # of each second
    beat = Beat(clock)
    beat.install()
    beat.each_second(lambda: memory.append(device.memory.reserved + DRIVER))
    mutants.apply(order.get("mutant", ""), face)
    began = clock.now
    if program is None:
        WAYS[way](device, workload)
    else:
        done["samples"] = programs.runs(order["program"], bool(order.get("mended")), device, face)
    done.update(elapsed=clock.now - began, hooks_cost=face.hooks_cost)


def _same_chances(seed: int) -> None:
    """What the hooks draw lots with: the same in each play, so that no test fails one time in a thousand.

    Names of runs and sockets stay as different as ever: two plays of one name would hear each other.
    """
    chances, real = random.Random(seed).randbytes, os.urandom
    os.urandom = chances  # type: ignore[assignment]
    from trainhooks.device import device_sampling  # draws the first lot

    os.urandom = real
    device_sampling.os = SimpleNamespace(urandom=chances)  # type: ignore[assignment]


def _write(order: dict[str, Any], face: Any, done: dict[str, int], wall: float, began: int, memory: list[int]) -> None:
    device = face.devices[0]
    device.finish()
    end = max(face.clock.now, device.compute.free)
    readings = device.readings()
    for second, reading in enumerate(readings):
        reading["memory_used"] = memory[min(second, len(memory) - 1)] if memory else DRIVER
    truth = {
        **done,
        "misdeeds": face.misdeeds,
        "calls": face.calls,
        "events": face.events,
        "busy": device.ledger.busy(began, end) / max(1, end - began),
        "by_step": face.by_step,
        "arrivals": device.arrivals,
        "steps": device.ledger.of_steps(),
        "blocked": device.blocked / 1e9,
        "waited": device.waited / 1e9,
        "readings": readings,
        "costs": asdict(device.costs),
        "sessions": [asdict(each) for each in face.kineto.sessions],
        "runtime": list(device.calls) if face.kineto.sessions else [],
    }
    with open(TRUTH, "w") as file:
        json.dump(truth, file)
    if order.get("recorder", True):
        _record(readings, began, wall, bool(device._foreign[1]))


def _record(readings: list[dict[str, float]], began: int, wall: float, shared: bool) -> None:
    """What a recorder would have read of the driver meanwhile, as its journal."""
    runs = glob.glob(os.path.join(os.environ["TRAINMON_DIR"], "runs", "*"))
    if len(runs) != 1:
        return
    always = {"uuid": "GPU-" + "00000000-0000-0000-0000-000000000000", "name": "Simulated H100 80GB HBM3"}
    always.update(memory_total=80 * 2**30, power=400.0, power_limit=700.0, temperature=55)  # type: ignore[arg-type]
    always.update(sm_clock=1980, sm_clock_max=1980, memory_clock=2619, reasons=0)  # type: ignore[arg-type]
    processes: list[list[Any]] = [[os.getpid(), "python3", 50 * 2**30, True]]
    if shared:
        processes.append([4242, "other", 4 * 2**30, False])
    lines: list[dict[str, Any]] = [
        {"kind": "hello", "t": began / 1e9, "protocol": 1, "source": "recorder", "wall": wall}
    ]
    for second, reading in enumerate(readings, 1):
        told = {name: round(reading[name], 1) for name in _ACTIVITY} | {name: int(reading[name]) for name in _COUNTED}
        told["utilization"] = round(reading["utilization"])
        t = began / 1e9 + second
        lines.append({"kind": "gpu", "t": t, **always, **told, "processes": processes})
    with open(os.path.join(runs[0], "node-simulated.jsonl"), "w") as file:
        for number, line in enumerate(lines):
            file.write(
                json.dumps({"kind": line.pop("kind"), "producer": "node-simulated", "seq": number, **line}) + "\n"
            )


if __name__ == "__main__":
    main()

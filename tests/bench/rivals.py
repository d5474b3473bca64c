"""What other terminal monitors cost on the same terminal, over the same simulated GPUs: those that are on PATH."""

from __future__ import annotations

import shutil

from tests.bench.dashboard_cost import SETTLE, costs
from tests.bench.simulated_gpus import environment
from tests.bench.terminals import drain, screen, state_dir

RIVALS = ("nvitop", "btop")  # as they come, at their own pace


def measure(seconds: float = 20.0) -> dict[str, dict[str, float]]:
    """By name, the same figures as the dashboard's. Nothing for one that is not there, or that does not last."""
    found = {}
    for name in RIVALS:
        program = shutil.which(name)
        if program is None:
            continue
        with state_dir() as state, screen([program], state, **environment(state)) as (pid, master):
            if drain(master, SETTLE):
                found[name] = costs(pid, master, seconds)
    return found

"""What `trainmon run` adds to a program that knows nothing of it: to a step of about a millisecond, and to its start.

Steps: short blocks with our functions in place and with torch's own take turns in one process, so that both see the
same box; all of data, forward, backward, optimizer, loss and samples is told. Start: pairs of interpreters that do
nothing, and of ones that import torch and make an optimizer, which arms everything.
"""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.bench.hooks_cost import STEPS, _pairs
from trainhooks.protocol import rundir

PAIRS = 80
STARTS = 8
TRACEML_PYTHON = "TRACEML_PYTHON"
TRACEML_LIMIT = 600.0  # seconds
START_TRACEML = "from traceml_ai.launcher.cli import main; main()"


def loop(torch: Any) -> tuple[Any, Callable[..., None]]:
    """The model, and what trains it for a block of steps; each step but its fetch inside `around()`, where given."""
    from torch.utils.data import DataLoader, Dataset

    class Batches(Dataset[Any]):
        def __init__(self) -> None:
            self.batch = torch.randn(160, 96)

        def __len__(self) -> int:
            return STEPS

        def __getitem__(self, _: int) -> Any:
            return self.batch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(96, 256), torch.nn.ReLU(), torch.nn.Linear(256, 96))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loader = DataLoader(Batches(), batch_size=None)

    def step(batch: Any) -> Any:
        loss = (model(batch) - batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    def train(times: list[int], around: Callable[[], Any] | None = None) -> None:
        clock = time.perf_counter_ns
        begin = clock()
        for batch in loader:
            if around is None:
                loss = step(batch)
            else:
                with around():
                    loss = step(batch)
            now = clock()
            times.append(now - begin)
            begin = now
        del loss

    return model, train


class Switch:
    """Put our functions in place, or torch's own."""

    def __init__(self, torch: Any) -> None:
        from torch.utils.data import dataloader

        from trainhooks.auto import imports

        scaler = torch.amp.GradScaler
        self._places = [
            (torch.autograd, "backward"), (torch.autograd, "grad"), (scaler, "scale"), (scaler, "step"),
            (dataloader.DataLoader, "__iter__"), (dataloader._BaseDataLoaderIter, "__next__"),
        ]  # fmt: skip
        self._theirs = [getattr(owner, name) for owner, name in self._places]
        imports.install()
        self._ours = [getattr(owner, name) for owner, name in self._places]
        module = sys.modules["torch.optim.optimizer"]
        self._hooks: list[Any] = [module._global_optimizer_pre_hooks, module._global_optimizer_post_hooks]  # type: ignore[attr-defined]
        assert all(self._hooks)
        self._held = [dict(each) for each in self._hooks]
        self._calls: list[tuple[dict[str, Any], Any]] = []

    def found(self, models: list[Any]) -> None:
        """Take the models whose calls are followed."""
        from trainhooks.auto.models.model_calls import CALL

        self._name = CALL
        self._calls = [(vars(model), vars(model).get(CALL)) for model in models]
        assert all(heard is not None for _, heard in self._calls), "a model was not found"

    def set(self, armed: bool) -> None:
        for (owner, name), function in zip(self._places, self._ours if armed else self._theirs, strict=True):
            setattr(owner, name, function)
        for each, entries in zip(self._hooks, self._held, strict=True):
            each.clear()
            each.update(entries if armed else {})
        for attributes, heard in self._calls:
            attributes[self._name] = heard if armed else None


def measure(pairs: int = PAIRS) -> dict[str, float]:
    """Microseconds a step, by name; run in a process of its own."""
    os.environ.setdefault("TRAINMON_DIR", tempfile.mkdtemp(prefix="trainmon-bench-"))
    import torch

    from trainhooks.auto.models.model_calls import MAX_INSPECTED_CALLS

    switch = Switch(torch)
    model, train = loop(torch)
    train([])  # finds the model
    switch.found([model])

    def with_(armed: bool) -> Callable[[list[int]], None]:
        def run(times: list[int]) -> None:
            switch.set(armed)
            train(times)

        return run

    bare, armed = with_(False), with_(True)
    for _ in range(1 + MAX_INSPECTED_CALLS // STEPS):  # until the hooks have seen what they look for at first only
        bare([])
        armed([])
    return _pairs("zero code", bare, armed, pairs)


def traceml(pairs: int = PAIRS) -> dict[str, float]:
    """The same loop under TraceML, for comparison; nothing where it is not installed.

    `TRACEML_PYTHON` names a Python that has it, beside torch; else it may be in this one's environment.
    """
    python = os.environ.get(TRACEML_PYTHON)
    if python is None and importlib.util.find_spec("traceml_ai") is None:
        return {}
    with tempfile.TemporaryDirectory(prefix="trainmon-bench-") as directory:
        out = Path(directory) / "out.json"
        script = Path(__file__).with_name("traceml_loop.py")
        run = ["run", "--logs-dir", f"{directory}/logs", str(script), "--args", str(pairs), str(out)]
        words = [python or sys.executable, "-c", START_TRACEML, *run]
        ended = subprocess.run(words, cwd=directory, capture_output=True, timeout=TRACEML_LIMIT, check=False)
        if not out.exists():  # it may fail after the loop, too: in its own account of it
            return {"it failed before the loop's end: exit code": ended.returncode}
        found: dict[str, float] = json.loads(out.read_text())
    return found


def starts(pairs: int = STARTS) -> dict[str, float]:
    """Milliseconds that the bootstrap adds to the start of an interpreter, and of one that arms everything."""
    rows = {}
    with tempfile.TemporaryDirectory(prefix="trainmon-bench-") as directory:
        bare = {**os.environ, "TRAINMON_DIR": directory}
        bare.pop(rundir.RUN_VARIABLE, None)
        path = os.pathsep.join(filter(None, (rundir.BOOTSTRAP, os.environ.get("PYTHONPATH"))))
        armed = {**bare, rundir.RUN_VARIABLE: directory, "PYTHONPATH": path}
        for name, code in (("no torch", "pass"), ("import torch", "import torch")):
            added = [_start(code, armed) - _start(code, bare) for _ in range(pairs)]
            rows[f"start of an interpreter ({name}): added, ms"] = 1e3 * statistics.median(added)
    return rows


def _start(code: str, environment: dict[str, str]) -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    return time.perf_counter() - begin


if __name__ == "__main__":
    for row, value in {**measure(int(sys.argv[1]) if len(sys.argv) > 1 else PAIRS), **starts()}.items():
        print(f"{row:55} {value:9.1f}")

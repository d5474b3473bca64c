"""torch.compile under trainmon: the same graphs as without it, and what became of them told."""

from __future__ import annotations

from pathlib import Path

import pytest

from .watched import both, entered, long, phases

LONG = map(long, ("sequential", "function", "in_place", "step", "breaks", "recompiles", "ids"))


@pytest.mark.long
@pytest.mark.parametrize("way", ["module", *LONG])
def test_graphs_stay_as_they_are(tmp_path: Path, way: str) -> None:
    run = both(tmp_path, "compiled.py", way)  # the last line it prints is the number of graphs
    steps = run.steps()
    assert len(steps) == 8
    assert all({"forward", "backward", "optimizer"} >= set(phases(step)) - {"compile", "other"} for step in steps)
    assert all(entered(step)["backward"] == 1 for step in steps)
    graphs = int(run.out.split()[-1])
    told = run.facts["compile"]
    assert graphs > 0 and told["graphs"] == graphs
    assert told["seconds"] > 0
    assert sum(span["duration"] for span in run.spans("compile")) == pytest.approx(told["seconds"], abs=1e-3)
    assert any("compile" in phases(step) for step in steps[:1])
    assert bool(told["graph_breaks"]) == (way in ("breaks", "step"))
    assert bool(told["recompiles"]) == (way == "recompiles")
    assert told["fallback"] == (way == "recompiles")
    assert len(told["reasons"]) == (0 if way not in ("breaks", "step", "recompiles") else len(set(told["reasons"])))


@pytest.mark.long
def test_a_model_compiled_after_its_optimizer_was_made_is_counted(tmp_path: Path) -> None:
    run = both(tmp_path, "compiled_late.py")
    counted = [step.get("tokens") for step in run.steps()]
    assert counted[1:] == [64] * 23
    assert [step.get("uncounted") for step in run.steps()][1:] == [None] * 23
    speed = run.report.throughput
    assert speed.tokens_per_second is not None and speed.steps_per_second is not None
    assert speed.tokens_per_second == pytest.approx(64 * speed.steps_per_second)

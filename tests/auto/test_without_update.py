"""Programs that compute gradients and never step an optimizer, and some that only look so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.auto.watched import Watched, long, watched

SCRIPT = """
import sys
import torch
from torch import nn

KIND = sys.argv[1]
torch.manual_seed(0)
torch.set_num_threads(1)
scaler = torch.amp.GradScaler("cpu")

def main():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for step in range(100):
        x, y = torch.randn(4, 8), torch.randn(4, 1)
        loss = (model(x) - y).square().mean()
        if KIND == "overflow":
            optimizer.zero_grad()
            scaler.scale(loss * float("inf")).backward()
            scaler.step(optimizer)
            scaler.update()
            continue
        loss.backward()
        if KIND == "printed" and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if KIND == "late" and step % 50 == 49:
            optimizer.step()
            optimizer.zero_grad()
        if KIND == "hand":
            for one in model.parameters():
                one.data -= 1e-3 * one.grad
                one.grad = None

main()
"""


def run_of(tmp_path: Path, kind: str) -> Watched:
    (tmp_path / "script.py").write_text(SCRIPT)
    run = watched(tmp_path, str(tmp_path / "script.py"), kind)
    assert run.code == 0, run.err
    text = " ".join(line for finding in run.report.findings for line in (finding.title, *finding.evidence))
    assert "Python" not in text and "did not report" not in text
    return run


@pytest.mark.parametrize("kind", ["forgotten", "printed"])
def test_an_optimizer_that_never_steps_is_told_first(tmp_path: Path, kind: str) -> None:
    first = run_of(tmp_path, kind).report.findings[0]
    assert (first.code, first.severity) == ("weights-unchanged", "critical")
    assert first.title.startswith("Nothing is learned")


def test_a_scaler_that_skips_all_steps(tmp_path: Path) -> None:
    first = run_of(tmp_path, "overflow").report.findings[0]
    assert (first.code, first.severity) == ("steps-skipped", "critical")
    assert first.title == "Nothing is learned: all 100 steps were skipped: gradient overflow (loss scaler)"


@pytest.mark.parametrize("kind", ["late", long("hand")])
def test_programs_that_update_otherwise(tmp_path: Path, kind: str) -> None:
    run = run_of(tmp_path, kind)
    assert "weights-unchanged" not in [finding.code for finding in run.report.findings]
    assert len(run.steps()) == (2 if kind == "late" else 0)

"""Real programs under `trainmon run`: which steps are traced, what is told of them, and what the program sees."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.auto.watched import Watched, watched

LOOP = """
import torch
torch.manual_seed(0); torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
optimizer = torch.optim.AdamW(model.parameters())
batches = torch.utils.data.DataLoader(torch.randn(3200, 256), batch_size=16)
BEFORE
for epoch in range(5):
    for x in batches:
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    AFTER
print(f"{loss.item():.12f}", torch.rand(1).item())
"""
FIRST = 10  # no step before it is traced


def run(path: Path, before: str = "", after: str = "", env: dict[str, str] | None = None) -> Watched:
    (path / "job.py").write_text(LOOP.replace("BEFORE", before).replace("AFTER", after or "pass"))
    return watched(path / "state", *([str(path / "job.py")]), **({"env": env} if env else {}))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    return run(tmp_path_factory.mktemp("plain"))


def test_a_few_steps_are_traced(plain: Watched) -> None:
    traces = plain.events("trace")
    assert 1 <= len(traces) <= 2
    first = traces[0]
    assert (first["steps"], first["first"] >= FIRST) == (1, True)
    rows = {(name, phase) for name, phase, _, _ in first["rows"]}
    assert {("aten::addmm", "forward"), ("aten::mm", "backward"), ("aten::sqrt", "optimizer")} <= rows
    assert 0 < sum(row[3] for row in first["rows"]) <= first["seconds"]
    assert dict(first["shapes"])["aten::addmm"] in ("256 16x256 256x256", "8 16x256 256x8")
    assert plain.err == ""


def test_steps_that_it_made_longer_are_marked(plain: Watched) -> None:
    measured = [step["index"] for step in plain.steps() if step.get("measured")]
    for trace in plain.events("trace"):
        assert {trace["first"] + place for place in range(trace["steps"])} <= set(measured)
    assert len(measured) <= 2 * len(plain.events("trace")) + 4


def test_the_report_says_what_ran(plain: Watched) -> None:
    operators = plain.report.operators
    assert operators is not None and operators.how == "traced" and operators.kernels
    assert sum(row.share for row in operators.phases) == pytest.approx(1.0)
    assert "matrix product" in {row.name for row in operators.classes}
    assert plain.report.device is None


def test_the_program_sees_no_difference(plain: Watched, tmp_path: Path) -> None:
    """The same losses and random numbers to the last digit, and nothing on its streams."""
    off = run(tmp_path, env={"TRAINMON_TRACE": "0"})
    assert not off.events("trace") and (off.out, off.err) == (plain.out, plain.err)
    assert off.facts["tracing"] == "off: by setting"


@pytest.mark.parametrize(
    ("env", "why"),
    [
        ({"KINETO_LOG_LEVEL": "2"}, "off: KINETO_LOG_LEVEL=6 is not set, and torch's profiler would print"),
        ({"KINETO_USE_DAEMON": "1"}, "off: another profiler is there"),
    ],
)
def test_where_it_could_be_in_the_way_nothing_is_traced(tmp_path: Path, env: dict[str, str], why: str) -> None:
    told = run(tmp_path, env=env)
    assert not told.events("trace") and told.facts["tracing"] == why


def test_a_value_of_the_users_stays(tmp_path: Path) -> None:
    before = "import os; print(os.environ['KINETO_LOG_LEVEL'], os.environ['TEARDOWN_CUPTI'])"
    told = run(tmp_path, before=before, env={"KINETO_LOG_LEVEL": "3", "TEARDOWN_CUPTI": "0"})
    assert told.out.startswith("3 0\n")


SCHEDULED = """
from torch.profiler import ProfilerActivity, profile, schedule
seen = profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=60, warmup=5, active=3))
seen.start()
"""


def test_a_program_that_made_a_profiler_is_not_traced(tmp_path: Path) -> None:
    told = run(tmp_path, before=SCHEDULED)
    assert not told.events("trace") and told.facts["tracing"] == "off: the program uses a profiler"
    assert told.err == ""


def test_a_profiler_that_starts_later_has_its_own_session(tmp_path: Path) -> None:
    later = "\n    ".join(
        (
            "from torch.profiler import profile",
            "with profile() as seen: model(x).sum()",
            "print(sum(event.count for event in seen.key_averages() if event.key == 'aten::addmm'))",
        )
    )
    told = run(tmp_path, after=later)
    assert told.out.splitlines()[:5] == ["2"] * 5 and told.err == ""

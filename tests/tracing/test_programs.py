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
    return run_script(path, LOOP.replace("BEFORE", before).replace("AFTER", after or "pass"), env)


def run_script(path: Path, source: str, env: dict[str, str] | None = None) -> Watched:
    """Run it with steps on a CPU traced by themselves."""
    (path / "job.py").write_text(source)
    return watched(path / "state", str(path / "job.py"), env={"TRAINMON_TRACE": "1", **(env or {})})


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


@pytest.mark.long
def test_the_program_sees_no_difference(plain: Watched, tmp_path: Path) -> None:
    """The same losses and random numbers to the last digit, and nothing on its streams."""
    off = run(tmp_path, env={"TRAINMON_TRACE": "0"})
    assert not off.events("trace") and (off.out, off.err) == (plain.out, plain.err)
    assert off.facts["tracing"] == "off: by setting"


@pytest.mark.long
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


@pytest.mark.long
def test_a_value_of_the_users_stays(tmp_path: Path) -> None:
    before = "import os; print(os.environ['KINETO_LOG_LEVEL'], os.environ['TEARDOWN_CUPTI'])"
    told = run(tmp_path, before=before, env={"KINETO_LOG_LEVEL": "3", "TEARDOWN_CUPTI": "0"})
    assert told.out.startswith("3 0\n")


SCHEDULED = """
from torch.profiler import ProfilerActivity, profile, schedule
seen = profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=60, warmup=5, active=3))
seen.start()
"""


@pytest.mark.long
def test_a_program_that_made_a_profiler_is_not_traced(tmp_path: Path) -> None:
    told = run(tmp_path, before=SCHEDULED)
    assert not told.events("trace") and told.facts["tracing"] == "off: the program uses a profiler"
    assert told.err == ""


@pytest.mark.long
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


def test_without_a_gpu_steps_are_traced_on_demand_alone(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(LOOP.replace("BEFORE", "").replace("AFTER", "pass"))
    told = watched(tmp_path / "state", str(tmp_path / "job.py"))
    assert not told.events("trace")
    assert told.facts["tracing"] == "off: operators of a CPU are traced on demand, or with TRAINMON_TRACE=1"


STEPS = """
import os, sys, threading, time, torch
torch.set_num_threads(1)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
seen = []
def train():
    for step in range(30):
        time.sleep(0.05)
        loss = model(torch.ones(1, 4)).sum()
        INSIDE
        optimizer.step()
        optimizer.zero_grad()
START
print(sum(seen))
"""


def steps(path: Path, inside: str, start: str = "train()") -> Watched:
    return run_script(path, STEPS.replace("INSIDE", inside).replace("START", start))


@pytest.mark.long
@pytest.mark.parametrize("name", ["profiler.emit_itt", "profiler_legacy.profile"])
def test_an_older_profiler_of_the_programs_starts_inside_a_traced_step(name: str, tmp_path: Path) -> None:
    told = steps(tmp_path, f"with torch.autograd.{name}(): loss.backward()")
    assert told.code == 0 and "Error" not in told.err, told.err


FORK = """
        loss.backward()
        child = os.fork()
        if child == 0:
            os._exit(torch._C._autograd._profiler_enabled())
        seen.append(os.waitpid(child, 0)[1])
"""


@pytest.mark.long
def test_a_child_forked_inside_a_traced_step_records_nothing(tmp_path: Path) -> None:
    told = steps(tmp_path, FORK.strip())
    assert (told.code, told.out) == (0, "0\n")


def test_steps_beside_the_main_thread_are_not_traced(tmp_path: Path) -> None:
    """torch's profiler would print there."""
    told = steps(tmp_path, "loss.backward()", "t = threading.Thread(target=train); t.start(); t.join()")
    assert not told.events("trace") and told.err == ""
    assert told.facts["tracing"] == "off: the steps run beside the main thread, and torch's profiler would print"

"""What of `make gpu-check` can be checked without a GPU: that it says so, and how it judges."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.gpu.conftest import ROOT, Stub, changed, scene, stub  # noqa: F401  # a fixture
from tests.gpu_check import clock, events, load, smi, training
from tests.gpu_check.row import BAD, OK, TOLD, Row
from tests.journal_lines import single_lines
from trainhooks.protocol.events import Gpu

H200 = scene("h200x8")

# What nvidia-smi prints of such cards.
SMI = {
    "utilization.gpu": "97", "utilization.memory": "61", "memory.used": "92160", "memory.reserved": "600",
    "memory.total": "143771", "temperature.gpu": "63", "temperature.memory": "71", "power.draw": "612.50",
    "power.draw.average": "611.00", "enforced.power.limit": "700.00", "power.default_limit": "700.00",
    "clocks.sm": "1980", "clocks.max.sm": "1980", "clocks.mem": "3201", "clocks.max.mem": "3201", "pstate": "P0",
    "pcie.link.gen.current": "5", "pcie.link.gen.max": "5", "pcie.link.width.current": "16",
    "pcie.link.width.max": "16", "ecc.errors.corrected.volatile.total": "0",
    "ecc.errors.uncorrected.volatile.total": "0", "clocks_event_reasons.active": "0x0000000000000004",
}  # fmt: skip

CHECK = """
import json, sys
from dataclasses import asdict
from tests.gpu_check import smi
table = json.load(sys.stdin)
def asked(names):
    if set(names) - {"uuid", *table["known"]}: return None
    return [", ".join(row[name] for name in names) for row in table["rows"]]
print(json.dumps([asdict(row) for row in smi.check(asked)]))
"""


def checked(stub: Stub, drivers: str, **differs: str) -> list[Row]:  # noqa: F811
    """The driver's readings through the real binding, against such an nvidia-smi; None: a name that it lacks."""
    stub.file.write_text(drivers)
    known = [name for name in SMI if differs.get(name) is not None or name not in differs]
    rows = [{"uuid": f"GPU-0000000{n}-5eed-4000-8000-00000000000{n}", **SMI, **differs} for n in range(8)]
    return [Row(**row) for row in stub.python(CHECK, {"known": known, "rows": rows})]


def test_without_a_gpu_it_is_one_line_and_exit_2(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu_check", "--out", tmp_path / "out.jsonl"],
        cwd=ROOT, env={**os.environ, "PATH": str(tmp_path)}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "gpu-check: nothing is checked: no NVIDIA driver is installed (there is no nvidia-smi)\n"
    assert not list(tmp_path.iterdir())


def test_a_torch_without_cuda_is_one_line_and_exit_2(tmp_path: Path) -> None:
    torch = tmp_path / "torch"
    torch.mkdir()
    (torch / "__init__.py").write_text("from . import version\n__version__ = '2.13.0+cpu'\n")
    (torch / "version.py").write_text("cuda = None\n")
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu_check", "--out", "out.jsonl"],
        cwd=ROOT, env={**os.environ, "PATH": str(tmp_path), "PYTHONPATH": str(tmp_path)},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "torch 2.13.0+cpu is not built for CUDA" in done.stderr


def test_readings_that_agree(stub: Stub) -> None:  # noqa: F811
    rows = checked(stub, changed(H200, gpu__reasons=4))
    assert [row for row in rows if row.verdict != OK] == []
    assert len(rows) == 1 + 8 * (len(smi.READINGS) + 1)
    assert rows[0] == Row("GPUs seen", "8", "8")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature.gpu", "71"),
        ("enforced.power.limit", "600.00"),
        ("clocks.max.sm", "1830"),
        ("pstate", "P8"),
        ("pcie.link.width.current", "8"),
        ("clocks_event_reasons.active", "0x0000000000000000"),
        ("temperature.memory", "[N/A]"),
    ],
)
def test_a_reading_that_differs_is_found(stub: Stub, name: str, value: str) -> None:  # noqa: F811
    rows = [row for row in checked(stub, changed(H200, gpu__reasons=4), **{name: value}) if row.verdict == BAD]
    assert len(rows) == 8 and all(row.check.endswith((name, "reasons")) for row in rows)


def test_cards_that_lack_a_reading_lack_it_for_both(stub: Stub) -> None:  # noqa: F811
    lacking = "\n".join(line for line in H200.splitlines() if not line.startswith("gpu.field.82 ")) + "\n"
    rows = checked(stub, changed(lacking, gpu__reasons=4), **{"temperature.memory": "[N/A]"})
    assert [row for row in rows if row.verdict != OK] == []


def test_an_older_nvidia_smi_is_asked_name_by_name() -> None:
    asked: list[list[str]] = []

    def ask(names: list[str]) -> list[str] | None:
        asked.append(names)
        return ["GPU-1, 5"] if names in (["uuid", "pstate"], ["uuid", smi.REASONS[1]]) else None

    assert smi.told(ask) == {"GPU-1": {"pstate": "5", smi.REASONS[1]: "5"}}
    assert len(asked) == len(smi.READINGS) + 3
    assert smi.told(lambda names: None) == {}


def test_reasons_that_come_and_go_meanwhile_are_no_difference() -> None:
    told = {smi.REASONS[0]: "0x0000000000000004"}
    for before, after, verdict in ((4, 4, OK), (0, 4, OK), (4, 0, OK), (0, 0, BAD), (0x44, 0x44, BAD)):
        rows = smi.compare(Gpu("", 0, 0, reasons=before), told, Gpu("", 0, 1, reasons=after))
        assert rows[-1].verdict == verdict, (before, after)


class FakeEvent:
    """An event of a stream whose work takes 1, 2 and 3 ms a phase, and ends two marks after it was recorded."""

    made = 0
    recorded: ClassVar[list[FakeEvent]] = []

    def __init__(self) -> None:
        FakeEvent.made += 1
        self.at = self.place = 0

    def record(self) -> None:
        self.recorded.append(self)
        self.place = len(self.recorded)
        self.at = sum((1, 2, 3, 0)[n % 4] for n in range(self.place - 1))

    def query(self) -> bool:
        return len(self.recorded) >= self.place + 2

    def elapsed_time(self, end: FakeEvent) -> float:
        return float(end.at - self.at)


def test_events_are_used_again_and_never_waited_for() -> None:
    FakeEvent.made = 0
    FakeEvent.recorded.clear()
    pooled = events.Pooled(FakeEvent)
    for _ in range(4 * 50):
        pooled.mark()
    assert pooled.seconds == [[0.001, 0.002, 0.003]] * 49, "the last step is still under way"
    assert FakeEvent.made == 8


@pytest.mark.parametrize(
    ("ours", "reference", "verdict"),
    [([0.010], [0.0101], OK), ([0.010], [0.011], BAD), ([], [0.01], BAD), ([0.0001], [0.0002], TOLD)],
)
def test_phases_by_events_agree_within_a_fiftieth(ours: list[float], reference: list[float], verdict: str) -> None:
    assert events.verdict("forward", ours, reference).verdict == verdict


def test_the_workload_marks_its_phases() -> None:
    import torch

    marks = 0

    def mark() -> None:
        nonlocal marks
        marks += 1

    events.workload(torch, width=8, rows=4, layers=1)(mark)
    assert marks == len(events.PHASES) + 1


@pytest.mark.long
def test_the_clock_of_the_hooks_is_checked_from_end_to_end(tmp_path: Path) -> None:
    """Here without a GPU: nothing is timed, torch.compile makes its one graph, and the rows say so."""
    report, printed, _ = training.run(tmp_path / "state", *clock.command(4, 8, 4, 1))
    rows = {row.check: row for row in clock.check(report, printed)}
    assert rows["clock: forward in the report"].ours == "no event was read"
    assert rows["clock: graphs of torch.compile"].verdict == OK
    assert rows["clock: steps"].verdict == BAD
    assert clock.check(report, "")[0].verdict == BAD
    report["device"] = {"timed_steps": 60, "dropped": 2, "queued": 0.9, "seconds": 0.04}
    for row in report["phases"]:
        row["clock"], row["mean"] = "cuda", {"forward": 0.0103, "backward": 0.022}.get(row["name"], 0.0)
    report["phases"] = [row for row in report["phases"] if row["mean"]]
    told = {"reference": {"forward": 0.01, "backward": 0.02, "optimizer": 0.01}, "seconds": 0.04}
    line = json.dumps({**told, "graphs": 1, "captured": True})
    verdicts = [row.verdict for row in clock.check(report, f"clocked: {line}")]
    assert verdicts == [OK, BAD, BAD, OK, TOLD, TOLD, OK, OK]


def test_a_clock_that_waits_pays_neither_the_launches_nor_the_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that works behind the host, in made-up time: a launch costs 1, a phase 5, the delay 3."""
    now = done = 0.0

    def launch(seconds: float) -> None:
        nonlocal now, done
        now += 1.0
        done = max(done, now) + seconds

    def wait() -> None:
        nonlocal now
        now = max(now, done)

    def step(mark: events.Mark) -> None:
        for _ in events.PHASES:
            mark()
            launch(5.0)
        mark()

    monkeypatch.setattr(events.time, "perf_counter", lambda: now)
    assert events.waited(step, 2, wait, lambda: launch(3.0)) == [[5.0, 5.0, 5.0]] * 2
    assert events.waited(step, 1, wait) == [[6.0, 6.0, 6.0]], "without it, the launches count"


def readings(**figures: Any) -> list[Gpu]:
    return [
        Gpu("", 0, float(t), uuid="GPU-1", **{"utilization": 100.0, "power_limit": 700.0, **figures}) for t in (1, 2)
    ]


@pytest.mark.parametrize(
    ("figures", "check", "verdict"),
    [
        ({"power": 698.0, "reasons": 4}, "dense load: power cap", OK),
        ({"power": 698.0, "reasons": 0}, "dense load: power cap", BAD),
        ({"power": 500.0, "reasons": 0}, "dense load: power cap not reached", TOLD),
        ({"power": None}, "dense load: power", TOLD),
        ({"utilization": 10.0}, "dense load: utilization", BAD),
    ],
)
def test_a_card_at_its_limit_must_say_so(figures: dict[str, Any], check: str, verdict: str) -> None:
    rows = {row.check: row.verdict for row in load.verdict(readings(**figures))}
    assert rows[check] == verdict
    assert load.verdict([])[0].verdict == BAD


def test_a_training_under_trainmon_is_reported_and_recorded(tmp_path: Path) -> None:
    """Here without a GPU, so the rows of one differ; the others hold."""
    code = (
        "import trainhooks as th, time\nfor _ in th.steps(range(20)):\n with th.phase('generation'): time.sleep(0.01)"
    )
    report, _, run = training.run(tmp_path / "state", "rl", [sys.executable, "-c", code])
    rows = {row.check: row.verdict for row in training.rl(report)}
    assert rows.pop("rl: steps") == BAD and rows.pop("rl: GPUs used, by UUID") == BAD
    assert set(rows.values()) == {OK}
    recorded = training.record(run, tmp_path / "new" / "out.jsonl")
    assert recorded.verdict == OK, asdict(recorded)
    text = (tmp_path / "new" / "out.jsonl").read_text()
    assert str(tmp_path) not in text and os.uname().nodename not in text
    kinds = {json.loads(line)["kind"] for line in single_lines(text.encode())}
    assert kinds >= {"hello", "step", "host", "exit"}

"""Reports from hand-made figures: units written out, unknown said, names harmless."""

from __future__ import annotations

import json
import math

from monitor import run_facts
from monitor.model.report import (
    Dropped,
    Finding,
    GpuRow,
    HostRow,
    MetricRow,
    NamedSeconds,
    Outcome,
    PhaseRow,
    Progress,
    RankRow,
    Rates,
    Report,
    Run,
    SlowStep,
    Throughput,
    Wall,
)
from monitor.model.steps.series import Curve
from monitor.model.view import OpenWork, View
from monitor.reports.report_json import as_json
from monitor.reports.run_summary import short
from monitor.reports.run_text import markdown, text


def rich_report() -> Report:
    return Report(
        run=Run("rl-0101-aaaa", "rl \x1b]52;c;aGk=\x07", ["python", "rl code.py"], "box", 1.7e9, ranks=2),
        outcome=Outcome("failed", 1, None, "ValueError: no"),
        progress=Progress(90, 100, 80, 10, {"empty code": 10}, 0.9, 12.0, 10.0, 15.0, 2807.0, 1.5, 2.0),
        throughput=Throughput(0.25, 12345.6, 3.21, 0.311, recent=Rates(0.5)),
        wall=Wall(1000.0, 100.0, 700.0, {"checkpoint": 150.0}, 40.0, 10.0),
        phases=[
            PhaseRow("generation", 0.9, 3.5, 3.4, 5.0, 9.0, "host", 90),
            PhaseRow("other", 0.1, 0.0004, 0.0004, 0.05, 0.1, "host", 90),
        ],
        metrics={"loss": MetricRow("nan", 1.5, 1.0, 2.0, 90, 3), "a|b_c": MetricRow(0.35, 0.3, 0.0, 1.0, 90)},
        slow_steps=[SlowStep(7, 1, 9.0, 3.5, "generation", {"generation": 8.0})],
        startup=[NamedSeconds("import torch", 5.0)],
        gpus=[GpuRow("GPU-1", 0, "H1", 87.0, 3 * 2**30, 80 * 2**30, 71.0, 312.0, 700.0, 1980, 2100, ["sw power cap"],
                     {"sw power cap": 90.0}, simulated=True), GpuRow("GPU-2", 1)],
        host=HostRow(cores=8, cpu=50.0, load1=1.5, memory_used=2**30, memory_total=2**34, note="no NVIDIA driver"),
        ranks=[RankRow(0, 1.0, 0.1, 90), RankRow(1, 1.2, None, 90)],
        findings=[Finding(code="slow-steps", severity="warning", title="One step is slow",
                          evidence=["step 7 took 9 s"], advice="look at it", lost_fraction=0.05,
                          likely_fraction=0.05, steps=[7])],
        alerts=[],
        dropped=Dropped(3, 1),
    )  # fmt: skip


NOTHING = Finding(code="none", severity="info", title="Waiting for the first step")


def shown(report: Report, verdict: Finding) -> View:
    return View(report, verdict, OpenWork(), Curve(), {}, {}, Curve())


def poor_report() -> Report:
    nothing = (Run(), Outcome(), Progress(), Throughput(), Wall(), [], {}, [], [], [], HostRow(), [], [], [], Dropped())
    return Report(*nothing)


def test_the_text_tells_all() -> None:
    told = text(rich_report())
    for piece in (
        "Outcome   failed (exit code 1) after 46 min 47 s: ValueError: no",
        "90 of 100 steps (90%), 10 skipped",
        "12,346 tokens/s, 3.21 samples/s, 4.00 s/it, MFU 31%",
        "$1.50 of about $2.00",
        "checkpoint      2 min 30 s   15%",
        "generation  host   90%   3.50 s   3.40 s   5.00 s   9.00 s     90",
        "Slow step 7 (9.0 s): generation 8.0 s; typical 3.5 s (rank 1)",
        "empty code     10",
        "import torch  5.00 s",
        "0 H1: 87% busy, 3.0 of 80.0 GiB, 71 °C, 312 W of 700 W, 1,980 MHz of 2,100 MHz SIMULATED",
        "throttled: sw power cap for 1 min 30 s",
        "1 GPU-2: no driver readings",
        "no NVIDIA driver",
        "warning: One step is slow (about 5.0% of the elapsed time) [slow-steps]",
        "dropped before the journal: 3 events",
        "missing or unreadable in the journals: 1 line",
    ):
        assert " ".join(piece.split()) in " ".join(told.split()), piece
    assert "\x1b" not in told and "\x07" not in told


def test_nothing_known_is_said_as_unknown() -> None:
    told = text(poor_report())
    assert "Speed     –" in told
    assert "no step measured" in told
    assert " 0 " not in told and "None" not in told
    assert len(short(shown(poor_report(), NOTHING)).splitlines()) <= 8


def test_the_short_one_is_short() -> None:
    report = rich_report()
    lines = short(shown(report, report.findings[0])).splitlines()
    assert len(lines) <= 16
    assert lines[0].startswith("trainmon: rl ]52;c;aGk= failed (exit code 1)")
    assert "loss nan" in "\n".join(lines)
    assert any("One step is slow" in line for line in lines) and any("1  look at it" in line for line in lines)


def test_markdown_shows_foreign_names_as_they_are() -> None:
    told = markdown(rich_report())
    assert "| a\\|b_c |" in told
    assert "## Step time by phase" in told


def test_json_has_the_promised_keys_and_null_for_unknown() -> None:
    report = rich_report()
    report.throughput.mfu = math.nan
    told = json.loads(as_json(report))
    assert set(told) >= {
        "run", "outcome", "progress", "throughput", "wall", "phases", "metrics", "slow_steps", "startup", "gpus",
        "host", "ranks", "findings", "alerts", "dropped",
    }  # fmt: skip
    assert told["throughput"]["mfu"] is None
    assert told["metrics"]["loss"]["last"] == "nan"
    assert json.loads(as_json(poor_report()))["progress"]["eta_seconds"] is None


def test_what_torch_holds_of_a_gpus_memory_is_beside_what_the_driver_says() -> None:
    report = rich_report()
    held = {"total": 80, "allocated": 20, "reserved": 24, "peak_allocated": 50, "peak_reserved": 60}
    report.run.facts = run_facts.read({"torch": {"gpu_memory": {name: gib * 2**30 for name, gib in held.items()}}})
    line = "torch, of 80.0 GiB: 20.0 GiB allocated and 24.0 GiB reserved; peak 50.0 GiB and 60.0 GiB"
    assert line in text(report)
    for odd in ({}, {"allocated": 1}, {**held, "total": "80"}, {**held, "reserved": -1}, 5):
        report.run.facts = run_facts.read({"torch": {"gpu_memory": odd}})
        assert "torch, of" not in text(report)

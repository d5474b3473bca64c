"""Real trainings on the GPU under trainmon, and what its report says of them."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from demo.record import recorded
from tests.gpu_check.row import TOLD, Row, judged

ROOT = Path(__file__).resolve().parents[2]
SFT_STEPS, RL_STEPS = 150, 60
MOST = 2_000_000  # bytes of a recording
AGREE = 0.03  # of the tokens a second
# The RL demo, as it is, with every tensor on the GPU.
ON_GPU = "import runpy, sys, torch; torch.set_default_device('cuda'); sys.argv = sys.argv[1:]; sys.path[0] = 'demo'"
ON_GPU += "; runpy.run_path(sys.argv[0], run_name='__main__')"

SFT = ("sft", [sys.executable, "tests/gpu_check/sft.py", str(SFT_STEPS)])
RL = ("rl", [sys.executable, "-c", ON_GPU, "demo/rl_code.py", "--steps", str(RL_STEPS)])


def run(state: Path, name: str, command: list[str]) -> tuple[dict[str, Any], str, Path]:
    """Run a training under trainmon: its report, what it printed, and where its journals are."""
    environment = {**os.environ, "TRAINMON_DIR": str(state), "PYTHONPATH": str(ROOT)}
    trainmon = [sys.executable, "-m", "monitor"]
    done = subprocess.run(
        [*trainmon, "run", "--no-tui", "--name", name, "--", *command],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    if done.returncode:
        print(done.stdout[-2000:], done.stderr[-2000:], file=sys.stderr)
    told = subprocess.run(
        [*trainmon, "report", name, "--json"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
    )
    report: dict[str, Any] = json.loads(told.stdout)
    return report, done.stdout, state / "runs" / report["run"]["id"]


def sft(report: dict[str, Any], printed: str) -> list[Row]:
    """The fine-tune: tokens a second against its own clock, and an MFU with its formula."""
    rows = common("sft", report, SFT_STEPS)
    found = re.search(r"tokens/s by its own clock: ([\d.]+)", printed)
    ours, theirs = report["throughput"]["tokens_per_second"], float(found.group(1)) if found else math.nan
    good = ours is not None and abs(ours - theirs) <= AGREE * theirs
    rows.append(judged("sft: tokens/s", "not told" if ours is None else f"{ours:,.0f}", f"{theirs:,.0f}", good))
    mfu, why = report["throughput"]["mfu"], report["throughput"]["mfu_unknown"]
    if mfu is None:
        return [*rows, Row("sft: MFU", "unknown", str(why)[:60], TOLD)]
    return [*rows, judged("sft: MFU", f"{100 * mfu:.1f}%", "more than 0, at most 100%", 0 < mfu <= 1)]


def rl(report: dict[str, Any]) -> list[Row]:
    """The RL demo, whose small models leave the GPU idle most of the time."""
    rows = common("rl", report, RL_STEPS)
    names = {row["name"] for row in report["phases"]}
    rows.append(judged("rl: phases", ", ".join(sorted(names))[:24], "generation among them", "generation" in names))
    mfu = report["throughput"]["mfu"]
    return [*rows, judged("rl: no MFU of steps that generate", str(mfu), "None", mfu is None)]


def common(name: str, report: dict[str, Any], steps: int) -> list[Row]:
    outcome, done = report["outcome"]["state"], report["progress"]["steps_done"]
    ours = [gpu for gpu in report["gpus"] if gpu["ours"]]
    shares, wall = sum(row["share"] for row in report["phases"]), report["wall"]
    parts = sum(wall[key] for key in ("startup", "steps", "between_steps", "teardown")) + sum(wall["spans"].values())
    return [
        judged(f"{name}: outcome", outcome, "finished", outcome == "finished"),
        judged(f"{name}: steps", str(done), str(steps), done == steps),
        judged(f"{name}: GPUs used, by UUID", str(len(ours)), "1", len(ours) == 1),
        judged(f"{name}: shares of the phases", f"{shares:.6f}", "1", abs(shares - 1) < 1e-6),
        judged(f"{name}: parts of the wall time", f"{parts:.3f} s", f"{wall['total']:.3f} s",
               abs(parts - wall["total"]) < 1e-3),
    ]  # fmt: skip


def record(run: Path, to: Path) -> Row:
    """The journals as a recording, without what names the machine."""
    lines = [json.dumps(event, separators=(",", ":")) for event in recorded(run)]
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    size = to.stat().st_size
    clean = os.uname().nodename not in to.read_text(encoding="utf-8")
    return judged(f"recorded: {to.name}", f"{size:,} bytes", f"at most {MOST:,}, no host name", size <= MOST and clean)

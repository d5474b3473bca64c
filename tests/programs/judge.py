"""Run one public program bare and under trainmon, and judge what the report says of it."""

from __future__ import annotations

import json
import math
import os
import re
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.programs.program import Own, Program, Source
from trainhooks.protocol import rundir

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
COMMAND = Path(sys.executable).with_name("trainmon")
LIMIT = 300.0  # seconds, against hanging; a crowded machine may take ten times as long as a free one
# What a cluster's or another test's environment must not lend to the programs.
FOREIGN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_LOCALID", "PYTHONPATH", rundir.RUN_VARIABLE)
# One thread each: two programs that fight over two cores measure the fight.
QUIET = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "MPLBACKEND": "agg"}
MODULES_CODE = "import importlib.util, sys; sys.exit(not all(map(importlib.util.find_spec, sys.argv[1:])))"


@dataclass
class Judged:
    """What became of one program."""

    program: Program
    skipped: str = ""  # why it was not run
    wrong: list[str] = field(default_factory=list)
    figures: list[str] = field(default_factory=list)  # own against reported, as text
    report: dict[str, Any] = field(default_factory=dict)

    @property
    def findings(self) -> list[tuple[str, str]]:
        """Code and severity, in the report's order."""
        return [(each["code"], each["severity"]) for each in self.report.get("findings", [])]


def judge(program: Program, place: Path, python: Path, sources: Path | None) -> Judged:
    """Run a program twice, each time in a fresh directory below `place`, which does not exist yet."""
    missing = _missing(program, python, sources)
    if missing:
        return Judged(program, skipped=missing)
    words = [str(HERE / word) if word.startswith("drivers/") else word for word in program.command.split()]
    command = words if words[0].startswith("./") else [str(python), *words]
    watching = [str(COMMAND), "run", "--no-tui", "--name", program.name, "--"]
    try:
        with ThreadPoolExecutor(1) as beside:
            alone = beside.submit(_run, program, command, place / "bare", python, sources)
            seen = _run(program, [*watching, *command], place / "watched", python, sources)
            bare = alone.result()
    except subprocess.TimeoutExpired:
        _stop(place / "watched")
        return Judged(program, wrong=[f"it took longer than {LIMIT:.0f} s"])
    found = Judged(program)
    if bare.returncode != program.code:
        return Judged(program, wrong=[f"bare exit code {bare.returncode}: {_end(bare)}"])
    if seen.returncode != bare.returncode:
        found.wrong.append(f"exit code {bare.returncode}, watched {seen.returncode}: {_end(seen)}")
    if program.loss and re.findall(program.loss, _text(bare)) != re.findall(program.loss, _text(seen)):
        found.wrong.append("prints other losses when watched")
    report = _report(place / "watched")
    if report is None:
        found.wrong.append("no report")
        return found
    found.report = report
    _counts(found)
    for own in program.own:
        _compare(found, own, _text(seen))
    return found


def _missing(program: Program, python: Path, sources: Path | None) -> str:
    """Why a program cannot be run here; empty if it can."""
    if program.source is not None and _repository(program.source, sources) is None:
        return f"no copy of {program.source.repository} at {program.source.commit[:10]}"
    if program.modules:
        found = subprocess.run([python, "-c", MODULES_CODE, *program.modules], capture_output=True)
        if found.returncode != 0:
            return "not installed: " + ", ".join(program.modules)
    return ""


def _repository(source: Source, sources: Path | None) -> Path | None:
    """The local git directory that holds a source's commit."""
    owner, name = source.repository.split("/")
    if sources is None:
        return None
    for stem in (sources / f"{owner}+{name}", sources / owner / name, sources / name):
        for path in (stem / "repo", stem / ".git", stem, stem.with_suffix(".git")):
            git = ["git", "--git-dir", str(path), "cat-file", "-e", source.commit]
            if path.is_dir() and subprocess.run(git, capture_output=True).returncode == 0:
                return path
    return None


def _run(
    program: Program, command: list[str], place: Path, python: Path, sources: Path | None
) -> subprocess.CompletedProcess[str]:
    work = place / "work"
    work.mkdir(parents=True)
    kept = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    environment = {**kept, **QUIET, "HOME": str(place), rundir.STATE_VARIABLE: str(place / "state")}
    environment.update(program.environment)
    if program.source is not None:
        git_dir = _repository(program.source, sources)
        archive = ["git", "--git-dir", str(git_dir), "archive", program.source.commit, *program.source.paths]
        packed = subprocess.run(archive, check=True, capture_output=True).stdout
        subprocess.run(["tar", "x"], cwd=work, input=packed, check=True)
    folder = work / program.folder
    if program.data:
        subprocess.run([python, HERE / "fake_data.py", program.data], cwd=folder, env=environment, check=True)
    ended = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=LIMIT,
    )
    (place / "output.txt").write_text(_text(ended))
    return ended


def _stop(place: Path) -> None:
    """End a training whose trainmon is gone: it goes on by design."""
    environment = {**os.environ, rundir.STATE_VARIABLE: str(place / "state")}
    subprocess.run([COMMAND, "stop", "last"], env=environment, capture_output=True, timeout=LIMIT)


def _report(place: Path) -> dict[str, Any] | None:
    environment = {**os.environ, rundir.STATE_VARIABLE: str(place / "state")}
    words = [sys.executable, "-m", "monitor", "report", "--json", "last"]
    done = subprocess.run(words, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT)
    if done.returncode != 0:
        return None
    (place / "report.json").write_text(done.stdout)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _counts(found: Judged) -> None:
    """Steps and total are exact, and nothing was dropped."""
    program, progress = found.program, found.report["progress"]
    done = progress["steps_done"]
    if program.steps is not None and done != program.steps:
        found.wrong.append(f"{done} steps, true {program.steps}")
    total = progress["steps_total"]
    if program.steps is not None and total not in (None, program.total or program.steps):
        found.wrong.append(f"total {total}, true {program.total or program.steps}")
    taken = reading(found.report, "env_steps")
    if program.env_steps is not None:
        found.figures.append(f"env steps {program.env_steps:,}, reported {taken or 0:,.0f}")
        if taken is None or round(taken) != program.env_steps:
            found.wrong.append(f"{taken} env steps, true {program.env_steps}")
    dropped = {**found.report["dropped"]}
    dropped["broken_off"] -= program.killed
    if any(dropped.values()):
        found.wrong.append(f"dropped {found.report['dropped']}")


def _compare(found: Judged, own: Own, output: str) -> None:
    """One figure of the program's own against the report's."""
    printed = re.findall(own.pattern, output)
    if not printed:
        found.wrong.append(f"{own.what}: the program printed none")
        return
    values = [float(each) for each in printed]
    picked = {"last": values[-1], "mean": statistics.fmean(values), "median": statistics.median(values)}
    mine = (math.fsum(values) if own.pick == "sum" else picked[own.pick]) * own.scale
    reported = reading(found.report, own.of)
    if reported is None:
        found.wrong.append(f"{own.what}: own {mine:.4g}, reported unknown")
        return
    rounding = 0.51 * own.scale * 10.0 ** -len(printed[-1].partition(".")[2].partition("e")[0])
    off = abs(reported - mine)
    found.figures.append(f"{own.what} {mine:.4g}, reported {reported:.4g}")
    if off > max(rounding, own.floor, own.within * abs(mine)):
        found.wrong.append(f"{own.what}: own {mine:.4g}, reported {reported:.4g}")


def reading(report: dict[str, Any], path: str) -> float | None:
    """One number of a report, or one derived from it; None: unknown."""
    steps = report["progress"]["steps_done"]
    if path == "steps_per_second":
        rate: float | None = report["throughput"]["steps_per_second"]
        return rate
    if path == "step_median":
        return report["ranks"][0]["step_seconds"] if report["ranks"] else None
    if path == "step_mean":
        return sum(row["mean"] * row["count"] for row in report["phases"]) / steps if steps else None
    if path == "data_seconds":
        found = [row["mean"] * row["count"] / steps for row in report["phases"] if row["name"] == "data"]
        return found[0] if found else None
    if path == "generation_seconds":
        spans = (report["wall"]["spans"] or {}).get("generation", 0.0)
        return spans + sum(row["mean"] * row["count"] for row in report["phases"] if row["name"] == "generation")
    if path in ("completions", "env_steps"):  # a sum
        row = report["metrics"].get(path)
        return row["mean"] * row["count"] if row else None
    value: Any = report
    for key in path.split("|"):
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, (int, float)) else None


def _text(ended: subprocess.CompletedProcess[str]) -> str:
    return ended.stdout + "\n" + ended.stderr.partition("trainmon: ")[0]


def _end(ended: subprocess.CompletedProcess[str]) -> str:
    return " / ".join(_text(ended).strip().splitlines()[-2:])[-200:]

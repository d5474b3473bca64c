"""Journals of every version of the protocol so far are read for ever; what is newer passes, and is said."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from monitor.reports import run_text
from monitor.runs.follow import load
from monitor.sources.decode import UNKNOWN_KIND, decode
from tests.launch.conftest import State
from tests.launch.conftest import state as state
from trainhooks.protocol.events import PROTOCOL, Event
from trainhooks.protocol.places import Place

FIXTURES = Path(__file__).with_name("fixtures")
FIRST = {"hello", "facts", "step", "span", "metrics", "pulse", "frames", "note", "bye", "gpu", "host", "exit"}
OF_VERSION = {1: FIRST, 2: {*FIRST, "steps", "gpu_time"}}
NOT_READ = {"looks"}  # of `gpu_time`: stack samples of the step
TOKENS = {1: 3034, 2: 9796}  # a second, in the run of each version


def copied(name: str, run: Path) -> Path:
    """A fixture where a reader may leave its caches."""
    return Path(shutil.copytree(FIXTURES / name, run))


def test_every_version_has_its_fixtures() -> None:
    assert set(OF_VERSION) == set(range(1, PROTOCOL + 1))
    for version in OF_VERSION:
        assert (FIXTURES / f"v{version}").is_dir() and (FIXTURES / f"v{version}-every-kind").is_dir()


@pytest.mark.parametrize("version", OF_VERSION)
def test_every_kind_of_a_version_is_read(version: int) -> None:
    lines = (FIXTURES / f"v{version}-every-kind" / "rank-0-p.jsonl").read_bytes().splitlines()
    events = [decode(line) for line in lines]
    assert all(isinstance(event, Event) for event in events)
    assert {event.kind for event in events if isinstance(event, Event)} == OF_VERSION[version]
    for line, event in zip(lines, events, strict=True):
        for name, value in json.loads(line).items():
            if name in NOT_READ:
                continue
            found = getattr(event, name)
            if name == "rows":  # of version 1: places are texts
                place: Callable[[Place], Any] = str if version == 1 else Place.written
                found = [[row[0], place(row[1]), *row[2:]] for row in found]
            assert name == "phases" or name == "background" or json.loads(json.dumps(found)) == value, name


@pytest.mark.parametrize("version", OF_VERSION)
def test_a_run_of_a_version_is_reported_as_it_was(version: int, tmp_path: Path) -> None:
    report = load(copied(f"v{version}", tmp_path / "run")).report
    assert (report.progress.steps_done, report.progress.steps_total, report.progress.skipped) == (
        12,
        12,
        {"nothing to do": 1},
    )
    assert (report.outcome.state, report.outcome.exit_code) == ("finished", 0)
    assert {row.name for row in report.phases} >= {"data", "forward", "backward"}
    assert report.metrics["loss"].last == pytest.approx(1 / 12) and report.metrics["reward"].nonfinite == 1
    assert report.wall.spans["checkpoint"] == pytest.approx(1.2, abs=0.1)
    assert report.run.facts.table["config"] == {"lr": 0.1, "batch": 4} and report.run.source == "hooks"
    assert report.throughput.tokens_per_second == pytest.approx(TOKENS[version], rel=0.01)
    assert report.dropped.lines == 0


def newer(run: Path, protocol: int) -> Path:
    """The same run, as a later version may write it."""
    journal = next(run.glob("rank-0-*.jsonl"))
    rows = [json.loads(line) for line in journal.read_text().splitlines()]
    rows[0]["protocol"] = protocol
    for row in rows:
        row["quantum"] = {"flux": [1, 2, 3]}
    rows.insert(3, {"kind": "novelty", "producer": rows[0]["producer"], "seq": 1000, "t": rows[3]["t"], "x": 1})
    journal.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return run


@pytest.mark.parametrize("version", OF_VERSION)
def test_unknown_kinds_and_fields_pass(version: int, tmp_path: Path) -> None:
    known = load(copied(f"v{version}", tmp_path / "known")).report
    found = load(newer(copied(f"v{version}", tmp_path / "newer"), PROTOCOL)).report
    assert found.progress == known.progress and found.phases == known.phases and found.dropped == known.dropped
    assert "newer" not in run_text.text(found)
    line = {"kind": "novelty", "producer": "p", "seq": 1, "t": 1.0}
    assert decode(json.dumps(line).encode()) is UNKNOWN_KIND


def test_a_newer_version_is_one_clear_line(state: State) -> None:
    runs = state.path / "runs"
    runs.mkdir(parents=True, mode=0o700)
    run = newer(copied("v1", runs / "kept"), PROTOCOL + 1)
    journal = next(run.glob("rank-0-*.jsonl"))
    for rank in (1, 2):  # every rank says so; a person reads it once
        other = journal.read_text().replace('"rank": 0', f'"rank": {rank}').replace("1feb5aac", f"other{rank}")
        (run / f"rank-{rank}-other{rank}.jsonl").write_text(other)
    for words in (("report", "kept"), ("report", "kept", "--markdown"), ("attach", "kept", "--once")):
        shown = state.call(*words).stdout.decode()
        said = [line for line in shown.splitlines() if "newer trainmon" in line]
        assert len(said) == 1 and f"protocol {PROTOCOL + 1}" in said[0] and "update" in said[0]
        assert "12 of 12 steps" in shown, "what can be read is still shown"

"""A run in other tools' formats: nothing lost, nothing that a spreadsheet would run."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from monitor.exporters import FORMATS
from tests.model.conftest import Story
from trainhooks.protocol.events import Metrics


@pytest.fixture
def run(tmp_path: Path) -> Path:
    told = Story().span("load", 2)
    told.step_with({"tokens": 100, "metrics": {"reward": 0.5, "loss": "nan"}}, generation=2.0, training=1.0)
    told.step_with({"status": "skipped", "reason": "=cmd|' /C calc'!A0", "role": "critic"}, generation=1.0)
    told.tell(Metrics, values={"lr": 0.1}, step=2)
    told.bye().write(tmp_path)
    Story("q", rank=1).step(generation=4.0).bye().write(tmp_path, rank=1)
    return tmp_path


def exported(run: Path, form: str) -> bytes:
    target = io.BytesIO()
    FORMATS[form](run, target)
    return target.getvalue()


def test_jsonl_is_the_journals(run: Path) -> None:
    whole = b"".join(path.read_bytes() for path in sorted(run.glob("*.jsonl")))
    assert exported(run, "jsonl") == whole


def test_csv_has_a_row_a_step(run: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(exported(run, "csv").decode())))
    assert [(row["rank"], row["step"], row["seconds"]) for row in rows] == [
        ("0", "1", "3.0"), ("0", "2", "1.0"), ("1", "1", "4.0"),
    ]  # fmt: skip
    assert (rows[0]["phase.generation"], rows[0]["phase.training"], rows[1]["phase.training"]) == ("2.0", "1.0", "")
    assert (rows[0]["metric.loss"], rows[0]["metric.reward"], rows[1]["metric.lr"]) == ("nan", "0.5", "0.1")
    assert rows[1]["reason"].startswith("'="), "a formula must not reach a spreadsheet"


@pytest.mark.parametrize("form", ["csv", "chrome"])
def test_a_journal_that_holds_its_lines_twice_gives_each_event_once(run: Path, form: str) -> None:
    once = exported(run, form)
    journal = run / "rank-0-p.jsonl"
    journal.write_bytes(2 * journal.read_bytes())
    (run / "rank-0-p-copy.jsonl").write_bytes(journal.read_bytes())
    assert exported(run, form) == once


def test_parquet_has_the_same_rows_with_types(run: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    rows: list[dict[str, Any]] = parquet.read_table(io.BytesIO(exported(run, "parquet"))).to_pylist()
    assert [row["step"] for row in rows] == [1, 2, 1]
    assert rows[0]["metric.loss"] != rows[0]["metric.loss"], "nan is a number again"
    assert rows[1]["tokens"] is None and rows[0]["tokens"] == 100


def test_a_chrome_trace_lays_phases_into_their_step(run: Path) -> None:
    told = json.loads(exported(run, "chrome"))["traceEvents"]
    slices = [row for row in told if row["ph"] == "X" and row["pid"] == 0]
    step = next(row for row in slices if row["name"] == "step 1")
    inside = [
        row for row in slices if row["name"] in ("generation", "training") and row["ts"] < step["ts"] + step["dur"]
    ]
    assert [row["dur"] for row in inside] == [2e6, 1e6]
    assert all(step["ts"] <= row["ts"] and row["ts"] + row["dur"] <= step["ts"] + step["dur"] for row in inside)


@pytest.mark.parametrize("form", sorted(FORMATS))
def test_an_empty_run_gives_an_empty_export(form: str, tmp_path: Path) -> None:
    if form == "parquet":
        pytest.importorskip("pyarrow")
    exported(tmp_path, form)

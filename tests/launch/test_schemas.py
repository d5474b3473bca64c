"""What commands print as JSON is what `trainmon schema` says of it: real output of real runs and recordings."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from monitor.commands.agents import OUTPUTS, schemas
from monitor.model.report import Alert, Report
from monitor.reports import report_json
from monitor.reports.machine_output import SCHEMA_VERSION
from monitor.runs.follow import load
from trainhooks.protocol import rundir

from .conftest import ROOT, State, python

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed: it comes with the extra `mcp`")

RECORDINGS = sorted((ROOT / "demo" / "recordings").glob("*.jsonl"))
TRAINING = """
import time
import trainhooks as th
th.init(config={"workers": 4, "nested": {"any": [1, "x"]}})
for index in th.steps(range(12)):
    with th.phase("forward"):
        time.sleep(0.01)
    if index == 5:
        th.skip("empty")
    th.log(loss=float("nan") if index > 9 else 1 / (index + 1))
    th.count(tokens=10)
if %s:
    raise ValueError("broken")
"""


def check(output: str, printed: str | bytes) -> Any:
    """Return what was printed, which is what the schema says, of this version and with no key that it lacks."""
    told, schema = json.loads(printed), schemas()[output]
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(_closed(schema)).validate(told)
    for each in told if isinstance(told, list) else [told]:
        assert each["schema_version"] == SCHEMA_VERSION
    return told


def _closed(part: Any) -> Any:
    """Return the schema with no room for other keys: in these tests each one has to be known."""
    if isinstance(part, list):
        return [_closed(each) for each in part]
    if not isinstance(part, dict):
        return part
    closed = {key: _closed(each) for key, each in part.items()}
    return {**closed, "additionalProperties": False} if "properties" in part and "required" in part else closed


@pytest.fixture
def two_runs(state: State) -> State:
    state.run(*python(TRAINING % "False"), options=("--name", "well", "--price", "2", "--tag", "group=a"))
    state.run(*python(TRAINING % "True"), options=("--name", "sick"))
    return state


@pytest.mark.long
def test_what_the_commands_print_is_what_the_schemas_say(two_runs: State) -> None:
    for name in ("well", "sick"):
        for words in (("report", name, "--json"), ("attach", name, "--once", "--json")):
            assert check("report", two_runs.call(*words).stdout)["run"]["name"] == name
    assert check("report", two_runs.call("report", "well", "--json", "--what-if", "forward=0.5").stdout)["what_if"]
    assert [entry["name"] for entry in check("ls", two_runs.call("ls", "--json").stdout)] == ["sick", "well"]
    assert check("compare", two_runs.call("compare", "well", "sick", "--json").stdout)["comparisons"]
    waited = two_runs.call("wait", "sick", "--until", "critical,end").stdout.decode().splitlines()[1]
    assert check("wait", waited)["met"][0]["finding"]["code"]


@pytest.mark.long
def test_what_producers_write_is_what_the_schema_of_a_journal_says(two_runs: State) -> None:
    schema = jsonschema.Draft202012Validator(_closed(schemas()["journal"]))
    kinds = set()
    for journal in two_runs.path.glob("runs/*/*.jsonl"):
        for line in journal.read_text(encoding="utf-8").splitlines():
            schema.validate(json.loads(line))
            kinds.add(json.loads(line)["kind"])
    assert kinds >= {"hello", "facts", "step", "steps", "bye", "host", "exit"}
    assert not schema.is_valid({"kind": "step", "producer": "p", "seq": 1})  # no time
    assert not schema.is_valid({"kind": "stop", "producer": "p", "seq": 1, "t": 1.0})


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: path.stem)
def test_recordings_with_gpus_and_roles_hold_to_them(state: State, recording: Path) -> None:
    check("report", state.call("report", str(recording), "--json").stdout)


@pytest.mark.long
def test_reports_of_traced_gpus_hold_to_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tarfile.open(ROOT / "tests" / "gpu_check" / "recorded" / "h100-traced.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    runs = sorted(tmp_path.glob("*/runs/*"))
    assert len(runs) > 10
    for run in runs[::3]:
        monkeypatch.setenv(rundir.STATE_VARIABLE, str(run.parents[1]))
        assert check("report", report_json.as_line(load(run).report))["device"]


def test_recordings_are_compared_as_the_schema_says(state: State) -> None:
    check("compare", state.call("compare", *map(str, RECORDINGS), "--json").stdout)


@pytest.mark.long
def test_a_schema_is_printed_alone_and_with_the_others(state: State) -> None:
    assert (
        json.loads(state.call("schema").stdout)
        == schemas()
        == {name: json.loads(state.call("schema", name).stdout) for name in OUTPUTS}
    )
    wrong = state.call("schema", "nothing")
    assert wrong.returncode == 2 and wrong.stderr.decode().count("\n") == 1


def test_every_field_of_a_type_is_in_its_schema_and_always_there() -> None:
    shown = schemas()["report"]["$defs"]
    assert shown["Report"]["required"] == ["schema_version", *Report.__dataclass_fields__]
    assert set(Alert.__dataclass_fields__) - set(shown["Alert"]["properties"]) == {"slow_step", "rank"}
    for name, definition in shown.items():
        assert definition["required"] == list(definition["properties"]), name

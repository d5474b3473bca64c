"""Facts have types: what the hooks send fits them, what does not fit is unknown and costs nothing else."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor import run_facts
from monitor.runs.state_cache import decoder_of, encoded
from tests.gpu_check.test_recorded import ARCHIVE
from trainhooks.protocol import facts
from trainhooks.protocol.facts import RunFacts
from trainhooks.protocol.limits import MAX_INTEGER

from .typed import untyped

ROOT = Path(__file__).resolve().parents[2]
JOURNALS = [*(ROOT / "demo" / "recordings").glob("*.jsonl"), *Path(__file__).parent.glob("fixtures/*/*.jsonl")]


def tables() -> Iterator[dict[str, Any]]:
    with tarfile.open(ARCHIVE) as archive:
        members = (archive.extractfile(member) for member in archive if member.name.endswith(".jsonl"))
        texts = [member.read() for member in members if member is not None]
    for text in (*texts, *(path.read_bytes() for path in JOURNALS)):
        yield from (json.loads(line)["facts"] for line in text.splitlines() if b'"facts":{' in line)


def test_every_recorded_fact_has_a_type() -> None:
    known = list(tables())
    assert len(known) > 400
    assert {name for table in known for name in untyped(table)} == {"a"}  # of a fixture, a name that nobody knows


def test_types_read_on_python_3_9() -> None:
    types = [str(known.type) for kind in KINDS for known in fields(kind)]
    assert len(types) > 150 and not any("|" in text or "list[" in text or "dict[" in text for text in types)


KINDS = [kind for kind in vars(facts).values() if is_dataclass(kind)]
WRONG: tuple[Any, ...] = (5, -1, 1.5, True, "x", "nan", float("nan"), [], ["x"], [5], {}, {"x": 5}, None)


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_what_does_not_fit_costs_nothing_else(wrong: Any) -> None:
    keys = [known.metadata.get("key", known.name) for known in fields(RunFacts) if known.name != "table"]
    for key in keys:
        run_facts.read({key: wrong})
        run_facts.read({key: {"x": wrong, "steps": wrong, "conv": wrong, "syncs": [wrong, {"count": wrong}]}})
    read = run_facts.read({**dict.fromkeys(keys, wrong), "cpus": 2, "torch": {"threads": wrong, "profiler": True}})
    assert read.cpus == 2 and read.torch.profiler is True and read.torch.threads in (None, 5)


KEYS = sorted({known.metadata.get("key", known.name) for kind in KINDS for known in fields(kind)} - {"table"})
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-MAX_INTEGER, MAX_INTEGER) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
)


@given(st.dictionaries(st.sampled_from(KEYS), JSON, max_size=4), st.dictionaries(st.sampled_from(KEYS), JSON))
def test_any_tables(one: dict[str, Any], other: dict[str, Any]) -> None:
    both = RunFacts()
    run_facts.complete(both, one)
    run_facts.update(both, other)
    assert both.table == {**one, **other} or any(isinstance(value, dict) for value in one.values())
    encoded(both)


def test_what_fits_is_kept_beside_what_does_not() -> None:
    rows = [{"place": "a.py:1", "count": 2}, 7, {"place": 3, "count": -1}]
    read = run_facts.read({"command": ["python", 3], "ops": {"syncs": rows, "flops_by_dtype": {"fp32": 3, "x": "y"}}})
    assert read.command == ["python"] and read.ops.flops_by_dtype == {"fp32": 3.0}
    assert read.ops.syncs == [facts.Sync("a.py:1", count=2), facts.Sync()]


def test_one_name_for_two_facts() -> None:
    read = run_facts.read({"python": "3.12.1", "environment": {"CUDA_VISIBLE_DEVICES": "0", "count": 4}})
    assert read.python_version == "3.12.1" and read.python == facts.PythonTools()
    assert read.environment == {"CUDA_VISIBLE_DEVICES": "0"} and read.environments.count == 4
    run_facts.update(read, {"python": {"trace": True}})
    assert read.python_version is None and read.python.trace is True


def test_null_is_not_left_out() -> None:
    read = run_facts.read({"torch": {"cuda": None}, "optimizer": {"fused": None}})
    assert read.torch.cuda == "" and run_facts.read({"torch": {}}).torch.cuda is None
    assert read.optimizer.fused == facts.TORCH_DECIDES and read.optimizer.foreach is None


def test_later_values_win_one_level_deep() -> None:
    known = run_facts.read({"a": 1, "torch": {"threads": 2, "profiler": True}, "device_clock": "on"})
    run_facts.update(known, {"torch": {"threads": 4}, "device_clock": None, "b": [1]})
    assert known.torch == facts.Torch(threads=4, profiler=True) and known.device_clock is None
    assert known == run_facts.read(known.table) and list(known.table) == ["a", "torch", "device_clock", "b"]
    run_facts.complete(known, {"b": [2], "cpus": 8, "torch": {"threads": 9, "deterministic": True}})
    assert known.table["b"] == [1] and known.cpus == 8 and next(iter(known.table)) == "b"
    assert known.torch == facts.Torch(threads=4, profiler=True, deterministic=True)
    assert known == run_facts.read(known.table)


def test_a_cache_keeps_them() -> None:
    for table in tables():
        known = run_facts.read(table)
        assert decoder_of(RunFacts).decode(encoded(known)) == known

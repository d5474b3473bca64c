"""A job on two hosts, watched from a third by ssh, while the line to one of them is cut. Each host is namespaces."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from monitor.sources.run_directory import RunDirectory
from tests.launch.conftest import TRAINMON, wait_for
from tests.remote.spaces import Host, connected, missing, torchrun
from tests.remote.test_many_hosts import TRAINING
from trainhooks.protocol.events import Step

pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.long,
    pytest.mark.skipif(bool(missing()), reason=missing()),
]

STEPS = 1000
CUT_SECONDS = 20.0  # longer than a line may be silent


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[list[Host]]:
    made = connected(tmp_path, {"desk": 0.0, "box-a": 300.0, "box-b": 5000.0})
    yield made
    for host in made:
        host.end()


def _rate(host: Host, begin: float, end: float) -> float:
    """Return the steps a second that a host's rank made between two moments of this test's clock."""
    source = RunDirectory(host.state.only)
    try:
        events = [event for batch in iter(source.poll, []) for event in batch]
    finally:
        source.close()
    starts = [event.start - host.ahead for event in events if isinstance(event, Step) and event.start is not None]
    return sum(begin <= start < end for start in starts) / (end - begin)


def test_a_line_is_cut_and_comes_back(hosts: list[Host], tmp_path: Path) -> None:
    desk, *boxes = hosts
    program = tmp_path / "train.py"
    program.write_text(TRAINING)
    fronts = [torchrun(box, boxes[0], program, str(STEPS), "0.05") for box in boxes]
    for box in boxes:
        wait_for(lambda box=box: any(box.state.path.glob("runs/*/rank-*.jsonl")))  # type: ignore[misc]
    viewer = desk.start(*TRAINMON, "attach", "--job", "finetune-7", "--host", "box-a,box-b", "--json")
    assert viewer.stdout is not None
    reports: list[dict[str, Any]] = []

    def first(wanted: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        for line in viewer.stdout or ():
            reports.append(json.loads(line))
            if wanted(reports[-1]):
                return reports[-1]
        raise AssertionError("it did not come to pass")

    try:
        begun = time.monotonic()
        first(lambda report: report["progress"]["steps_done"] >= 150)
        cut = time.monotonic()
        boxes[1].cut_off(desk, True)
        stale = first(lambda report: report["run"]["hosts"][1]["silent_seconds"])
        (joined,) = desk.state.path.glob("copies/joined/*")
        screen = desk.trainmon("attach", str(joined), "--once").stdout
        time.sleep(max(0.0, cut + CUT_SECONDS - time.monotonic()))
        mended = time.monotonic()
        boxes[1].cut_off(desk, False)
        first(lambda report: report["run"]["hosts"][1]["silent_seconds"] is None and time.monotonic() > mended)
        reports += map(json.loads, viewer.stdout)
    finally:
        viewer.kill()
        viewer.wait()
        viewer.stdout.close()

    assert [front.wait(60) for front in fronts] == [0, 0]  # the training did not notice
    for box in boxes:
        assert _rate(box, cut, mended) > 0.6 * _rate(box, begun, cut)

    assert screen.startswith(b"[box-b silent for ")
    assert stale["run"]["hosts"][0]["silent_seconds"] is None
    assert {report["outcome"]["state"] for report in reports[:-1]} == {"running"}
    codes = {finding["code"] for report in reports for finding in report["findings"]}
    assert "stalled" not in codes

    last = reports[-1]
    assert last["outcome"]["state"] == "finished" and last["progress"]["steps_done"] == STEPS
    assert [(row["rank"], row["host"], row["steps"]) for row in last["ranks"]] == [
        (0, "box-a", STEPS),
        (1, "box-b", STEPS),
    ]
    assert not any(last["dropped"].values())
    other = last["run"]["hosts"][1]
    ahead = boxes[1].ahead - boxes[0].ahead
    assert other["silent_seconds"] is None and abs(other["clock"] - ahead) <= other["uncertainty"] + 0.001
    for box in boxes:
        run = box.state.only
        for file in [*run.glob("*.jsonl"), run / "console.log"]:
            copy = desk.state.path / "copies" / box.name / run.name / file.name
            assert copy.read_bytes() == file.read_bytes(), file

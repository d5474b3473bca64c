"""docs/protocol.md, by which a stranger writes a producer: its lines are read, and add up to a run."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from monitor.runs.follow import load
from monitor.sources.decode import decode
from trainhooks.protocol import control
from trainhooks.protocol.events import KINDS, PROTOCOL, Event
from trainhooks.protocol.memory import ProcessMemory

PAGE = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text(encoding="utf-8")
LINES = re.findall(r"```json\n(.*?)\n```", PAGE, re.DOTALL)


def test_the_lines_of_the_page_are_a_run(tmp_path: Path) -> None:
    events = [decode(line.encode()) for line in LINES]
    assert [event.kind for event in events if isinstance(event, Event)] == ["hello", "step", "steps"]
    (tmp_path / "rank-0-a1b2c3d4.jsonl").write_text("".join(line + "\n" for line in LINES))
    report = load(tmp_path).report
    assert (report.progress.steps_done, report.dropped.lines) == (4, 0)
    assert report.metrics["loss"].count == 3 and report.metrics["loss"].last == 2.3
    assert report.phases[0].mean == pytest.approx(0.02)
    assert report.run.name == "my training"


def test_the_page_names_the_version_and_every_kind() -> None:
    assert f"protocol **{PROTOCOL}**" in PAGE
    assert all(f"`{kind}`" in PAGE or f"`{kind}`," in PAGE for kind in KINDS)


def test_the_messages_of_the_page_are_understood() -> None:
    request, stack, memory, accepted, refused, stacks, told = re.findall(r"^    (\{.*\})$", PAGE, re.MULTILINE)
    assert control.read_request(request.encode()) == control.TraceRequest(3, False, False)
    assert control.read_request(stack.encode()) == control.StackRequest()
    assert control.read_request(memory.encode()) == control.MemoryRequest()
    (device,) = msgspec.json.decode(told, type=ProcessMemory).devices
    assert device.lines == [("train.py:88", 1024, 2)]
    (thread,), left_out = control.read_stacks(stacks.encode()) or ((), -1)
    assert left_out == 0 and thread.is_main and str(thread.users_line) == "train.py:88 in loss"
    assert control.read_answer(accepted.encode()) == control.Answer("accepted", [], 1, 3)
    assert control.read_answer(refused.encode()) == control.Answer("refused", ["the program uses a profiler"])

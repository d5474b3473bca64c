"""The node's journal: whole lines, in sequence, whatever happens to the disk or to an earlier recorder."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from monitor.running.exit_record import write_exit
from monitor.running.journal_writer import Writer
from monitor.sources.decode import decode
from trainhooks.protocol import journal, rundir
from trainhooks.protocol.events import Event, Note


def note(text: str) -> Note:
    return Note("", 0, 1.0, text=text)


def lines(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in rundir.node_journal(run).read_bytes().splitlines()]


def test_a_producer_begins_with_hello(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.write(note("a"), note("b"))
    write_exit(tmp_path, writer, -9)
    found = lines(tmp_path)
    assert [line["kind"] for line in found] == ["hello", "note", "note", "exit"]
    assert [line["seq"] for line in found] == [1, 2, 3, 4]
    assert {line["producer"] for line in found} == {writer.producer}
    assert found[0]["source"] == "recorder"
    assert found[-1]["signal"] == 9
    for line in rundir.node_journal(tmp_path).read_bytes().splitlines():
        assert isinstance(decode(line), Event)


def test_half_a_line_of_an_earlier_recorder_spoils_no_other(tmp_path: Path) -> None:
    rundir.node_journal(tmp_path).write_bytes(b'{"kind":"no')
    Writer(tmp_path)
    assert rundir.node_journal(tmp_path).read_bytes().splitlines()[1].startswith(b'{"kind":"hello"')


def test_a_full_disk_delays_readings_and_costs_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Writer(tmp_path)
    real = os.write

    room = [10]  # bytes, which go before the error comes

    def full(handle: int, data: bytes) -> int:
        if not room:
            raise OSError(errno.ENOSPC, "full")
        return real(handle, data[: room.pop()])

    monkeypatch.setattr(journal, "write", full)
    writer.write(note("first"), note("second"))
    writer.write(note("third"))
    assert [line["kind"] for line in lines(tmp_path)] == ["hello"]
    monkeypatch.setattr(journal, "write", real)
    writer.write(note("fourth"))
    found = lines(tmp_path)
    assert [line["seq"] for line in found] == [1, 2, 3, 4, 5]
    assert [line["text"] for line in found[1:]] == ["first", "second", "third", "fourth"]


def test_what_a_full_disk_refuses_for_too_long_is_counted_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Writer(tmp_path)
    real = os.write

    def full(handle: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(journal, "write", full)
    monkeypatch.setattr(journal, "MAX_UNWRITTEN", 10)
    writer.write(note("lost"), note("lost, too"))
    monkeypatch.setattr(journal, "write", real)
    assert writer.dropped == 2
    writer.write(note("kept"))
    found = lines(tmp_path)
    assert found[1]["text"] == "2 GPU and host readings were lost: the disk is full"
    assert [line["seq"] for line in found] == [1, 4, 5]

"""Room kept ahead of a file's end: it is there, the file is no longer for it, and it is given back."""

from __future__ import annotations

from pathlib import Path

import pytest

from monitor.running import disk_space, exit_record
from trainhooks.protocol import rundir


def kept(path: Path) -> int:
    """Bytes on the disk past the file's end."""
    found = path.stat()
    return found.st_blocks * 512 - found.st_size


def test_room_is_kept_ahead_and_given_back(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"x" * 10_000)
    room = disk_space.Preallocation([path, tmp_path / "missing"])
    room.step()
    if kept(path) < disk_space.PREALLOCATED_BYTES // 2:
        pytest.skip("LOUD: this file system sets nothing aside")
    assert path.read_bytes() == b"x" * 10_000
    with path.open("ab") as out:
        out.write(b"y" * (disk_space.PREALLOCATED_BYTES - 20_000))
    room.step()
    assert kept(path) > disk_space.PREALLOCATED_BYTES // 2
    room.close()
    disk_space.release_preallocated([path, tmp_path / "missing"])
    assert kept(path) <= 4096
    assert path.stat().st_size == 10_000 + disk_space.PREALLOCATED_BYTES - 20_000


def test_room_is_kept_anew_for_a_file_that_was_emptied(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"x" * 100_000)
    room = disk_space.Preallocation([path])
    room.step()
    if kept(path) < disk_space.PREALLOCATED_BYTES // 2:
        pytest.skip("LOUD: this file system sets nothing aside")
    path.write_bytes(b"anew\n")
    assert kept(path) <= 4096
    room.step()
    assert kept(path) > disk_space.PREALLOCATED_BYTES // 2
    room.close()


def test_the_exit_needs_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exit_record.reserve_exit_file(tmp_path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(rundir, "write_json", full)
    exit_record.write_exit(tmp_path, None, -9)
    ended = rundir.read_json(tmp_path / rundir.EXIT)
    assert ended is not None and (ended["exit_code"], ended["signal"]) == (None, 9)
    assert [path.name for path in tmp_path.iterdir()] == [rundir.EXIT]


def test_the_spare_room_goes_once_the_exit_is_written(tmp_path: Path) -> None:
    exit_record.reserve_exit_file(tmp_path)
    exit_record.write_exit(tmp_path, None, 3)
    assert [path.name for path in tmp_path.iterdir()] == [rundir.EXIT]

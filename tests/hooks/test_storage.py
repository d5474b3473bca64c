"""Missing libraries, read-only places and full disks: the training goes on, and what is lost is counted."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import LIMIT, Told, Trainings, lines_of, wait_for

WITHOUT = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] in {names!r}: raise ImportError(name)
sys.meta_path.insert(0, Block())
import trainhooks as th, time
"""

SAYS = """
th.init(name='same', total_steps=3, config={'lr': 1e-3, 'nested': {'a': [1, None, True, 'x']}})
th.note('töst ✓ \\x1b[31m\\u202e')
with th.span('load'): pass
for i in th.steps(range(3), role='r', stage='s', epoch=0.5):
    with th.phase('forward'): pass
    th.log(loss=float('nan'), big=10**30, small=-1.5e-9, top=float('inf'), i=i)
    th.count(tokens=3)
    if i == 1: th.skip('why')
th.log(after=2)
"""


def normalized(told: Told) -> list[dict[str, Any]]:
    """The events without what differs from process to process."""
    out = []
    for event in told.events:
        for name in ("t", "producer", "start", "duration", "own", "process_started", "pid", "wall", "spans"):
            event.pop(name, None)
        event["phases"] = [(name, times) for name, _, _, times in event.get("phases", [])]
        if event["kind"] not in ("pulse", "hello"):
            out.append(event)
    return sorted(out, key=lambda event: event.pop("seq"))


@pytest.mark.parametrize("names", [["msgspec"], ["zmq", "msgspec"]], ids=" and ".join)
def test_without_libraries_the_same_is_told(train: Trainings, tmp_path: Path, names: list[str]) -> None:
    usual = train(SAYS)
    bare = Trainings(tmp_path / "bare", tmp_path)(WITHOUT.format(names=names) + SAYS, plain=True)
    assert normalized(bare) == normalized(usual)


GOES_ON = """
for i in th.steps(range(20)):
    th.log(i=i)
    sleep(0.01)
sleep(0.2)
print('went on')
"""


def test_a_state_directory_that_is_a_file(train: Trainings) -> None:
    train.state.write_text("mine")
    assert train(GOES_ON).out == "went on\n"
    assert train.state.read_text() == "mine"


def test_a_read_only_state_directory(train: Trainings) -> None:
    """Root writes into every directory, but for a disk that is mounted read-only."""
    train.state.mkdir(mode=0o500)
    mounting = ["mount", "-t", "tmpfs", "-o", "ro", "none", str(train.state)]
    mounted = os.getuid() == 0 and subprocess.run(mounting, capture_output=True).returncode == 0
    if os.getuid() == 0 and not mounted:
        pytest.skip("LOUD: nothing can be mounted here, and root writes everywhere")
    try:
        assert train(GOES_ON).out == "went on\n"
        assert list(train.state.iterdir()) == []
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(train.state)], check=True)


def test_a_state_directory_that_nobody_can_write(train: Trainings) -> None:
    """/proc refuses even root."""
    assert train(GOES_ON, TRAINMON_DIR="/proc/trainmon").out == "went on\n"


def test_a_run_directory_that_vanishes(train: Trainings) -> None:
    told = train("import shutil\nwritten()\nshutil.rmtree(os.environ['TRAINMON_DIR'])" + GOES_ON)
    assert told.out == "went on\n"
    assert not told.state.exists()


def test_a_journal_at_its_size_limit_holds_whole_lines(train: Trainings) -> None:
    """As on a full disk: a write takes a part, and the rest is refused."""
    told = train(
        """
        import resource
        th.note('before'); written()
        resource.setrlimit(resource.RLIMIT_FSIZE, (8000, resource.RLIM_INFINITY))
        for i in th.steps(range(300)): th.log(i=i); sleep(0.001)
        sleep(0.3)
        print('went on')
        """
    )
    assert told.out == "went on\n"
    events = told.events
    assert events[1]["text"] == "before"
    assert told.journals[0].stat().st_size <= 8000


def test_what_a_full_disk_refused_is_written_once_there_is_room(train: Trainings) -> None:
    told = train(
        """
        import resource
        th.note('before'); written()
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, resource.RLIM_INFINITY))
        for i in th.steps(range(300)): th.log(i=i); sleep(0.001)
        sleep(0.3)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        th.note('after')
        """
    )
    assert told.indices == list(range(1, 301))
    assert told.kind("bye")[0].get("dropped", 0) == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(place)], capture_output=True)
    if mounted.returncode:
        pytest.skip("LOUD: no tmpfs can be mounted here (not root?); the tests with size limits stand in")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_disk_that_is_full_for_good(small_disk: Path, tmp_path: Path) -> None:
    """Five megabytes for 64 KiB: most is dropped and counted, and all of it is still sent."""
    train = Trainings(small_disk, tmp_path)
    process = train.start(
        """
        from trainhooks.protocol import journal
        sent = open('sent', 'wb')
        send = journal.Notifier.send
        def both(self, batch): sent.write(batch); sent.flush(); send(self, batch)
        journal.Notifier.send = both
        for i in th.steps(range(2000)): th.note('x' * 3000)
        while not os.path.exists('enough'): sleep(0.01)
        print('went on')
        """
    )
    wait_for(lambda: (tmp_path / "sent").exists() and b'"dropped":' in (tmp_path / "sent").read_bytes())
    (tmp_path / "enough").touch()
    out, err = process.communicate(timeout=LIMIT)
    assert (process.returncode, out, err) == (0, "went on\n", "")
    published = lines_of(tmp_path / "sent")
    assert [event["seq"] for event in published] == list(range(len(published)))
    assert sum(event["kind"] == "step" for event in published) == 2000
    kept = lines_of(Told(small_disk).journals[0])
    assert published[: len(kept)] == kept
    # All the lines were refused but those that were kept; the last pulse or bye knows of nearly as many.
    assert published[-1]["kind"] == "bye"
    assert published[-1]["dropped"] == len(published) - len(kept) - 1


def test_a_socket_directory_that_is_not_ours(train: Trainings) -> None:
    """No socket then, and not a word about it; the journal holds it all."""
    told = train(
        """
        import pathlib
        from trainhooks.protocol import rundir
        rundir.socket_dir = lambda: rundir.private_directory(pathlib.Path('open'))
        os.mkdir('open'); os.chmod('open', 0o777)
        for i in th.steps(range(5)): th.log(i=i)
        """
    )
    assert told.indices == [1, 2, 3, 4, 5]
    assert list((train.work / "open").iterdir()) == []

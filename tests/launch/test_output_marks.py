"""When each line of the output was written, and by which stream: of real programs, whose output stays as it is."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from monitor.running.output_marks import OutputMarks
from monitor.sources import console_marks
from monitor.sources.console_marks import EITHER, MARK, STDERR, STDOUT, ConsoleMarks

from .conftest import State, python

APART = """
import os, sys, time
for n in range(3):
    os.write(1, b"out %d\\n" % n); time.sleep(0.5)
    os.write(2, b"err %d\\n" % n); time.sleep(0.5)
raise SystemExit("the end")
"""


def lines_of(run: Path) -> list[tuple[str, bool]]:
    """Each line of the console, and whether it is known to come from stderr."""
    marks, at, out = ConsoleMarks(run / "console.log"), 0, []
    marks.refresh()
    for line in (run / "console.log").read_bytes().splitlines(keepends=True):
        out.append((line.decode().strip(), marks.is_error(at)))
        at += len(line)
    return out


@pytest.mark.parametrize("streams", [subprocess.PIPE, subprocess.STDOUT], ids=["two files", "one file"])
def test_lines_of_stderr_are_told_apart_in_their_order(state: State, streams: int) -> None:
    ended = state.run(*python(APART), capture_output=False, stdout=subprocess.PIPE, stderr=streams)
    told = [("out 0", False), ("err 0", True), ("out 1", False), ("err 1", True), ("out 2", False), ("err 2", True)]
    assert lines_of(state.only) == [*told, ("the end", True)]
    written = b"".join(f"{line}\n".encode() for line, is_error in told if streams == subprocess.STDOUT or not is_error)
    assert ended.stdout.startswith(written), "byte for byte"


def test_the_order_of_two_streams_in_one_file_is_the_programs(state: State) -> None:
    """Written at once, by both, thousands of times: no line of stdout is ever taken for one of stderr."""
    script = "import os\nfor n in range(4000): os.write(1 + n % 2, b'%s %d\\n' % ((b'out', b'err')[n % 2], n))"
    state.run(*python(script), capture_output=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    lines = lines_of(state.only)
    assert [int(line.split()[1]) for line, _ in lines] == list(range(4000))
    assert not [line for line, is_error in lines if is_error and line.startswith("out")]


def test_a_line_has_the_time_at_which_it_was_written(state: State) -> None:
    script = "import time\nfor n in range(4): print(n, time.monotonic()); time.sleep(0.4)"
    state.run(*python(script))
    marks, at = ConsoleMarks(state.only / "console.log"), 0
    marks.refresh()
    for line in (state.only / "console.log").read_bytes().splitlines(keepends=True):
        times = marks.times_of(at)
        assert times is not None and times[0] <= times[1]
        place = marks.place_of(float(line.split()[1]))
        assert place is not None and place <= at, "what was printed from then on has the line"
        at += len(line)
    assert marks.times_of(at) is None, "nothing is known of what comes"


def test_marks_are_few_and_survive_what_happens_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console_marks, "MARKS_UNTIL_COARSER", 50)
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    marks, console = OutputMarks(tmp_path), tmp_path / "console.log"
    reader = ConsoleMarks(console)
    for n in range(20_000):
        now[0] += 0.1
        marks.add(10 * (n + 1), STDOUT)
        if n % 997 == 0:
            reader.refresh()
    file = tmp_path / console_marks.NAME
    assert file.stat().st_size < 500 * MARK.size, "of 2,000 seconds"
    reader.refresh()
    fresh = ConsoleMarks(console)
    fresh.refresh()
    for byte in (0, 555, 10_000, 199_999):
        times = reader.times_of(byte)
        assert times == fresh.times_of(byte) and times is not None
        assert times[0] <= 0.1 * (byte // 10 + 1) <= times[1] + 1e-6
    OutputMarks(tmp_path).add(200_010, STDERR)  # by another process that goes on
    reader.refresh()
    assert reader.is_error(200_005) and not reader.is_error(199_000)
    OutputMarks(tmp_path).add(5, EITHER)  # the program has emptied its output
    reader.refresh()
    assert reader.times_of(4) is not None and reader.times_of(199_000) is None
    file.write_bytes(b"torn" * 7)
    reader.refresh()

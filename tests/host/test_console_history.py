"""The whole output of a training: windows of it, and text found in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from monitor.sources.console_history import BLOCK, ConsoleHistory
from monitor.sources.console_lines import MAX_LINES


@pytest.fixture
def history(tmp_path: Path) -> ConsoleHistory:
    path = tmp_path / "console.log"
    path.write_bytes(b"".join(b"step %d \x1b[1mloss\x1b[0m 0.5 %s\n" % (n, b"x" * 60) for n in range(40_000)))
    return ConsoleHistory(path)


def test_windows_join_without_a_gap_from_the_end_to_the_start(history: ConsoleHistory) -> None:
    end, seen = history.size(), []
    while end > 0:
        window = history.before(end)
        assert window.lines and window.starts[-1] == end and len(window.starts) == len(window.lines) + 1
        again = history.after(window.starts[0])
        assert again.lines == window.lines and again.starts == window.starts
        seen[:0] = window.lines
        end = window.starts[0]
    assert [line.split()[1] for line in seen] == [str(n) for n in range(40_000)]
    assert seen[0].startswith("step 0 loss 0.5 xxx"), "without escape sequences"


def test_text_is_found_in_both_directions_across_blocks(history: ConsoleHistory) -> None:
    assert history.size() > 3 * BLOCK
    at = history.find("STEP 17 ", history.size(), forward=False)
    assert at is not None and history.after(at).lines[0].startswith("step 17 ")
    assert history.find("step 17 ", at, forward=False) is None
    assert history.find("step 17 ", at, forward=True) == at
    last = history.find("step 39999 loss 0.5", 0, forward=True)
    assert last is not None and history.after(last).lines[0].startswith("step 39999 ")
    one = history.find("loss", history.size(), forward=False)
    for number in range(39_999, 39_990, -1):
        assert one is not None and history.after(one).lines[0].startswith(f"step {number} ")
        one = history.find("loss", one, forward=False)
    assert history.find("\x1b", 0, forward=True) is None, "what is not displayed is not found"


def test_odd_files_have_windows(tmp_path: Path) -> None:
    path = tmp_path / "console.log"
    missing = ConsoleHistory(path)
    assert missing.size() == 0 and not missing.before(100).lines and missing.find("a", 100, forward=False) is None
    path.write_bytes(b"one\n" + b"y" * 9 * BLOCK + b"\nlast\nunfinished")
    odd = ConsoleHistory(path)
    window = odd.before(odd.size())
    assert window.lines[-1] == "last" and window.starts[-1] == odd.size() - len("unfinished")
    assert odd.after(0).lines == ("one",)
    path.write_bytes(b"\n" * 3 * MAX_LINES)
    assert odd.before(odd.size()).lines == ("",) * MAX_LINES

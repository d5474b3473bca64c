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


def test_all_lines_with_a_text_are_found_in_parts_that_join(history: ConsoleHistory) -> None:
    """Over the whole file, in both directions, each once."""
    wanted = [n for n in range(40_000) if "77" in str(n)]
    begin, end, back = 0, history.size(), []
    while end > 0:
        window = history.matching_before("P 77", end) if not back else history.matching_before("77", end)
        if not back:  # the first search is of another text, which few lines have
            assert all(line.startswith("step 77") for line in window.lines) and window.starts[-1] == history.size()
            window = history.matching_before("77", end)
        assert len(window.starts) == len(window.lines) + 1 and list(window.starts) == sorted(window.starts)
        back[:0] = window.lines
        end = window.begin
    assert [int(line.split()[1]) for line in back] == wanted
    ahead: list[str] = []
    while begin < history.size():
        window = history.matching_after("77", begin)
        ahead += window.lines
        assert window.starts[-1] > begin
        begin = window.starts[-1]
    assert ahead == back

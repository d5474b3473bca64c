"""Bytes decoded into lines, as a person would have read them."""

from __future__ import annotations

import pytest

from monitor.console.lines import MAX_LINE, Line, Terminal


def lines(data: bytes) -> list[str]:
    terminal = Terminal()
    return [line.text for line in terminal.feed(data) + terminal.finish()]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"a\nb\n", ["a", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"\ra\rb\rc\n", ["a", "b", "c"]),
        (b"10%\b\b\b20%\n", ["20%"]),
        (
            b"1/4 [======>.....]\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\b\r2/4 [======>.....]\n",
            ["1/4 [======>.....]", "2/4 [======>.....]"],
        ),
        (b"\x1b[31mred\x1b[0m\n", ["red"]),
        (b"\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b\n", ["ab"]),
        (b"old\x1b[2Knew\n", ["old", "new"]),
        (b"old\x1b[1Gnew\n", ["old", "new"]),
        (b"name\x1b[20Gvalue\n", ["name value"]),
        (b"\xe2\x96\x88 50%\n", ["█ 50%"]),
        (b"\xff\xfe 5\n", ["�� 5"]),
        (b"a\x00b\x07c\n", ["abc"]),
        (b"same\rsame\rsame\n", ["same", "same"]),  # the last is a line of its own
    ],
)
def test_bytes_decode_to_lines_and_frames(data: bytes, expected: list[str]) -> None:
    assert [text for text in lines(data) if text] == expected


def test_nested_bars_keep_their_rows() -> None:
    terminal = Terminal()
    found = terminal.feed(b"\router 1\n\rinner 1\x1b[A\n\rinner 2\x1b[A\router 2\n")
    rows = {line.text: line.row for line in found if line.text}
    assert rows == {"outer 1": 0, "inner 1": 1, "inner 2": 1, "outer 2": 0}


def test_lines_have_their_number_in_the_file() -> None:
    terminal = Terminal()
    assert [line.number for line in terminal.feed(b"one\n\rtwo\rtwo!\nthree\n") if line.text] == [1, 2, 2, 3]


def test_whole_frame_is_seen_before_it_ends() -> None:
    terminal = Terminal()
    terminal.feed(b"step 12")
    assert terminal.frame() is None  # it may become step 120
    terminal.feed(b"\n\r 50%|##  | 5/10 [00:05<00:05]")
    assert terminal.frame() == Line(" 50%|##  | 5/10 [00:05<00:05]", 2, 1, True)


def test_endless_line_is_cut() -> None:
    assert [len(text) for text in lines(b"x" * (3 * MAX_LINE) + b"\nshort\n")] == [MAX_LINE, 5]

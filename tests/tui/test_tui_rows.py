"""Text fits into cells, whatever it consists of."""

import pytest
from rich.cells import cell_len
from sample_views import HOSTILE_NAMES

from monitor.tui.drawing import rows

TEXTS = [*HOSTILE_NAMES, "", "plain", "a" * 40]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("width", [0, 1, 2, 7, 30])
def test_fit_and_column_keep_to_their_width(text: str, width: int) -> None:
    assert cell_len(rows.fit(text, width)) <= width
    assert cell_len(rows.column(text, width)) == width
    assert rows.fit(text, width).isprintable()


def test_what_is_cut_ends_in_an_ellipsis() -> None:
    assert rows.fit("generation", 5) == "gene…"
    assert rows.fit("four    ", 6) == "four  " and rows.fit("four      five", 8) == "four…"


@pytest.mark.parametrize("width", [1, 4, 9, 80])
def test_cut_keeps_to_the_width(width: int) -> None:
    row = [("漢字かな", "text"), (" plain ", "muted"), ("x" * 10_000, "bad")]
    assert rows.row_width(rows.cut(row, width)) <= width


def test_spread_fills_the_width_and_the_left_side_gives_way() -> None:
    assert rows.spread([("left", "a")], [("right", "b")], 12) == [("left", "a"), ("   ", "text"), ("right", "b")]
    assert rows.row_width(rows.spread([("left side", "a")], [("right", "b")], 8)) == 8


def test_separated_keeps_whole_parts_in_order_of_importance() -> None:
    parts = [[("first", "a")], [("something long", "b")], [("third", "c")]]
    assert rows.separated(parts, 14, (" ", "faint")) == [("first", "a"), (" ", "faint"), ("third", "c")]


def test_wrap_breaks_at_spaces_and_keeps_a_unit_with_its_number() -> None:
    for unit in ("ms,", "MHz,", "GiB;"):
        shown = [
            "".join(text for text, _ in each) for each in rows.wrap([(f"forward 1318 {unit} training", "text")], 14)
        ]
        assert shown == ["forward", f"  1318 {unit}", "  training"]
    lines = rows.wrap([("generation 45.2 s, training 2.5 s", "text")], 16)
    assert ["".join(text for text, _ in line) for line in lines] == ["generation", "  45.2 s,", "  training 2.5 s"]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("width", [1, 3, 20])
def test_wrap_keeps_to_the_width_and_the_limit(text: str, width: int) -> None:
    lines = rows.wrap([(rows.printable(text), "text")], width, limit=4)
    assert len(lines) <= 4
    assert all(rows.row_width(line) <= width for line in lines)


def test_what_is_left_out_is_always_seen_to_be() -> None:
    words = 'Check what the loop does there. Wrap a part in `with th.phase("name"):` to time it separately.'
    for width in range(12, 60):
        shown = ["".join(text for text, _ in line) for line in rows.wrap([(words, "text")], width, 0, limit=2)]
        assert shown[-1].endswith("…") or " ".join(shown) == words, (width, shown)


def test_unknown_readings_are_dots() -> None:
    assert rows.sparkline([0.0, float("nan"), 100.0], 4, 100.0) == " ▁·█"
    assert rows.meter(None, 3) == [("···", "faint")]


def test_a_word_that_ends_at_the_edge_is_whole() -> None:
    words = "one two three four five six seven"
    for width in range(8, 30):
        lines = rows.wrap([(words, "text")], width)
        assert " ".join("".join(text for text, _ in line).strip() for line in lines) == words


def test_what_closes_a_part_stays_with_it() -> None:
    row: rows.Row = [("training 1.3 s", "muted"), ("; ", "muted"), ("typical 18.0 s", "text")]
    for width, shown in (
        (14, ["training", "  1.3 s;", "  typical", "  18.0 s"]),
        (15, ["training 1.3 s;", "  typical", "  18.0 s"]),
        (16, ["training 1.3 s;", "  typical 18.0 s"]),
    ):
        assert ["".join(text for text, _ in each) for each in rows.wrap(row, width)] == shown


def test_nothing_is_lost_at_any_width() -> None:
    row: rows.Row = [
        ("one, ", "a"),
        ("two", "b"),
        ("; ", "c"),
        ("(three", "d"),
        (") ", "c"),
        ("four 1.3 s", "e"),
        (".", "f"),
    ]
    whole = "".join(text for text, _ in row).split()
    for width in range(10, 50):
        told = " ".join("".join(text for text, _ in each) for each in rows.wrap(row, width, 0, 20))
        assert told.split() == whole


@pytest.mark.parametrize("height", [1, 2, 4])
def test_a_skyline_is_as_high_as_its_values(height: int) -> None:
    values = [0.0, 1e-9, 0.25, 0.5, 0.99, 1.0, 2.0]
    drawn = rows.skyline(values, height, 1.0)
    eighths = [sum(" ▁▂▃▄▅▆▇█".index(row[at]) for row in drawn) for at in range(len(values))]
    assert eighths == [0, 1, *(round(8 * height * value) for value in (0.25, 0.5, 0.99)), 8 * height, 8 * height]
    for at in range(len(values)):
        column = "".join(row[at] for row in drawn)
        assert column.lstrip(" ").lstrip("▁▂▃▄▅▆▇").strip("█") == "", "full cells below, one in part at the top"
    assert rows.skyline([0.0, 0.0], height, 0.0) == ["  "] * height

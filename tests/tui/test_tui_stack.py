"""Stacked columns in block characters."""

import random

import pytest

from monitor.tui.drawing.characters import plain
from monitor.tui.drawing.rows import row_width
from monitor.tui.drawing.timeline import Layer, stacked
from monitor.tui.panels.curve_panels import framed
from monitor.tui.panels.steps_panel import seconds_axis


def picture(layers: list[Layer], width: int, height: int, top: float) -> list[str]:
    return ["".join(text for text, _ in row) for row in stacked(layers, width, height, top)]


def test_heights_are_in_eighths_of_a_cell() -> None:
    assert picture([Layer("a", [0.0, 0.5, 1.0, 1.5, 2.0])], 5, 2, 2.0) == ["   ▄█", " ▄███"]


def test_every_row_has_the_width_and_the_rest_is_free() -> None:
    rows = stacked([Layer("a", [1.0, 2.0])], 10, 3, 2.0)
    assert [row_width(row) for row in rows] == [10, 10, 10]


def test_two_layers_share_a_cell_by_foreground_and_background() -> None:
    assert stacked([Layer("a", [0.5]), Layer("b", [0.6])], 1, 1, 1.1) == [[("▄", "a/b fill"), ("", "text")]]


def test_what_is_above_the_limit_is_cut() -> None:
    assert picture([Layer("a", [9.0])], 1, 2, 2.0) == ["█", "█"]


def test_anything_above_zero_is_visible() -> None:
    assert picture([Layer("a", [1e-9])], 1, 1, 1.0) == ["▁"]


def test_nothing_is_nothing() -> None:
    assert picture([], 3, 1, 1.0) == ["   "]
    assert picture([Layer("a", [float("nan")])], 1, 1, 1.0) == [" "]


def tones(heights: list[float], height: int, top: float) -> list[str]:
    """The colors of a column's cells, the highest first."""
    layers = [Layer(f"phase{index}", [each]) for index, each in enumerate(heights)]
    return [row[0][1].removesuffix(" fill") for row in stacked(layers, 1, height, top)]


def test_layers_lie_in_their_order_and_none_worth_a_look_is_lost() -> None:
    assert tones([0.15, 1.1, 1.0], 3, 3.0) == ["phase2", "phase1/phase2", "phase0/phase1"]
    assert tones([1.1, 1.0, 0.15], 3, 3.0) == ["phase2", "phase1", "phase0"], "a thin one on top, too"


@pytest.mark.parametrize("height", [3, 4, 5, 8, 12])
def test_every_phase_above_5_percent_is_seen_in_the_order_of_the_step(height: int) -> None:
    choice = random.Random(height)
    for _ in range(500):
        shares = [choice.choice((0.051, 0.06, 0.1, 0.4, 0.8)) for _ in range(height)]
        drawn = tones([share / sum(shares) for share in shares], height, 1.0)
        worth_a_look = [f"phase{at}" for at, share in enumerate(shares) if share / sum(shares) >= 0.05]
        seen = list(dict.fromkeys("/".join(reversed(drawn)).split("/")))
        assert [tone for tone in seen if tone in worth_a_look] == worth_a_look, (shares, drawn)


@pytest.mark.parametrize("height", [2, 3, 4, 5])
def test_no_layer_of_more_than_half_a_cell_is_lost(height: int) -> None:
    choice = random.Random(height)
    for _ in range(500):
        eighths = [choice.choice((1, 2, 3, 5, 6, 9)) for _ in range(5)]
        if sum(eighths) > 8 * height:
            continue
        drawn = "/".join(tones([each / 8 for each in eighths], height, float(height)))
        assert all(f"phase{index}" in drawn for index, each in enumerate(eighths) if each > 4), eighths


@pytest.mark.parametrize("levels", range(1, 17))
def test_a_column_of_few_eighths_shows_what_it_can(levels: int) -> None:
    choice = random.Random(levels)
    for _ in range(300):
        shares = [choice.choice((0.0, 0.051, 0.1, 0.3, 0.8)) for _ in range(6)]
        whole = sum(shares) or 1.0
        drawn = tones([share / whole * levels / 8 for share in shares], 3, 3.0)
        assert any(tone.startswith("phase") for tone in drawn) or not any(shares)


def test_the_mark_of_a_label_stands_where_a_column_of_its_value_ends() -> None:
    top, labels = seconds_axis(0.42, 9)
    row = labels.index("200 ms")
    rows = framed(stacked([Layer("a", [0.2])], 1, 9, top), labels, 8, at_foot=True)
    drawn = ["".join(text for text, _ in each) for each in rows]
    assert drawn[row] == "200 ms▁│ " and drawn[row + 1].endswith("│█"), "at the lower edge of the row"
    assert plain(drawn[row]) == "200 ms_| "


def test_columns_of_less_than_a_cell_have_the_color_of_what_is_larger_overall() -> None:
    layers = [Layer("a", [9.0, 0.3, 0.5, 0.4]), Layer("b", [11.0, 0.5, 0.4, 0.1])]
    [*_, low] = stacked(layers, 4, 20, 20.0)
    assert low[1:] == [("▆▇", "b fill"), ("▄", "a fill"), ("", "text")], "but where there is next to nothing of it"


def eighths(layers: list[Layer], height: int, top: float) -> list[dict[str, int]]:
    """How much of each color there is in every column."""
    width = len(layers[0].heights)
    found: list[dict[str, int]] = [{} for _ in range(width)]
    for row in stacked(layers, width, height, top):
        cells = [(sign, tone.removesuffix(" fill").split("/")) for text, tone in row for sign in text]
        for column, (sign, tones_) in zip(found, cells, strict=True):
            level = " ▁▂▃▄▅▆▇█".index(sign)
            for tone, part in zip(tones_, (level, 8 - level), strict=False):
                column[tone] = column.get(tone, 0) + part
    return found


@pytest.mark.parametrize("height", range(2, 20))
@pytest.mark.parametrize(
    "means", [(3e-6, 0.075, 0.151, 0.025, 8e-5), (0.0065, 0.21, 0.572, 0.03, 0.0006), (0.072, 0.055, 0.031, 0.03)]
)
def test_a_phase_is_shown_in_every_column_or_in_none(height: int, means: tuple[float, ...]) -> None:
    noise = random.Random(height)
    layers = [
        Layer(f"phase{at}", [mean * noise.uniform(0.97, 1.03) for _ in range(60)]) for at, mean in enumerate(means)
    ]
    top = 1.4 * sum(means)
    columns = eighths(layers, height, top)
    for at, mean in enumerate(means):
        sizes = [column.get(f"phase{at}", 0) for column in columns]
        assert all(sizes) or not any(sizes), (at, sizes)
        true = mean / top * 8 * height
        assert any(sizes) or true < 2
        assert max(sizes) - min(sizes) <= 8 + 0.1 * true
    assert all(
        abs(sum(column.values()) - column.get("text", 0) - sum(means) / top * 8 * height) < 3 + height / 4
        for column in columns
    )

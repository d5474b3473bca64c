"""The chart adapter, in processes of their own: what it guards against kills the process or eats its memory."""

import math
import re
import subprocess
import sys
from itertools import pairwise

import pytest

from monitor.model.steps.series import Curve
from monitor.tui.drawing.chart import Axis, column_axis, linear, logarithmic
from monitor.tui.drawing.curve_columns import fold, grid
from monitor.tui.drawing.line_drawing import limits, line
from monitor.tui.panels.curve_panels import line_chart

PROGRAM = """
import math, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
from monitor.model.steps.series import Curve
from monitor.tui.drawing.line_drawing import line
from monitor.tui.drawing.curve_columns import fold, grid
from monitor.tui.drawing.rows import row_width
nan, inf = math.nan, math.inf
values = {values}
for width, height in ((60, 8), (1, 1), (2, 1), (3, 40), (200, 2)):
    curve = Curve([float(step + 1) for step in range(len(values))], values, values, values)
    layout = grid(curve, width)
    if layout is None:
        continue
    picture = line(fold(curve, layout), layout, width, height, "accent", "faint")
    assert len(picture.rows) == height, (width, height)
    assert all(row_width(row) == width for row in picture.rows), (width, height)
    low, high = picture.axis.low, picture.axis.high
    assert math.isfinite(low) and math.isfinite(high) and low < high
    if width == 60:
        dots = sum(text.count(c) for row in picture.rows for text, _ in row for c in text if c != " ")
        print(bool(dots), len(picture.gaps), len(picture.above), len(picture.below))
print("alive")
"""

CASES = {
    "nan among finite": "[1.0, nan, 2.0, 3.0]",
    "infinite": "[1.0, inf, -inf, 2.0]",
    "all nan": "[nan] * 30",
    "far off": "[1.0, 2.0] * 40 + [1e6] + [1.5] * 20",
    "far below": "[1.0, 2.0] * 40 + [-1e300] + [1.5] * 20",
    "empty": "[]",
    "one point": "[3.0]",
    "two points": "[3.0, 3.0]",
    "huge": "[1.7e308, -1.7e308, 1e308] * 9",
    "tiny": "[5e-324, 0.0] * 9",
    "constant": "[0.25] * 100",
    "constant zero": "[0.0] * 100",
    "negative": "[-5.0, -4.0, -3.5] * 20",
    "constant and an outlier": "[1.0] * 50 + [1e9]",
    "many": "[float(step % 7) for step in range(5000)]",
}
NO_LINE = {"all nan", "empty"}


@pytest.fixture(scope="module")
def outcomes() -> dict[str, tuple[int, str]]:
    """All cases at once, each in its own process; two at a time."""
    results = {}
    names = list(CASES)
    for pair in (names[start : start + 2] for start in range(0, len(names), 2)):
        running = {
            name: subprocess.Popen(
                [sys.executable, "-c", PROGRAM.format(values=CASES[name])], stdout=subprocess.PIPE, text=True
            )
            for name in pair
        }
        for name, process in running.items():
            output, _ = process.communicate(timeout=60)
            results[name] = (process.returncode, output)
    return results


@pytest.mark.parametrize("name", CASES)
def test_survives(outcomes: dict[str, tuple[int, str]], name: str) -> None:
    code, output = outcomes[name]
    assert code == 0
    assert "alive" in output
    if name not in NO_LINE:
        assert output.startswith("True")


def test_what_is_left_out_is_marked(outcomes: dict[str, tuple[int, str]]) -> None:
    assert re.match(r"True 1 0 0", outcomes["nan among finite"][1])
    assert re.match(r"True 2 0 0", outcomes["infinite"][1])
    assert re.match(r"False \d+ 0 0", outcomes["all nan"][1])
    assert re.match(r"True 0 1 0", outcomes["far off"][1])
    assert re.match(r"True 0 0 1", outcomes["far below"][1])
    assert re.match(r"True 0 1 0", outcomes["constant and an outlier"][1])


def test_plotext_is_imported_at_the_first_chart_only() -> None:
    program = "import sys, monitor.tui.app; assert not any(name.startswith('plotext') for name in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    "values", [[], [math.nan], [1.0], [2.0, 2.0], [1e308, -1e308], [0.0] * 20 + [1e6], [float(n) for n in range(100)]]
)
def test_limits_are_finite_and_apart(values: list[float]) -> None:
    low, high = limits(values)
    assert math.isfinite(low) and math.isfinite(high) and low < high


def test_a_decay_is_no_outlier() -> None:
    decay = [0.9 + 9 * math.exp(-step / 30) for step in range(200)]
    assert limits(decay)[1] >= max(decay)


def test_an_outlier_does_not_flatten_the_rest() -> None:
    assert limits([float(step % 10) for step in range(200)] + [1e6])[1] < 40


def test_a_constant_of_nothing_lies_on_the_ground() -> None:
    assert limits([0.0] * 9) == (0.0, 1.0), "no count is below nothing"
    low, high = limits([5.0] * 9)
    assert low < 5.0 < high


def test_a_constant_is_a_straight_line_whatever_its_means_were_rounded_to() -> None:
    curve = Curve([float(step) for step in range(1, 215)], *([0.1] * 214 for _ in range(3)))
    layout = grid(curve, 30)
    assert layout is not None
    buckets = fold(curve, layout)
    assert any(bucket is not None and bucket.mean != 0.1 for bucket in buckets), "the sum of a few tenths is rounded"
    low, high = limits([bucket.mean for bucket in buckets if bucket is not None] + [0.1])
    assert high - low >= 0.02


def test_noise_does_not_fill_the_height() -> None:
    low, high = limits([1785.0, 1797.5, 1790.0], least=200.0)
    assert high - low >= 200.0 and low < 1785.0 and high > 1797.5
    assert limits([0.1, 0.4], least=10.0) == (0.0, 10.0), "no count is below nothing"
    assert limits([0.0, 500.0], least=10.0) == limits([0.0, 500.0])


def number(label: str) -> float:
    factors = {"k": 1e3, "M": 1e6, "G": 1e9}
    return float(label.rstrip("kMG").replace(",", "")) * factors.get(label[-1], 1.0)


def told(axis: Axis) -> dict[int, float]:
    """The value at each row that has a label, counted from below."""
    return {row: number(label) for row, label in enumerate(reversed(axis.labels)) if label}


def place(axis: Axis, value: float) -> float:
    """In rows from the lower edge: the dots of a row begin at its edge."""
    return (value - axis.low) / (axis.high - axis.low) * (len(axis.labels) - 0.25)


ENDS = [(0.0, 1.0), (1.75, 2.6), (-0.3, 12.5), (2e-6, 1e-5), (18_600.0, 20_600.0), (0.0, 7e9), (7.0, 8.6), (65, 87)]


@pytest.mark.parametrize("height", range(2, 40))
@pytest.mark.parametrize("ends", ENDS)
def test_the_labels_of_an_axis_stand_beside_their_values_as_far_apart_as_these(ends, height: int) -> None:
    axis = linear(*ends, height)
    values = told(axis)
    assert axis.low <= ends[0] and ends[1] <= axis.high and len(axis.labels) == height
    assert (3 if height >= 6 else 2) <= len(values) <= 7 and all(len(label) <= 7 for label in axis.labels)
    assert all(abs(place(axis, value) - (row + 0.375)) <= 0.25 for row, value in values.items())
    rows, apart = sorted(values), (values[max(values)] - values[min(values)]) / (max(values) - min(values))
    assert len({above - below for below, above in pairwise(rows)}) == 1
    assert all(values[row] - values[rows[0]] == pytest.approx(apart * (row - rows[0])) for row in rows)
    assert axis.high - axis.low <= 2.5 * (ends[1] - ends[0])
    assert ends[0] < 0 or min(values.values()) >= 0, "no count is below nothing"


def test_a_curve_ends_beside_the_label_of_its_value_on_a_small_chart_too() -> None:
    values = [1.0 - 0.039 * step for step in range(11)]  # down to 0.61
    curve = Curve([float(step) for step in range(1, 12)], values, values, values)
    layout = grid(curve, 11)
    assert layout is not None
    picture = line(fold(curve, layout), layout, 11, 3, "accent", "faint")
    ends = [
        row for row, spans in enumerate(reversed(picture.rows)) if "".join(text for text, _ in spans)[10:].strip(" ⠀")
    ]
    assert [round(place(picture.axis, 0.61) - 0.375)] == ends
    assert picture.axis.labels == ("1.0", "", "0.6")


@pytest.mark.parametrize("height", [2, 3, 4, 6, 10, 22])
def test_a_value_is_drawn_in_the_dot_that_its_axis_gives_it(height: int) -> None:
    """A label stands beside the second dot of its row: the curve must not contradict it."""
    axis = linear(0.0, 1.0, height)
    lifts = {0x80: 0, 0x20: 1, 0x10: 2, 0x08: 3}  # the right dots of a cell, from below
    for dot in range(4 * height):
        value = axis.low + (axis.high - axis.low) * dot / (4 * height - 1)
        values = [0.0, 1.0, *[value] * 6]
        curve = Curve([float(step) for step in range(8)], values, values, values)
        layout = grid(curve, 8)
        assert layout is not None
        rows = line(fold(curve, layout), layout, 8, height, "accent", "faint").rows
        cells = [ord("".join(text for text, _ in row)[6]) - 0x2800 for row in reversed(rows)]
        assert [
            4 * row + lift for row, cell in enumerate(cells) for bit, lift in lifts.items() if cell > 0 and cell & bit
        ] == [dot]


def drawn(steps: list[int], columns: int = 120) -> str:
    """The columns of a chart of steps 0..119 in which something is drawn."""
    values = [float(step) for step in steps]
    curve, run = Curve(values, values, values, values), [float(step) for step in range(120)]
    layout = grid(curve, columns, Curve(run, run, run, run))
    assert layout is not None
    rows = ["".join(text for text, _ in row) for row in line(fold(curve, layout), layout, columns, 4, "a", "f").rows]
    return "".join("x" if set(cells) - set(" ⠀") else " " for cells in zip(*rows, strict=True))


def test_no_line_crosses_a_stretch_in_which_a_metric_had_no_value() -> None:
    shown = drawn([*range(67), *range(106, 120)])
    assert shown[:67] == "x" * 67 and shown[67:106] == " " * 39 and shown[106:] == "x" * 14
    assert drawn([*range(50), *range(52, 120)]) == "x" * 120, "a skipped step or two"
    assert drawn([*range(0, 120, 20), 119]).strip() == "x" * 120, "an evaluation each 20 steps"
    assert drawn([*range(0, 41, 10), 115])[45:115] == " " * 70
    assert drawn([*range(50), 100]).strip().endswith("x"), "a value of its own is a dot"
    assert drawn([*range(66, 69), *range(105, 108)], 30).strip().count(" ") == 8, "many values in two columns"
    assert drawn([*range(67), *range(106, 120)], 60).count(" ") in range(16, 23)


@pytest.mark.parametrize(("low", "high"), [(-1.7e308, 1.7e308), (0.0, 1e-310), (5.0, 5.0 + 1e-9)])
def test_an_axis_takes_any_limits(low: float, high: float) -> None:
    for height in (1, 2, 5, 12):
        axis = linear(low, high, height)
        assert math.isfinite(axis.low) and math.isfinite(axis.high)
        assert sum(map(bool, axis.labels)) >= min(2, height)


@pytest.mark.parametrize(("high", "height"), [(0.42, 7), (52.0, 3), (8.1, 9), (250.0, 12), (1.0, 2), (3.0, 1)])
def test_columns_stand_on_nothing_and_the_feet_of_rows_are_round(high: float, height: int) -> None:
    top, feet = column_axis(high, height)
    assert high <= top <= 2.1 * high and feet[0] == 0.0
    assert all(value == pytest.approx(row * top / height) for row, value in feet.items())
    assert len(feet) >= (3 if height >= 6 else 2 if height > 1 else 1)


@pytest.mark.parametrize("height", [3, 6, 12])
@pytest.mark.parametrize(("low", "high"), [(-2.0, 3.0), (0.4, 2.1), (-300.0, 300.0), (-5.5, -4.0), (0.1, 0.3)])
def test_the_labels_of_a_logarithmic_axis_stand_beside_their_values(low: float, high: float, height: int) -> None:
    axis = logarithmic(low, high, height)
    values = {row: math.log10(value) for row, value in told(axis).items() if value}
    assert axis.low <= low and high <= axis.high
    assert len(values) >= (3 if height >= 6 else 2) or low < -299
    assert all(abs(place(axis, value) - (row + 0.25)) <= 0.3 for row, value in values.items())


def test_the_band_and_the_signs_of_a_chart_are_explained_where_there_is_room() -> None:
    values = [float(step % 10) for step in range(120)]
    values[40], values[100] = -1e6, 1e6
    curve = Curve([float(step + 1) for step in range(120)], values, values, values)
    for width, foot in ((70, "step 1  ⡇ min-max of 2 steps  120"), (24, "step 1 120"), (140, "step 1 30 60 90 120")):
        *_, signs, axis = ["".join(text for text, _ in row) for row in line_chart(curve, width, 8)]
        assert " ".join(axis.split()) == " ".join(foot.split()), width
        assert ("▾" in signs and "▴" in signs and " off scale" in signs) == (width > 30)
    assert "⡇" not in "".join(text for text, _ in line_chart(curve, 70, 8, explained=False)[-1])
    late = Curve(curve.x, [1.0] * 118 + [1e9] * 2, [1.0] * 118 + [1e9] * 2, [1.0] * 118 + [1e9] * 2)
    [*_, signs, _] = line_chart(late, 70, 8)
    assert "".join(text for text, _ in signs).split() == ["above", "scale,", "up", "to", "1e+09", "▴▴"], "before them"

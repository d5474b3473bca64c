"""The chart adapter, in processes of their own: what it guards against kills the process or eats its memory."""

import math
import re
import subprocess
import sys
from itertools import pairwise

import pytest

from monitor.model.report import Curve
from monitor.tui.chart import limits
from monitor.tui.columns import fold, grid
from monitor.tui.panels.plot import labelled, log_ticks, scale, ticks

PROGRAM = """
import math, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
from monitor.model.report import Curve
from monitor.tui.chart import line
from monitor.tui.columns import fold, grid
from monitor.tui.rows import row_width
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
    assert math.isfinite(picture.low) and math.isfinite(picture.high) and picture.low < picture.high
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


@pytest.mark.parametrize("height", range(2, 40))
@pytest.mark.parametrize(
    "ends", [(0.0, 1.0), (1.75, 2.6), (-0.3, 12.5), (2e-6, 1e-5), (18_600.0, 20_600.0), (0.0, 7e9)]
)
def test_an_axis_has_round_labels_where_there_is_room(ends: tuple[float, float], height: int) -> None:
    low, high = ends
    told = labelled(ticks(low, high, height))
    rows = scale(told, low, high, height)
    shown = [label for label in rows if label]
    assert len(rows) == height and len(shown) == len(told), "no two in one row"
    assert all(low - 1e-9 <= value <= high * (1 + 1e-9) and len(label) <= 7 for value, label in told)
    assert 2 <= len(shown) <= 8 and len(set(shown)) == len(shown)
    if height >= 9:
        assert len(shown) >= 3


@pytest.mark.parametrize(("low", "high"), [(-1.7e308, 1.7e308), (0.0, 1e-310), (5.0, 5.0 + 1e-9)])
def test_an_axis_takes_any_limits(low: float, high: float) -> None:
    assert len(ticks(low, high, 12)) >= 2
    assert len(labelled(ticks(low, high, 12))) >= 2


@pytest.mark.parametrize(("low", "high"), [(-2.0, 3.0), (0.4, 2.1), (-300.0, 300.0), (-5.5, -4.0)])
def test_a_logarithmic_axis_has_round_labels(low: float, high: float) -> None:
    found = log_ticks(low, high, 12)
    assert 3 <= len(found) <= 8
    assert all(f"{10**each:.0e}"[0] in "1235" for each in found)
    assert all(two - one >= 2 * (high - low) / 12 for one, two in pairwise(found))

"""Rectangles of every size: inside the screen, apart from each other, and useful."""

import itertools

import pytest

from monitor.tui.actions import PANELS
from monitor.tui.drawing.layout import place

NAMES = [panel.name for panel in PANELS]
SIZES = [(160, 45), (120, 30), (80, 24), (60, 15), (20, 5), (1, 1), (300, 100), (45, 60), (110, 8)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("hidden", [(), ("steps",), ("alerts", "console"), tuple(NAMES)])
@pytest.mark.parametrize("guest", [None, "tokens", "console"])
@pytest.mark.parametrize("alone", [None, "metric"])
def test_parts_lie_inside_the_screen_and_apart(size, hidden, guest, alone) -> None:
    width, height = size
    rects = place(width, height, hidden, guest, alone)
    for rect in rects.values():
        assert rect.x >= 0 and rect.y >= 0 and rect.width > 0 and rect.height > 0
        assert rect.x + rect.width <= width and rect.y + rect.height <= height
    for one, other in itertools.combinations(rects.values(), 2):
        apart = one.x + one.width <= other.x or other.x + other.width <= one.x
        assert apart or one.y + one.height <= other.y or other.y + other.height <= one.y


def test_every_size_from_one_cell_up_is_laid_out() -> None:
    for width, height in itertools.product(range(1, 130, 3), range(1, 50, 2)):
        rects = place(width, height)
        assert "header" in rects
        assert sum(rect.width * rect.height for rect in rects.values()) <= width * height


def test_a_large_screen_shows_everything() -> None:
    assert set(place(160, 45)) == {"header", "footer", *NAMES}


def test_a_usual_screen_shows_what_matters_most() -> None:
    assert {"steps", "phases", "metric", "alerts", "machine"} <= set(place(80, 24))


def test_a_small_screen_shows_where_the_time_goes_first() -> None:
    assert {"phases", "steps"} <= set(place(60, 15))


@pytest.mark.parametrize("name", NAMES)
def test_a_panel_asked_for_by_name_has_a_place_on_every_screen(name: str) -> None:
    for size in ((160, 45), (80, 24), (60, 15)):
        assert name in place(*size, guest=name)


def test_a_hidden_panel_leaves_its_room_to_its_neighbors() -> None:
    assert place(160, 45, hidden={"phases"})["steps"].width == 158


def test_eight_gpus_and_their_host_have_a_row_each_at_160x45() -> None:
    title, gpus, host = 1, 8, 4
    assert place(160, 45, hidden={"ranks"})["machine"].height >= title + gpus + host

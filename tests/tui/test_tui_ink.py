"""Terminals with few colors, none, or only ASCII: what is told apart by color is told apart by signs as well."""

from itertools import combinations
from math import dist
from operator import mul

import pytest
import sample_views as views
from rich.color import Color, ColorSystem

from monitor.palettes import BETWEEN, PALETTES, STARTUP, STEPS, TEARDOWN, Palette, PhaseTones
from monitor.tui.drawing.characters import TerminalCapabilities, ink, patterned, plain
from monitor.tui.drawing.rows import meter, text_width
from monitor.tui.screens.page import screen_classes

MANY, FEW = ColorSystem.EIGHT_BIT, ColorSystem.STANDARD
UTF = {"LANG": "en_US.UTF-8"}


@pytest.mark.parametrize(
    ("environment", "colors", "lacks"),
    [
        (UTF, MANY, TerminalCapabilities()),
        ({}, MANY, TerminalCapabilities()),
        ({**UTF, "NO_COLOR": ""}, MANY, TerminalCapabilities(True, False)),
        (UTF, FEW, TerminalCapabilities(True, False)),
        (UTF, None, TerminalCapabilities(True, False)),
        ({**UTF, "TERM": "linux"}, FEW, TerminalCapabilities(True, True)),
        ({"LANG": "C"}, MANY, TerminalCapabilities(True, True)),
        ({**UTF, "LC_ALL": "C"}, MANY, TerminalCapabilities(True, True)),
        ({"LANG": "C", "LC_ALL": "C.utf8"}, MANY, TerminalCapabilities()),
    ],
)
def test_what_a_terminal_lacks_is_told_by_what_it_says(environment, colors, lacks) -> None:
    assert ink(environment, colors) == lacks


def test_the_configuration_has_the_last_word_on_ascii() -> None:
    assert ink({"LANG": "C"}, MANY, ascii_only=False) == TerminalCapabilities()
    assert ink(UTF, MANY, ascii_only=True) == TerminalCapabilities(True, True)


def test_every_phase_has_a_sign_of_its_own_in_ascii_too() -> None:
    tones = [*(f"phase{number}" for number in range(8)), "other"]
    for fill in ("█", "▆"):
        drawn = [patterned([(fill, f"{tone} fill")])[0][0] for tone in tones]
        assert len(set(drawn)) == len(tones)
        assert len({plain(sign) for sign in drawn}) == len(tones)
    assert patterned([("■ ", "phase1")])[0][0][0] == patterned([("█", "phase1 fill")])[0][0]  # the legend agrees


def test_ascii_is_as_wide_and_keeps_what_is_full_from_what_is_empty() -> None:
    text = "─━│▁█⣿⠀ · 12 °C 漢字 – “x” é\xa0µ"
    assert plain(text).isascii()
    assert text_width(plain(text)) == text_width(text)
    full, empty = ("".join(plain(part) for part, _ in meter(value, 4)) for value in (1.0, 0.0))
    assert set(full).isdisjoint(empty)


def contrast(one: str, other: str) -> float:
    """As WCAG 2 counts it."""

    def light(color: str) -> float:
        parts = [part / 255 for part in Color.parse(color).triplet or ()]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("palette", PALETTES, ids=lambda palette: palette.name)
def test_words_and_charts_stand_out_from_the_ground(palette: Palette) -> None:
    for tone in ("text", "muted", "accent", "good", "warning", "bad"):
        assert min(contrast(palette.color(tone), ground) for ground in (palette.background, palette.raised)) >= 4.5
    for tone in ("faint", "other", "between", *(f"phase{number}" for number in range(len(palette.phases)))):
        assert contrast(palette.color(tone), palette.background) >= 3


# What eyes see that lack one kind of cone (Machado, Oliveira and Fernandes 2009), in linear light; and all eyes.
EYES = {
    "all": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": ((0.1523, 1.0526, -0.2049), (0.1145, 0.7863, 0.0992), (-0.0039, -0.0481, 1.0520)),
    "deutan": ((0.3673, 0.8606, -0.2280), (0.2801, 0.6725, 0.0474), (-0.0118, 0.0429, 0.9690)),
    "tritan": ((1.2555, -0.0767, -0.1788), (-0.0784, 0.9308, 0.1476), (0.0047, 0.6914, 0.3039)),
}
APART = 12.0  # in CIELAB, where 2.3 is the least that eyes tell apart in two fields beside each other


def seen(color: str, eyes: str) -> tuple[float, float, float]:
    """A color in CIELAB as these eyes see it."""
    parts = [part / 255 for part in Color.parse(color).triplet or ()]
    light = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    r, g, b = (min(1.0, max(0.0, sum(map(mul, row, light)))) for row in EYES[eyes])
    xyz = (0.4339 * r + 0.3762 * g + 0.1899 * b, 0.2126 * r + 0.7152 * g + 0.0722 * b,
           0.0177 * r + 0.1095 * g + 0.8728 * b)  # fmt: skip
    x, y, z = (part ** (1 / 3) if part > 0.008856 else 7.787 * part + 16 / 116 for part in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("eyes", EYES)
@pytest.mark.parametrize("palette", PALETTES, ids=lambda palette: palette.name)
def test_the_parts_of_a_whole_run_are_told_apart_by_all_eyes(palette: Palette, eyes: str) -> None:
    tones = PhaseTones()
    tones.learn(["test_generation", "generation", "execution", "reward", "weight_sync", "eval", "checkpoint"])
    kinds = (STARTUP, STEPS, tones["eval"], tones["checkpoint"], tones[BETWEEN], TEARDOWN)
    colors = [seen(palette.color(tone), eyes) for tone in kinds]
    assert min(dist(one, other) for one, other in combinations(colors, 2)) >= APART
    assert all(PhaseTones()[name] == tones[name] for name in ("eval", "checkpoint")), "the same in every run"
    assert not {tones["eval"], tones["checkpoint"]} & {tones[name] for name in ("execution", "reward", "weight_sync")}


@pytest.mark.parametrize("palette", PALETTES, ids=lambda palette: palette.name)
def test_sixteen_colors_swallow_no_word(palette: Palette) -> None:
    def few(tone: str) -> int | None:
        return Color.parse(palette.color(tone)).downgrade(FEW).number

    tones = ("text", "muted", "accent", "good", "warning", "bad")
    assert few("background") not in {few(tone) for tone in tones}
    assert few("good") not in (few("muted"), few("warning"), few("bad"))


@pytest.mark.parametrize("screen", ["", *screen_classes()])
async def test_no_screen_sends_anything_but_ascii_where_that_is_all_there_is(app_on, sent, screen) -> None:
    app = app_on(views.throttled(), ink=TerminalCapabilities(True, True))
    async with app.run_test(size=(120, 36)) as pilot:
        if screen:
            app.action_show(screen)
        await pilot.pause()
        await pilot.pause()
    drawn = "".join(sent)
    assert "RUNNING" in drawn
    assert drawn.isascii(), sorted({sign for sign in drawn if not sign.isascii()})

"""Palettes as the terminal's styles and Textual's themes. Pure."""

from __future__ import annotations

from functools import lru_cache

from rich.style import Style
from textual.theme import Theme

from monitor.palettes import Palette

FILL = " fill"  # behind the tone of cells whose color alone says which phase they are


def textual_theme(palette: Palette) -> Theme:
    """Return the palette as a theme for Textual's own widgets."""
    return Theme(
        name=palette.name,
        primary=palette.accent,
        warning=palette.warning,
        error=palette.bad,
        success=palette.good,
        accent=palette.accent,
        foreground=palette.text,
        background=palette.background,
        surface=palette.background,
        panel=palette.raised,
        dark=palette.dark,
        variables={"muted": palette.muted, "faint": palette.faint, "rule": palette.rule},
    )


@lru_cache(maxsize=4096)
def style(palette: Palette, tone: str) -> Style:
    """Return the style of a tone: `"muted"`, `"bad bold"`, `"phase2/other"`, `"background/warning bold"`."""
    colors, _, weight = tone.partition(" ")
    front, _, back = colors.partition("/")
    return Style(
        color=palette.color(front),
        bgcolor=palette.color(back) if back else palette.background,
        bold=weight == "bold",
    )

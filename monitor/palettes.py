"""The colors of the screens and pages, and which phase has which. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

# Themes as data, one palette each. All colors come from here, those of Textual's own widgets included.


@dataclass(frozen=True, eq=False)  # one instance each: compared by identity, which is fast
class Palette:
    """The colors of one theme: `phases` distinguish the layers of charts, the named ones have one meaning everywhere.

    Contrast to the background is at least 4.5 for text and 3 for bars and charts, as WCAG 2 requires. `faint` has 3
    and is never used for text. `rule` may have less.
    """

    name: str
    dark: bool
    background: str
    raised: str  # dialogs
    text: str
    muted: str
    faint: str
    rule: str
    accent: str
    good: str
    warning: str
    bad: str
    other: str  # time in no phase
    between: str  # time in no step
    phases: tuple[str, ...] = field(default=())
    patterns: bool = False  # phases also differ by pattern

    def color(self, tone: str) -> str:
        """Return the color of a tone as `#rrggbb`."""
        if tone.startswith("phase"):
            return self.phases[int(tone[5:]) % len(self.phases)]
        return str(getattr(self, tone))


MIDNIGHT = Palette(
    "midnight", True,
    background="#10141b", raised="#1a212c", text="#dbe2ea", muted="#8794a5", faint="#586577", rule="#2c3644",
    accent="#7cc4f8", good="#6fd06f", warning="#e8b64c", bad="#f2706b", other="#7d8998", between="#5d6a7c",
    phases=(
        "#5a94d8", "#62c4b8", "#e0a84e", "#a98bdc", "#dd7d6a",
        "#86b860", "#d58bb5", "#7ad0e8", "#c2bd62", "#b98f6a",
    ),
)  # fmt: skip
PAPER = Palette(
    "paper", False,
    background="#fbfaf7", raised="#f0eee8", text="#23272e", muted="#5f6772", faint="#8a9098", rule="#d5d4cd",
    accent="#0b66b0", good="#007a1f", warning="#8f5b00", bad="#c02a26", other="#6b727c", between="#8a9098",
    phases=(
        "#3a77bd", "#2b9c8f", "#b8780f", "#7f5fc0", "#c75b45",
        "#5c9136", "#b8598f", "#2690b0", "#8f8a22", "#8f6540",
    ),
)  # fmt: skip
CONTRAST = Palette(
    "contrast", True,
    background="#000000", raised="#101010", text="#ffffff", muted="#d0d0d0", faint="#909090", rule="#808080",
    accent="#ffff00", good="#00ff66", warning="#ffaf00", bad="#ff5f5f", other="#a0a0a0", between="#606060",
    phases=(
        "#4da3ff", "#00e5c8", "#ffb000", "#c79bff", "#ff7a5c",
        "#8aff3c", "#f2f23a", "#5ff0ff", "#ff7ad9", "#e0a070",
    ),
)  # fmt: skip
# The hues of Okabe and Ito, distinct for every common kind of color blindness; good and bad are blue and vermilion.
OKABE = Palette(
    "colour-blind", True,
    background="#12151a", raised="#1d222a", text="#e6e6e6", muted="#9aa3ad", faint="#5f6974", rule="#333b45",
    accent="#56b4e9", good="#56b4e9", warning="#f0e442", bad="#ee7733", other="#7d858e", between="#606a76",
    phases=(
        "#0072b2", "#56b4e9", "#e69f00", "#cc79a7", "#d55e00",
        "#009e73", "#b8860b", "#a6d8f5", "#f0e442", "#8c5a7a",
    ),
)  # fmt: skip

PALETTES: tuple[Palette, ...] = (MIDNIGHT, PAPER, CONTRAST, OKABE)


def palettes(patterns: bool) -> tuple[Palette, ...]:
    """Return the themes, with patterns for phases if `patterns`."""
    return tuple(replace(palette, patterns=True) for palette in PALETTES) if patterns else PALETTES


# Common phases have a fixed hue, the same in every run; on a clash the next free hue is used.
_PREFERRED = {
    "generation": 0, "forward": 0, "training": 5, "optimizer": 5, "execution": 2, "data": 2, "log_probs": 3,
    "backward": 3, "test_generation": 7, "reward": 1, "advantage": 6, "weight_sync": 9, "h2d": 9, "logging": 9,
}  # fmt: skip
# The other parts of the wall time have the same color in every run: two hues, the steps' own, and three grays, which
# are distinct in every theme and for every common kind of color blindness.
_RESERVED = {"eval": "phase8", "checkpoint": "phase4"}
STEPS, STARTUP, TEARDOWN = "accent", "muted", "text"
OTHER = "other"
BETWEEN = "between steps"


class PhaseTones:
    """Maps phases to tones, for charts, bars and alerts. A phase keeps its tone as long as the mapping lives."""

    def __init__(self) -> None:
        self._tones: dict[str, str] = {OTHER: "other", BETWEEN: "between", **_RESERVED}
        self._used: set[int] = {int(tone[5:]) for tone in _RESERVED.values()}

    def learn(self, names: Iterable[str]) -> None:
        """Assign a tone to each new name."""
        for name in names:
            if name not in self._tones:
                slot = _PREFERRED.get(name, len(self._tones) - 2 - len(_RESERVED))
                hues = len(MIDNIGHT.phases)
                free = (index % hues for index in range(slot, slot + hues) if index % hues not in self._used)
                chosen = next(free, slot % hues)
                self._used.add(chosen)
                self._tones[name] = f"phase{chosen}"

    def __getitem__(self, name: str) -> str:
        return self._tones.get(name, "muted")

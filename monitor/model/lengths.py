"""How long the sequences of the steps are, and what the long ones take: counts by length, in bounded memory. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from trainhooks.events import Step

FINE = 3  # binary digits of a length that tell bins apart: eight in each octave


@dataclass(slots=True)
class Bin:
    """The steps whose longest sequence is about so long."""

    steps: int = 0
    seconds: float = 0.0
    tokens: int = 0
    padded: int = 0  # positions, of the steps that tell both
    length: float = 0.0  # added up


@dataclass(slots=True)
class Lengths:
    """Steps by the length of their longest sequence: as told, or as the batch was padded to."""

    bins: dict[int, Bin] = field(default_factory=dict)
    steps: int = 0
    longest: float = 0.0

    def take(self, step: Step) -> None:
        if step.lengths is not None:
            longest = step.lengths[2]
        elif step.padded_tokens and step.samples:
            longest = step.padded_tokens / step.samples
        else:
            return
        if longest <= 0:
            return
        whole = int(longest)
        coarse = max(0, whole.bit_length() - FINE - 1)
        place = (coarse << FINE) + (whole >> coarse)
        found = self.bins.get(place)
        if found is None:
            found = self.bins[place] = Bin()
        found.steps += 1
        found.seconds += step.duration
        found.length += longest
        if step.tokens is not None and step.padded_tokens is not None:
            found.tokens += min(step.tokens, step.padded_tokens)
            found.padded += step.padded_tokens
        self.steps += 1
        self.longest = max(self.longest, longest)

    def rows(self) -> list[tuple[float, Bin]]:
        """The mean length of each bin and the bin, the short ones first."""
        return [(each.length / each.steps, each) for _, each in sorted(self.bins.items())]

    def usual(self) -> float | None:
        """The length that half of the steps do not go beyond."""
        seen = 0
        for length, each in self.rows():
            seen += each.steps
            if 2 * seen >= self.steps:
                return length
        return None

"""What was found, printed row by row as it comes and written as Markdown with the date and the card."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

Cells = tuple[str, ...]


@dataclass
class Section:
    title: str
    head: Cells
    widths: tuple[int, ...]  # on the terminal; the last column is as wide as it likes
    rows: list[Cells] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    bad: int = 0


def printed(cells: Cells, widths: Sequence[int]) -> str:
    """A row as on the terminal: the first column to the left, and the last, what lies between to the right."""
    parts = [
        f"{cell:<{width}}" if place == 0 else cell if place == len(cells) - 1 else f"{cell:>{width}}"
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return " ".join(parts).rstrip()


def escaped(cell: str) -> str:
    return cell.replace("|", "\\|").replace("\n", " ").strip()


class Book:
    """The sections of one run of gpu-check.

    Args:
        facts: name and value of what was used: date, card, driver, torch.
        path: where the Markdown goes, anew with each section that has ended; nowhere by default.
    """

    def __init__(self, facts: Sequence[tuple[str, str]], path: Path | None = None,
                 out: Callable[[str], object] = print) -> None:  # fmt: skip
        self.facts, self.path, self.sections = list(facts), path, list[Section]()
        self._out = out

    def begin(self, title: str, head: Cells, widths: tuple[int, ...]) -> None:
        self.sections.append(Section(title, head, widths))
        self._out(f"\n{title}\n{printed(head, widths)}")

    def row(self, cells: Cells, bad: bool = False) -> None:
        section = self.sections[-1]
        section.rows.append(cells)
        section.bad += bad
        self._out(printed(cells, section.widths))

    def note(self, text: str, bad: bool = False) -> None:
        self.sections[-1].notes.append(text)
        self.sections[-1].bad += bad
        self._out(text)

    def end(self) -> None:
        """A section has ended: what is there is written, for the next one may not come to its end."""
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(self.markdown(), encoding="utf-8")

    @property
    def bad(self) -> int:
        return sum(section.bad for section in self.sections)

    def markdown(self) -> str:
        lines = ["# What gpu-check found", ""]
        lines += [f"- {name}: {escaped(value)}" for name, value in self.facts]
        for section in self.sections:
            lines += ["", f"## {section.title}", ""]
            lines += [_row(section.head), "|" + "---|" * len(section.head)]
            lines += [_row(row) for row in section.rows]
            for text in section.notes:
                lines += ["", text]
        return "\n".join(lines) + "\n"


def _row(cells: Cells) -> str:
    return "| " + " | ".join(escaped(cell) for cell in cells) + " |"

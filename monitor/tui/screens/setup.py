"""What runs: the command, its settings, the versions and the hardware, as the program told them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from textual.binding import BindingType

from monitor import units as fmt
from monitor.model.report import GpuRow, View
from monitor.tui.actions import screen_bindings
from monitor.tui.panels.base import Look
from monitor.tui.rows import Row, column, cut, printable, row_width, text_width, wrap
from monitor.tui.screens.page import Body, Finder, PageScreen

MAX_DEPTH = 4
ENOUGH = 30  # steps from which on a run is measured by the one before
NAMES = 24  # cells of the settings' names: what lies in a column of its own has them below each other
VALUES = 30  # cells that a long name leaves to its value, where there is so much room
LEAST_WIDTH = 72  # cells of a column of settings: less cuts long names, and wraps most values
GAP = 2
# What has a place of its own above the facts.
_FIRST = ("command", "cwd")
# Trainers tell how many epochs their steps come to, whatever their arguments ask for: `max_steps` overrules those.
_NAMED = {"epochs": "epochs to be run"}


def flattened(facts: dict[str, Any], prefix: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Every fact as a name and a text; what lies deeper has the names above it before its own."""
    for key, value in facts.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and value and depth < MAX_DEPTH:
            yield from flattened(value, f"{name}.", depth + 1)
        elif isinstance(value, list | tuple):
            yield name, ", ".join(str(each) for each in value) or "none"
        else:
            yield name, "–" if value is None else str(value)


def groups(view: View) -> list[tuple[str, list[tuple[str, str]]]]:
    """The facts by what they are about: those with parts make a group each, the others one together."""
    run = view.report.run
    facts = {key: value for key, value in run.facts.items() if key not in _FIRST}
    single = {_NAMED.get(key, key): value for key, value in facts.items() if not isinstance(value, dict)}
    if single.get("cpus") == view.report.host.cores:
        single.pop("cpus", None)  # the hardware has it
    command = run.command or run.facts.get("command") or []
    told = (
        ("command", " ".join(map(str, command))), ("directory", str(run.facts.get("cwd") or "")), ("run", run.id or ""),
        ("host", run.host or ""), ("ranks", f"{run.ranks:,}" if run.ranks else ""),
    )  # fmt: skip
    blocks = ("Run", [(name, value) for name, value in told if value]), (_machine(view), hardware(view))
    found = [block for block in blocks if block[1]]
    if single:
        found.append(("Facts", list(flattened(single))))
    for key, value in facts.items():
        if isinstance(value, dict) and value:
            found.append((key.replace("_", " "), list(flattened(value))))
    return found


def _machine(view: View) -> str:
    """Each host is watched by a recorder of its own, and the readings of one are here."""
    several = view.report.run.ranks > max(1, len(view.report.gpus))
    return "Hardware of one host" if several else "Hardware"


def hardware(view: View) -> list[tuple[str, str]]:
    """The machine, as far as it is known."""
    host = view.report.host
    kinds = Counter(_model(gpu) for gpu in view.report.gpus)
    found = [("GPU", f"{number} × {model}" if number > 1 else model) for model, number in kinds.items()]
    if not found and host.note:
        found.append(("GPU", host.note))
    newest = [each.readings[-1] for each in view.details.gpus.values() if each.readings]
    drivers = sorted({each.driver for each in newest if each.driver})
    found += [("driver", ", ".join(drivers))] if drivers else []
    found += [("CPU", fmt.plural(host.cores, "core", "cores"))] if host.cores else []
    return [*found, ("RAM", fmt.size(host.memory_total))] if host.memory_total else found


def _model(gpu: GpuRow) -> str:
    parts = [gpu.name or "unknown model", fmt.size(gpu.memory_total) if gpu.memory_total else ""]
    parts += [f"power limit {gpu.power_limit:.0f} W" if gpu.power_limit else "", "SIMULATED" if gpu.simulated else ""]
    return ", ".join(part for part in parts if part)


@dataclass
class Block:
    """Settings that belong together: their heading, and each with the rows that it takes."""

    heading: Row
    entries: list[list[Row]]


def flowed(blocks: list[Block], height: int) -> list[list[Row]]:
    """The blocks in columns of `height` rows; one that goes on in the next column has its heading there, too."""
    columns: list[list[Row]] = [[]]
    for block in blocks:
        heading = block.heading
        for index, entry in enumerate(block.entries):
            above: list[Row] = [heading] if index == 0 else []
            above = [[], *above] if above and columns[-1] else above
            if columns[-1] and len(columns[-1]) + len(above) + len(entry) > height:
                above = [[*heading, ("  continued", "muted")] if index else heading]
                columns.append([])
            columns[-1] += [*above, *entry]
    return columns


def beside(blocks: list[Block], width: int, across: int, height: int) -> list[Row]:
    """The blocks in as few columns as `height` rows need; where even `across` do not suffice, in pages of so many.

    A page is what is in sight: its columns are read to their ends before the next page below. A single column has none.
    """
    columns = flowed(blocks, height) if across > 1 else flowed(blocks, sys.maxsize)
    if len(columns) > across:
        columns = flowed(blocks, max(1, height - 1))  # and the rule below them
    rows: list[Row] = []
    for first in range(0, len(columns), across):
        rows += [[("─" * (across * width - GAP), "rule")]] if rows else []
        rows += _abreast(columns[first : first + across], width)
    return rows


def _abreast(columns: list[list[Row]], width: int) -> list[Row]:
    rows: list[Row] = []
    for y in range(max(map(len, columns), default=0)):
        row: Row = []
        for index, cells in enumerate(each[y] if y < len(each) else [] for each in columns):
            if cells:
                row += [(" " * (index * (width + GAP) - row_width(row)), "text"), *cut(cells, width)]
        rows.append(row)
    return rows


def names_width(names: Iterable[str], width: int) -> int:
    """Cells for the names of a block: what the longest needs, but never so much that its values had no place."""
    return min(max([NAMES, *map(text_width, names)]), max(width * 2 // 5, width - VALUES))


def setting(name: str, value: Row, width: int, names: int, limit: int) -> list[Row]:
    """A name, and beside it the value in at most `limit` rows."""
    indent = names + 4
    first, *others = wrap(value, width - 2 - indent, 0, limit)
    return [[(f"   {column(name, names)} ", "muted"), *first], *([(" " * indent, "text"), *row] for row in others)]


def since_before(view: View, look: Look, width: int) -> Block:
    """What is not as it was in the run that this one is measured by."""
    head: Row = [(" Changed since the previous run", "text bold")]
    before = view.earlier
    if before is None:
        return Block(head, [wrap([("   ", "text"), (_no_comparison(view, look), "muted")], width - 2, 3)])
    head.append((f"   {printable((before.id or before.name or '')[:80])}", "muted"))
    entries = []
    names = names_width((name for name, _, _ in before.changes), width)
    for name, old, new in before.changes:
        cells: Row = [(f"{_short(old)} ", "text"), ("→ ", "accent"), (_short(new), "text bold")]
        entries.append(setting(name, cells, width, names, 4))
    return Block(head, entries or [[[("   nothing that is known: settings, versions, hardware", "muted")]]])


def _no_comparison(view: View, look: Look) -> str:
    if look.replay:
        return "not told in a replay: `trainmon compare` sets two runs beside each other"
    enough = view.report.progress.steps_done >= ENOUGH
    return "no earlier run of this command fits" if enough else f"looked up once {ENOUGH} steps are done"


def _short(value: object) -> str:
    return "not given" if value is None else printable(str(value)[:300])


class Setup(Finder, Body):
    screen_name = "setup"
    title = "Setup"
    about = (
        "What the program told of itself when it began: its command, the arguments of the trainer, libraries and their"
        " versions, flags of torch, and the hardware; above them what differs from the last comparable run of the same"
        " command. Values that look like secrets never leave the program. / finds"
        " a setting by its name or value.",
    )

    def data(self, view: View, look: Look) -> object:
        known = view.earlier, look.replay, view.report.progress.steps_done >= ENOUGH
        return view.report.run, hardware(view), known, self.wanted, self.typing, self._away

    def aside(self, view: View, look: Look) -> Row:
        number = sum(len(rows) for _, rows in groups(view))
        return [(f"{number:,} facts", "muted")]

    def body(self, view: View, look: Look, width: int, height: int) -> list[Row]:
        line = self.line(width)
        head = [line] if line else []
        return [*head, *super().body(view, look, width, height - len(head))]

    def everything(self, view: View, look: Look, width: int) -> list[Row]:
        across = max(1, (width + GAP) // (LEAST_WIDTH + GAP))
        height = self.size.height - 1 - bool(self.line(width))
        rows = beside(self._blocks(view, look, width), width, 1, height)
        if len(rows) > height and across > 1:
            wide = (width - GAP * (across - 1)) // across
            rows = beside(self._blocks(view, look, wide), wide, across, height)
        if not rows:
            return [[("  no setting has this in its name or value", "muted")]]
        if not view.report.run.facts:
            rows += [[], [("  nothing in the program has told its settings (yet)", "muted")]]
        return rows

    def _blocks(self, view: View, look: Look, width: int) -> list[Block]:
        blocks: list[Block] = []
        for title, facts in groups(view):
            names = names_width((name for name, _ in facts), width)
            entries = [
                setting(name, [(printable(text[:2000]), "text")], width, names, 8)
                for name, text in facts
                if self.matches(name) or self.matches(text)
            ]
            if entries:
                blocks.append(Block([(f" {printable(title[:1].upper() + title[1:60])}", "text bold")], entries))
        before = [] if self.wanted else [since_before(view, look, width)]
        return [*blocks, *before] if look.replay else [*before, *blocks]  # a replay has nothing to say there


class SetupScreen(PageScreen):
    BINDINGS: ClassVar[list[BindingType]] = [*screen_bindings("setup")]

    def __init__(self) -> None:
        super().__init__(Setup())

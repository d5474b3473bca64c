"""The setup screen: command, settings, versions and hardware, as reported by the program."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from monitor import units
from monitor.model.report import GpuRow
from monitor.model.view import View
from monitor.tui.drawing.rows import Row, column, printable, side_by_side, text_width, wrap
from monitor.tui.panels.base import ViewOptions
from monitor.tui.screens.page import Body, Finder, screen

MAX_SETTING_DEPTH = 4
MIN_COMPARED_STEPS = 30  # steps from which on a run is compared with the previous one
MIN_NAMES_WIDTH = 24  # cells of the settings' names, at least
MIN_VALUE_WIDTH = 30  # cells that a long name leaves to its value, if there is room
MIN_BLOCK_WIDTH = 72  # cells of a column of settings: less cuts long names, and wraps most values
BLOCK_GAP = 2
# Facts that are shown above the others.
_FIRST = ("command", "cwd")
# Trainers report the epochs that result from the steps; `num_train_epochs` may be overridden by `max_steps`.
_NAMED = {"epochs": "planned epochs"}


def flattened(facts: dict[str, Any], prefix: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield every fact as name and text; nested facts have dotted names."""
    for key, value in facts.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and value and depth < MAX_SETTING_DEPTH:
            yield from flattened(value, f"{name}.", depth + 1)
        elif isinstance(value, list | tuple):
            yield name, ", ".join(str(item) for item in value) or "none"
        else:
            yield name, "–" if value is None else str(value)


def groups(view: View) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the facts in titled groups: a group for each mapping, one for all single facts."""
    run = view.report.run
    facts = {key: value for key, value in run.facts.table.items() if key not in _FIRST}
    single = {_NAMED.get(key, key): value for key, value in facts.items() if not isinstance(value, dict)}
    if single.get("cpus") == view.report.host.cores:
        single.pop("cpus", None)  # the hardware group has it
    command = run.command or run.facts.command
    head = (
        ("command", " ".join(map(str, command))), ("directory", run.facts.cwd or ""), ("run", run.id or ""),
        ("host", run.host or ""), ("ranks", f"{run.ranks:,}" if run.ranks else ""),
    )  # fmt: skip
    blocks = ("Run", [(name, value) for name, value in head if value]), (_machine(view), hardware(view))
    titled = [block for block in blocks if block[1]]
    if single:
        titled.append(("Facts", list(flattened(single))))
    for key, value in facts.items():
        if isinstance(value, dict) and value:
            titled.append((key.replace("_", " "), list(flattened(value))))
    return titled


def _machine(view: View) -> str:
    """Return the title of the hardware; with several hosts, only one host's readings are at hand."""
    several = view.report.run.ranks > max(1, len(view.report.gpus))
    return "Hardware of one host" if several else "Hardware"


def hardware(view: View) -> list[tuple[str, str]]:
    """Return the hardware as names and texts, as far as known."""
    host = view.report.host
    kinds = Counter(_model(gpu) for gpu in view.report.gpus)
    found = [("GPU", f"{number} × {model}" if number > 1 else model) for model, number in kinds.items()]
    if not found and host.note:
        found.append(("GPU", host.note))
    newest = [detail.readings[-1] for detail in view.details.gpus.values() if detail.readings]
    drivers = sorted({reading.driver for reading in newest if reading.driver})
    found += [("driver", ", ".join(drivers))] if drivers else []
    found += [("CPU", units.plural(host.cores, "core", "cores"))] if host.cores else []
    return [*found, ("RAM", units.size(host.memory_total))] if host.memory_total else found


def _model(gpu: GpuRow) -> str:
    parts = [gpu.name or "unknown model", units.size(gpu.memory_total) if gpu.memory_total else ""]
    parts += [f"power limit {gpu.power_limit:.0f} W" if gpu.power_limit else "", "SIMULATED" if gpu.simulated else ""]
    return ", ".join(part for part in parts if part)


@dataclass
class Block:
    """Settings that belong together: a heading, and the rows of each setting."""

    heading: Row
    entries: list[list[Row]]


def flowed(blocks: list[Block], height: int) -> list[list[Row]]:
    """Return the blocks in columns of `height` rows; a block that continues in the next column repeats its heading."""
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


def blocks_abreast(blocks: list[Block], width: int, across: int, height: int) -> list[Row]:
    """Return the blocks in as few columns as `height` rows need; more than `across` columns become pages.

    A page fits on the screen and is read to its end before the next page below. A single column has no pages.
    """
    columns = flowed(blocks, height) if across > 1 else flowed(blocks, sys.maxsize)
    if len(columns) > across:
        columns = flowed(blocks, max(1, height - 1))  # one row is for the rule below
    rows: list[Row] = []
    for first in range(0, len(columns), across):
        rows += [[("─" * (across * width - BLOCK_GAP), "rule")]] if rows else []
        rows += side_by_side(columns[first : first + across], width, BLOCK_GAP)
    return rows


def names_width(names: Iterable[str], width: int) -> int:
    """Return the cells for the names of a block: what the longest needs, limited so that values keep room."""
    return min(max([MIN_NAMES_WIDTH, *map(text_width, names)]), max(width * 2 // 5, width - MIN_VALUE_WIDTH))


def setting(name: str, value: Row, width: int, names: int, limit: int) -> list[Row]:
    """Return a name and its value beside it, in at most `limit` rows."""
    indent = names + 4
    first, *others = wrap(value, width - 2 - indent, 0, limit)
    return [[(f"   {column(name, names)} ", "muted"), *first], *([(" " * indent, "text"), *row] for row in others)]


def since_before(view: View, options: ViewOptions, width: int) -> Block:
    """Return the changes since the previous comparable run."""
    head: Row = [(" Changed since the previous run", "text bold")]
    before = view.previous_run
    if before is None:
        return Block(head, [wrap([("   ", "text"), (_no_comparison(view, options), "muted")], width - 2, 3)])
    head.append((f"   {printable((before.id or before.name or '')[:80])}", "muted"))
    entries = []
    names = names_width((name for name, _, _ in before.changes), width)
    for name, old, new in before.changes:
        cells: Row = [(f"{_short(old)} ", "text"), ("→ ", "accent"), (_short(new), "text bold")]
        entries.append(setting(name, cells, width, names, 4))
    return Block(head, entries or [[[("   no known change (settings, versions, hardware)", "muted")]]])


def _no_comparison(view: View, options: ViewOptions) -> str:
    if options.replay:
        return "not available in a replay (see `trainmon compare`)"
    has_steps = view.report.progress.steps_done >= MIN_COMPARED_STEPS
    return "no comparable earlier run of this command" if has_steps else f"available after {MIN_COMPARED_STEPS} steps"


def _short(value: object) -> str:
    return "not set" if value is None else printable(str(value)[:300])


@screen
class Setup(Finder, Body):
    screen_name = "setup"
    title = "Setup"
    about = (
        "Command, trainer arguments, library versions, torch flags and hardware, as reported at the start of the run;"
        " above them the changes since the last comparable run of the same command. Values that look like secrets never"
        " leave the program. / finds a setting by name or value.",
    )

    def data(self, view: View, options: ViewOptions) -> object:
        known = view.previous_run, options.replay, view.report.progress.steps_done >= MIN_COMPARED_STEPS
        return view.report.run, hardware(view), known, self.search_text, self.typing, self._away

    def aside(self, view: View, options: ViewOptions) -> Row:
        number = sum(len(rows) for _, rows in groups(view))
        return [(f"{number:,} facts", "muted")]

    def body(self, view: View, options: ViewOptions, width: int, height: int) -> list[Row]:
        line = self.line(width)
        head = [line] if line else []
        return [*head, *super().body(view, options, width, height - len(head))]

    def everything(self, view: View, options: ViewOptions, width: int) -> list[Row]:
        across = max(1, (width + BLOCK_GAP) // (MIN_BLOCK_WIDTH + BLOCK_GAP))
        height = self.size.height - 1 - bool(self.line(width))
        rows = blocks_abreast(self._blocks(view, options, width), width, 1, height)
        if len(rows) > height and across > 1:
            wide = (width - BLOCK_GAP * (across - 1)) // across
            rows = blocks_abreast(self._blocks(view, options, wide), wide, across, height)
        if not rows:
            return [[("  no matching setting", "muted")]]
        if not view.report.run.facts.table:
            rows += [[], [("  no settings reported yet", "muted")]]
        return rows

    def _blocks(self, view: View, options: ViewOptions, width: int) -> list[Block]:
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
        before = [] if self.search_text else [since_before(view, options, width)]
        return [*blocks, *before] if options.replay else [*before, *blocks]  # not available in a replay

"""Lines in, readings out: every line goes through the matchers in one order. Pure.

What a line means may depend on the lines before it: an open block or table, and the ranks that were seen.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from monitor.console import bars, dicts, labels, pairs, place, prefixes
from monitor.console.blocks import Block
from monitor.console.columns import Columns
from monitor.console.heads import Heads, head
from monitor.console.patterns import read_pattern
from monitor.console.reading import MORE_THAN_ALL, Reading
from monitor.console.tables import Table
from monitor.console.terminal import Line

REACH = 4096  # characters of a line that are looked at; all of it where it is in braces
_DIGIT = re.compile(r"[0-9]")
_NONFINITE = re.compile(r"\b(?:nan|NaN|NAN|[Ii]nf(?:inity)?|INF)\b")


@dataclass(slots=True)
class Reader:
    """Reads a program's lines."""

    patterns: tuple[re.Pattern[str], ...] = ()
    lead: int | None = None  # the lowest rank that told of steps: its lines count
    foreign: int = 0  # lines of other ranks, left out
    _bare_ranks: bool = False  # `0: ` before a line has been seen to be a rank
    _block: Block = field(default_factory=Block)
    _table: Table = field(default_factory=Table)
    _columns: Columns = field(default_factory=Columns)
    _heads: Heads = field(default_factory=Heads)
    _last: Line | None = None

    def read(self, line: Line) -> list[Reading]:
        """What this line says; also what lines before it said, where this one ends it."""
        out = self._read(line)
        for reading in out:
            reading.number = reading.number or line.number
            reading.row = line.row
        return [told for reading in out for told in self._heads.take(reading)]

    @property
    def occupied(self) -> bool:
        """Whether the last line belongs to a block or a table that is still open."""
        return self._block.open is not None or self._table.open or self._heads.waiting

    def finish(self) -> list[Reading]:
        """What was open when the output ended."""
        ended = [self._block.end() if self._block.open is not None else None, self._table.end()]
        out = [each for each in ended if each is not None]
        for reading in out:
            reading.number = self._last.number if self._last is not None else 0
        return self._heads.release() + out

    def _read(self, line: Line) -> list[Reading]:
        self._last = line
        text = line.text
        out: list[Reading] = []
        if self._block.open is not None:
            if line.frame and not text.strip():
                return out
            if self._block.take(prefixes.wall(prefixes.rank(text[:REACH])[1])[1]):
                return out
            ended = self._block.end()
            if ended is not None:
                out.append(ended)
        if not _DIGIT.search(text) and not _NONFINITE.search(text) and not _looks_like_a_row(text):
            self._end_table(out)
            self._columns.begin(prefixes.wall(text[:REACH])[1])
            return out
        own = self.patterns and self._own(text)
        found = own if own else self._lines_of_lead(text)
        out += found
        return out

    def _own(self, text: str) -> list[Reading]:
        found = read_pattern(text, self.patterns)
        if found is None:
            return []
        found.wall = prefixes.wall(text[:REACH])[0]
        return [found]

    def _lines_of_lead(self, text: str) -> list[Reading]:
        """Read a line, if it is one of the rank that is followed."""
        rank, text = prefixes.rank(text)
        bare, stripped = prefixes.bare_rank(text) if rank is None else (None, text)
        if bare is not None:
            found = self._parse(stripped)
            stepped = any(each.step is not None for each in found)
            if stepped or self._bare_ranks:
                self._bare_ranks = True
                return self._of(bare, found)
            return self._parse(text)
        return self._of(rank, self._parse(text))

    def _of(self, rank: int | None, found: list[Reading]) -> list[Reading]:
        if rank is None or not found:
            return found
        if (self.lead is None or rank < self.lead) and any(each.step is not None for each in found):
            self.lead = rank
        if rank != (self.lead if self.lead is not None else 0):
            self.foreign += 1
            return []
        for each in found:
            each.rank = rank
        return found

    def _parse(self, text: str) -> list[Reading]:
        wall, text = prefixes.wall(text)
        out: list[Reading] = []
        in_table, done = self._table.take(text[:REACH])
        if not in_table:
            self._match(text, out)
        for each in out:
            each.wall = each.wall if wall is None else wall
        if done is not None:
            out.insert(0, done)
        for each in out:
            place.settle(each)
        return [each for each in out if each.useful or each.reason or each.impossible or each.block or each.shares]

    def _match(self, text: str, out: list[Reading]) -> None:
        if "{" in text:
            logged = Reading("metrics")
            if dicts.read_dict(text, logged):
                before = text[: text.find("{")][:REACH]
                labels.read_labels(before, logged) if logged.step is None else None
                logged.family = "step" if logged.step is not None else "metrics"
                bar = bars.read_bar(before) if before.strip() else None
                out += [bar[0]] if bar is not None else []
                out.append(logged)
                return
        text = text[:REACH]
        row = Reading("metrics")
        if self._columns.begin(text):
            return
        if self._columns.row(text, row):
            row.family = "step" if row.step is not None else "epoch"
            out.append(row)
            return
        drawn = bars.read_bar(text)
        if drawn is not None:
            self._bar(drawn, out)
            return
        skipped = Reading("skip")
        if labels.read_skip(text, skipped):
            out.append(skipped)
            return
        block = self._block.begin(text)
        if block is not None:
            out.append(block)
        if block is None and self._block.open is None:
            told = _plain(text)
            if told.metrics and told.step is None and told.epoch is None:
                told.head = head(text)
            out.append(told)
            if (shares := pairs.read_shares(text)) > MORE_THAN_ALL:
                out.append(Reading("phases", shares=shares))

    def _bar(self, drawn: tuple[Reading, str, str], out: list[Reading]) -> None:
        """A bar, what is written on it, and what shares its line."""
        bar, before, after = drawn
        beside = Reading("bar")
        if self._columns.row(before.rstrip(" :"), beside):  # a row of figures is drawn again with each frame of its bar
            bar.label, bar.key, bar.per_epoch = "training", "bar training", True
            bar.metrics.update(beside.metrics)
            before = ""
        rest = labels.read_labels(before[-REACH:], beside)
        pairs.read_pairs(rest, bar)
        bar.epoch, bar.epochs = beside.epoch, beside.epochs
        if bar.epoch is not None and not bars.counts_epochs(bar):
            bar.per_epoch = True
        elapsed, bar.elapsed = bar.elapsed, None
        if "{" in after and dicts.read_dict(after, bar):
            after = after[: after.find("{")]
        also = _plain(after) if after.strip(" |") else None
        if also is not None and also.step is None and also.reason is None:
            bar.metrics.update({key: value for key, value in also.metrics.items() if key not in bar.metrics})
            for each in ("epoch", "tokens_rate", "samples_rate", "tokens_total", "samples_total"):
                if getattr(bar, each) is None:
                    setattr(bar, each, getattr(also, each))
            bar.impossible += also.impossible
            also = None
        bar.elapsed = elapsed
        out.append(bar)
        if also is not None:
            out.append(also)

    def _end_table(self, out: list[Reading]) -> None:
        done = self._table.end()
        if done is not None:
            out.append(done)


def _looks_like_a_row(text: str) -> bool:
    return text.lstrip()[:1] in ("|", "│", "┃", "║", "┏", "┡", "├", "+") and bool(text.strip())


def _plain(text: str) -> Reading:
    """A line of words and figures. Without a step it counts only if it speaks of training."""
    reading = Reading("metrics")
    if not place.tells(text):
        probe = labels.read_labels(text, reading)
        if reading.step is None and reading.epoch is None and reading.total is None:
            return Reading("metrics")
        if reading.mention or (reading.step is None and reading.epoch is None):
            return reading  # of a configuration that is printed only the total counts
    else:
        probe = labels.read_labels(text, reading)
    pairs.read_pairs(bars.strip_bar(probe), reading)
    if reading.step is not None:
        reading.family = "step"
        # `Step 1: load the data` is prose; a position comes with its total, with figures, or alone.
        alone = not re.search(r"[A-Za-z]", probe)
        told = reading.metrics or reading.phases or reading.tokens_rate is not None or reading.seconds is not None
        if reading.key != "pattern" and reading.total is None and not told and not alone:
            reading.step, reading.family = None, "metrics"
    elif reading.epoch is not None:
        reading.family = "epoch"
    return reading

"""What is fed, and what must hold whatever it is fed: no exception, nothing unprintable, nothing without end."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Protocol

from monitor.console.log_parser import LogParser
from monitor.model.comparison.compare import Side, compare_runs
from monitor.reports import card, comparison, html_report, report_json, run_summary, run_text, runs_table
from monitor.reports.log_lines import as_mapping, row, summary_text
from monitor.runs import catalogue
from monitor.runs.follow import load
from monitor.sources.console_lines import Lines
from monitor.sources.decode import UNKNOWN_KIND, decode
from monitor.sources.journal_reader import Sequencer
from tests.fuzz import inputs
from trainhooks.protocol.events import Event
from trainhooks.protocol.limits import MAX_INTEGER, MAX_METRICS, MAX_TEXT

# C0 but for the end of a line, DEL, C1, and what turns text around.
CONTROL = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


class Target(Protocol):
    """Takes inputs one by one. `make` and `check` share nothing, so a failing input can be fed again."""

    name: str
    share: float  # of all inputs
    holds: int  # inputs in what one `make` gives

    def make(self, dice: Random) -> Any: ...

    def check(self, given: Any) -> None:
        """
        Raises:
            Exception: something does not hold.
        """


def clean_text(shown: str) -> None:
    found = CONTROL.search(shown)
    assert found is None, f"{found.group()!r} in {shown[max(0, found.start() - 40) : found.end() + 40]!r}"


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield key
            yield from leaves(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from leaves(each)
    else:
        yield value


class Decoder:
    """One line through the gate."""

    name, share, holds = "decode", 0.70, 1

    def make(self, dice: Random) -> bytes:
        return inputs.line(dice)

    def check(self, given: bytes) -> None:
        event = decode(given)
        if event is None or event is UNKNOWN_KIND:
            return
        assert isinstance(event, Event)
        for each in leaves([getattr(event, field) for field in event.__dict__]):
            if isinstance(each, str):
                assert len(each) <= MAX_TEXT
                clean_text(each)
                assert "\n" not in each
            elif isinstance(each, float):
                assert math.isfinite(each)
            elif isinstance(each, int):
                assert abs(each) <= MAX_INTEGER


class Journals:
    """Lines of several producers, torn, doubled and mixed, as a run that is read, reported on, listed and compared."""

    name, share, holds = "journals", 0.06, 40

    def __init__(self) -> None:
        self._keeps = tempfile.TemporaryDirectory(prefix="trainmon-fuzz-")
        self._home = Path(self._keeps.name)

    def make(self, dice: Random) -> dict[str, bytes]:
        return files(dice, self.holds)

    def laid(self, given: dict[str, bytes]) -> Path:
        """The directory of the run that these files make."""
        run = self._home / "run"
        shutil.rmtree(run, ignore_errors=True)
        run.mkdir()
        for name, data in given.items():
            (run / name).write_bytes(data)
        return run

    def check(self, given: dict[str, bytes]) -> None:
        run = self.laid(given)
        view = load(run)
        report = view.report
        for shown in (
            run_text.text(report),
            run_text.markdown(report),
            card.text(view),
            html_report.page(view),
            run_summary.short(view),
            run_summary.screen(view),
            report_json.as_json(report),
        ):
            clean_text(shown)
        entry = catalogue.entry(run)
        clean_text(runs_table.listing([entry], 200) + runs_table.standing(entry))
        same = compare_runs(Side(report, view.loop), Side(report, view.loop))
        clean_text(comparison.text(same) + comparison.text(same, markdown=True))
        json.dumps(comparison.mapping([same]), allow_nan=False)
        assert len(report.metrics) <= MAX_METRICS + 1
        catalogue.processes(run)


_IDENTITY: dict[str, Any] = {
    "id": "a", "name": "n", "host": "h", "started": 1.7e9, "started_monotonic": 5.0, "boot_id": "b",
    "command": ["a", "b"], "cwd": "/x", "version": "0", "launched": True, "named": True, "price": 2.0,
    "expect_tps": 10.0, "tags": {"a": "b"}, "imported": False, "imported_at": 1.7e9, "pid": 1, "start_ticks": 5,
}  # fmt: skip
_ENDING = {"exit_code": 0, "signal": None, "ended_monotonic": 9.0}


def files(dice: Random, lines: int) -> dict[str, bytes]:
    """The files of a run: a journal that hangs together or one of single lines, torn at its end now and then."""
    rows = [inputs.line(dice) for _ in range(lines // 4)]
    rows = [*inputs.told(dice, lines - len(rows)), *rows]
    if dice.random() < 0.3:
        dice.shuffle(rows)
    torn = b"\n".join(rows)[: dice.choice((None, None, -7))]
    ending = inputs.mapping(dice, _ENDING) if dice.random() < 0.5 else {}
    return {
        "rank-0-p.jsonl": torn + dice.choice((b"\n", b"", b"\n" + dice.choice(rows) * 2)),
        "console-h.jsonl": b"\n".join(dice.sample(rows, 5)) + b"\n",
        "run.json": json.dumps(inputs.mapping(dice, _IDENTITY)).encode("utf-8", "surrogatepass"),
        "exit.json": json.dumps(ending).encode("utf-8", "surrogatepass") if dice.random() < 0.7 else b"{",
        "console.log": inputs.output(dice),
    }


class Printed:
    """A program's output, cut anywhere: what is read from it, shown of it, and told by it."""

    name, share, holds = "console", 0.22, 1

    def __init__(self) -> None:
        self._survey, self._lines, self._fed = LogParser(), Lines(), 0

    def make(self, dice: Random) -> bytes:
        return inputs.output(dice)

    def check(self, given: bytes) -> None:
        if self._fed % 5000 == 0:
            clean_text(summary_text(self._survey.summary, "config"))
            self._survey, self._lines = LogParser(), Lines()
        self._fed += 1
        readings, events = self._survey.feed(given)
        for reading in readings:
            clean_text(row(reading))
            json.dumps(as_mapping(reading), allow_nan=False)
        for event in events:
            clean_text(
                str([getattr(event, field) for field in ("text", "name", "reason", "role") if hasattr(event, field)])
            )
        self._lines.feed(given)
        shown, _ = self._lines.newest()
        clean_text(shown[-1] if shown else "")


class Order:
    """Events of few producers in any order, with gaps and repeats: each comes out once, rising."""

    name, share, holds = "sequence", 0.02, 30

    def __init__(self) -> None:
        self._note = next(event for event in (decode(line) for line in inputs.LINES) if isinstance(event, Event))

    def make(self, dice: Random) -> list[tuple[str, int]]:
        return [(dice.choice("ab"), dice.choice((dice.randrange(20), 2**53))) for _ in range(30)]

    def check(self, given: list[tuple[str, int]]) -> None:
        sequencer, out = Sequencer(), []
        for producer, seq in given:
            out += sequencer.push(dataclasses.replace(self._note, producer=producer, seq=seq))
        out += sequencer.release_waiting()
        for producer in "ab":
            told = [event.seq for event in out if event.producer == producer]
            assert told == sorted(set(told))
            assert set(told) <= {seq for who, seq in given if who == producer}


TARGETS: tuple[type[Any], ...] = (Decoder, Journals, Printed, Order)

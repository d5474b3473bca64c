"""Steps as a table, one row a step: CSV with the standard library, Parquet where pyarrow is installed."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from monitor.errors import UserError
from monitor.exporters.events import events, steps
from trainhooks.events import Hello, Metrics, Step

FIXED = (
    "rank", "step", "start", "seconds", "status", "reason", "role", "stage", "epoch", "tokens", "padded_tokens",
    "samples", "thread",
)  # fmt: skip
FORMULA = tuple("=+-@＝＋－＠")  # how a formula begins, in the wide forms of East Asian spreadsheets, too


def write_csv(run: Path, target: IO[bytes]) -> int:
    """One row a step; seconds of each phase as `phase.NAME`, metrics as `metric.NAME`. Returns the rows."""
    columns, late = _first_look(run)
    text = io.TextIOWrapper(target, encoding="utf-8", newline="", write_through=True)
    # A run that lives may have got a new metric since the first look: it has no column then.
    writer = csv.DictWriter(text, columns, restval="", extrasaction="ignore")
    writer.writeheader()
    count = 0
    for row in _rows(run, late):
        # A text that begins like a formula is run as one by spreadsheets.
        writer.writerow({name: _harmless(value) for name, value in row.items() if value is not None})
        count += 1
    text.detach()
    return count


def write_parquet(run: Path, target: IO[bytes]) -> int:
    """As `write_csv`, with typed columns.

    Raises:
        UserError: pyarrow is not installed.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise UserError("Parquet needs pyarrow: pip install pyarrow (or use --format csv)") from None
    columns, late = _first_look(run)
    rows: list[dict[str, Any]] = [{name: row.get(name) for name in columns} for row in _rows(run, late)]
    for row in rows:
        for name in columns[len(FIXED) :]:  # "nan" and "inf" are numbers again
            value = row[name]
            row[name] = None if value is None else float(value)
    texts = {"status", "reason", "role", "stage", "thread"}
    whole = {"rank", "step", "tokens", "padded_tokens", "samples"}
    kinds = {**dict.fromkeys(texts, pyarrow.string()), **dict.fromkeys(whole, pyarrow.int64())}
    schema = pyarrow.schema([(name, kinds.get(name, pyarrow.float64())) for name in columns])
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), target)
    return len(rows)


Late = dict[tuple[str, int], dict[str, Any]]  # metrics logged apart from their step, by producer and step


def _first_look(run: Path) -> tuple[list[str], Late]:
    """The columns that the run needs, and the metrics that were logged between steps."""
    phases: dict[str, None] = {}
    metrics: dict[str, None] = {}
    late: Late = {}
    newest: dict[str, int] = {}
    for _, event in events(run):
        if isinstance(event, Step):
            newest[event.producer] = event.index
            phases.update((f"phase.{name}", None) for name, *_ in event.phases)
            metrics.update((f"metric.{name}", None) for name in event.metrics)
        elif isinstance(event, Metrics):
            step = event.step if event.step is not None else newest.get(event.producer, 0)
            late.setdefault((event.producer, step), {}).update(event.values)
            metrics.update((f"metric.{name}", None) for name in event.values)
    return [*FIXED, *phases, *metrics], late


def _rows(run: Path, late: Late) -> Iterator[dict[str, Any]]:
    for hello, step in steps(run):
        row = _row(hello, step)
        logged = late.get((step.producer, step.index), {})
        row.update((f"metric.{name}", value) for name, value in logged.items())
        yield row


def _row(hello: Hello | None, step: Step) -> dict[str, Any]:
    offset = hello.wall - hello.t if hello is not None and hello.wall else None
    row: dict[str, Any] = {
        "rank": hello.rank if hello is not None else None,
        "step": step.index,
        "start": step.start + offset if offset is not None else None,  # Unix seconds
        "seconds": step.duration,
        "status": step.status,
        "reason": step.reason,
        "role": step.role,
        "stage": step.stage,
        "epoch": None if step.epoch is None else float(step.epoch),
        "tokens": step.tokens,
        "padded_tokens": step.padded_tokens,
        "samples": step.samples,
        "thread": step.thread,
    }
    for name, seconds, _, _ in step.phases:
        row[f"phase.{name}"] = row.get(f"phase.{name}", 0.0) + seconds
    row.update((f"metric.{name}", value) for name, value in step.metrics.items())
    return row


def _harmless(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value[:1] in FORMULA and not _is_number(value) else value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True

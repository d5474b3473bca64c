"""`trainmon export`: a run as JSON Lines, CSV, Parquet (with pyarrow) or Chrome trace."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from monitor.errors import UserError
from monitor.sources.decode import decode_numbered
from monitor.sources.journal_reader import JournalTail, Sequencer
from monitor.sources.step_lines import single_events, single_step_lines
from trainhooks.protocol import rundir
from trainhooks.protocol.events import Event, Hello, Metrics, Note, Span, Step
from trainhooks.protocol.limits import escape

# The events in the journals of a run, up to their current ends.


def lines(run: Path) -> Iterator[bytes]:
    """Yield every complete line of every journal, unchanged; lines above the size limit are truncated."""
    for path in rundir.journals(run):
        tail = JournalTail(path)
        while batch := tail.read():
            yield from batch


def events(run: Path) -> Iterator[tuple[Hello | None, Event]]:
    """Yield each valid event once, in its producer's order, with its producer's hello; None if that is missing."""
    hellos: dict[str, Hello] = {}
    for event in _in_order(lines(run)):
        if isinstance(event, Hello):
            hellos.setdefault(event.producer, event)
        yield hellos.get(event.producer), event


def _in_order(lines: Iterable[bytes]) -> Iterator[Event]:
    """Yield each event once: concatenated journals may repeat events, which producer and number identify."""
    sequencer = Sequencer()
    for line in lines:
        event = decode_numbered(line)
        if isinstance(event, Event):
            yield from single_events(sequencer.push(event))
    yield from single_events(sequencer.release_waiting())


def steps(run: Path) -> Iterator[tuple[Hello | None, Step]]:
    """Yield each step with its producer's hello."""
    for hello, event in events(run):
        if isinstance(event, Step):
            yield hello, event


# Steps, their phases and spans as a Chrome trace: for chrome://tracing, Perfetto, speedscope.

MICROSECONDS = 1e6


def write(run: Path, target: IO[bytes]) -> int:
    """Write the trace; return the number of its events.

    A step event has the total time of each phase, not when it ran: the phases are placed one after the other, in the
    order in which they were first entered, with time in no phase at the end.
    """
    count = 0
    target.write(b'{"displayTimeUnit":"ms","traceEvents":[')
    for hello, event in events(run):
        for row in _trace_rows(hello, event):
            target.write((b",\n" if count else b"\n") + json.dumps(row).encode())
            count += 1
    target.write(b"\n]}\n")
    return count


def _trace_rows(hello: Hello | None, event: object) -> list[dict[str, Any]]:
    rank = hello.rank if hello is not None else 0
    if isinstance(event, Hello):
        name = f"rank {event.rank}" if event.source != "recorder" else f"recorder on {event.host}"
        return [{"ph": "M", "name": "process_name", "pid": event.rank, "tid": 0, "args": {"name": name}}]
    if isinstance(event, Step):
        return _step(rank, event)
    if isinstance(event, Span):
        return [_slice(rank, event.thread or "spans", event.name, event.start, event.duration)]
    if isinstance(event, Note):
        return [{"ph": "i", "s": "p", "name": event.text, "pid": rank, "tid": "notes", "ts": event.t * MICROSECONDS}]
    return []


def _step(rank: int, step: Step) -> list[dict[str, Any]]:
    thread = step.thread or "steps"
    row = _slice(rank, thread, f"step {step.index}", step.start, step.duration)
    row["args"] = {"status": step.status, "tokens": step.tokens, **step.metrics}
    rows = [row]
    at = step.start
    for name, seconds, _, _ in step.phases:
        rows.append(_slice(rank, thread, name, at, seconds))
        at += seconds
    return rows


def _slice(rank: int, thread: str, name: str, start: float, seconds: float) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": name,
        "pid": rank,
        "tid": thread,
        "ts": start * MICROSECONDS,
        "dur": seconds * MICROSECONDS,
    }


FIXED_COLUMNS = (
    "rank", "step", "start", "seconds", "status", "reason", "role", "stage", "epoch", "tokens", "padded_tokens",
    "samples", "thread",
)  # fmt: skip
FORMULA = tuple("=+-@＝＋－＠")  # first characters of a formula in spreadsheets, full-width forms included


def write_csv(run: Path, target: IO[bytes]) -> int:
    """Write a row per step, with seconds of phases as `phase.NAME`, metrics as `metric.NAME`; return the row count."""
    columns, late = _columns(run)
    text = io.TextIOWrapper(target, encoding="utf-8", newline="", write_through=True)
    # A metric that a running run logs for the first time after the columns were read is left out.
    writer = csv.DictWriter(text, columns, restval="", extrasaction="ignore")
    writer.writeheader()
    count = 0
    for row in _table_rows(run, late):
        # Spreadsheets would run text that begins like a formula.
        writer.writerow({name: _without_formula(value) for name, value in row.items() if value is not None})
        count += 1
    text.detach()
    return count


def write_parquet(run: Path, target: IO[bytes]) -> int:
    """Write the table of `write_csv` with typed columns; return the row count.

    Raises:
        UserError: pyarrow is not installed.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise UserError("Parquet needs pyarrow: pip install pyarrow (or use --format csv)") from None
    columns, late = _columns(run)
    rows: list[dict[str, Any]] = [{name: row.get(name) for name in columns} for row in _table_rows(run, late)]
    for row in rows:
        for name in columns[len(FIXED_COLUMNS) :]:  # "nan" and "inf" become numbers
            value = row[name]
            row[name] = None if value is None else float(value)
    texts = {"status", "reason", "role", "stage", "thread"}
    whole = {"rank", "step", "tokens", "padded_tokens", "samples"}
    kinds = {**dict.fromkeys(texts, pyarrow.string()), **dict.fromkeys(whole, pyarrow.int64())}
    schema = pyarrow.schema([(name, kinds.get(name, pyarrow.float64())) for name in columns])
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), target)
    return len(rows)


LateMetrics = dict[tuple[str, int], dict[str, Any]]  # metrics logged apart from their step, by producer and step


def _columns(run: Path) -> tuple[list[str], LateMetrics]:
    """Return the columns of a run, and the metrics that were logged between steps."""
    phases: dict[str, None] = {}
    metrics: dict[str, None] = {}
    late: LateMetrics = {}
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
    return [*FIXED_COLUMNS, *phases, *metrics], late


def _table_rows(run: Path, late: LateMetrics) -> Iterator[dict[str, Any]]:
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


def _without_formula(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value[:1] in FORMULA and not _is_number(value) else value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def write_jsonl(run: Path, target: IO[bytes]) -> int:
    """Write the journals' lines, one journal after the other, each step on a line of its own; return their number."""
    count = 0
    for line in lines(run):
        for single in single_step_lines(line):
            target.write(single + b"\n")
            count += 1
    return count


def show_jsonl(run: Path, target: IO[bytes]) -> int:
    """Write the lines for a terminal, with control characters and invalid bytes escaped; return their number."""
    count = 0
    for line in lines(run):
        for single in single_step_lines(line):
            target.write(escape(single.decode("utf-8", "backslashreplace")).encode() + b"\n")
            count += 1
    return count


FORMATS: dict[str, Callable[[Path, IO[bytes]], int]] = {
    "jsonl": write_jsonl,
    "csv": write_csv,
    "parquet": write_parquet,
    "chrome": write,
}

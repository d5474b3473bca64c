"""Files that trackers and trainers write, as lines of JSON which `console` reads as it reads any log.

TensorBoard's event files, offline runs of W&B, `trainer_state.json` of HF Trainer, torchtitan's records of a rank. A
row is of one step: `step`, `timestamp` (Unix time) where it is known, and numbers by their names. Every length that
stands in a file is checked before so much is read. A file that ends in the middle of a record is read up to there.
"""

from __future__ import annotations

import io
import json
import math
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from monitor.errors import UserError

MAX_RECORD = 4 << 20  # bytes: images and graphs are larger, rows of numbers are not
MAX_STATE = 256 << 20  # bytes of a `trainer_state.json`, which is read whole
MAX_LINE = 1 << 20  # bytes of a record of torchtitan; it cuts messages at 1,000 characters
MAX_NAMES = 200  # in a row, as in a line of a log
MAX_DEPTH = 4  # of mappings in a row of W&B
HEAD = 4096  # bytes by which a file is recognized
# W&B counts calls of its own where the program gives no step; what the program logged as its step says more.
STEPS = ("trainer/global_step", "train/global_step", "global_step", "step", "_step")

Row = dict[str, Any]
Values = list[tuple[str, float]]


class BadRecord(ValueError):
    """A record that is not what its file's format says."""


def as_lines(source: Path) -> BinaryIO | None:
    """Return the rows of a file, or of a folder of such files, as lines of JSON; None where it is no such file.

    Raises:
        UserError: a record of it is broken, or it holds no numbers.
        OSError: it cannot be read.
    """
    files = _files_in(source) if source.is_dir() else [source]
    read = _reader(files[0]) if files else None
    if read is None:
        return None
    lines = tempfile.TemporaryFile()  # noqa: SIM115 - for the caller
    try:
        for file in files:
            with open(file, "rb") as opened:
                for row in read(opened):
                    lines.write(json.dumps(row).encode() + b"\n")
        if not lines.tell():
            raise UserError(f"{source}: it holds no numbers of a training")
    except (BadRecord, UserError, RecursionError, OverflowError) as error:
        lines.close()
        raise error if isinstance(error, UserError) else UserError(f"{files[0]}: it is broken: {error}") from None
    lines.seek(0)
    return lines


def _files_in(folder: Path) -> list[Path]:
    """Return the files of one training in a folder: TensorBoard begins a file at each start; of ranks, the first."""
    for pattern, most in (("*tfevents*", None), ("*.wandb", 1), ("trainer_state.json", 1), ("*global_rank_*.jsonl", 1)):
        if found := sorted(folder.glob(pattern)):
            return found[:most]
    return []


def _reader(file: Path) -> Callable[[BinaryIO], Iterator[Row]] | None:
    with open(file, "rb") as opened:
        head = opened.read(HEAD)
    if head.startswith(b":W&B"):
        return _wandb
    if len(head) >= 12 and _masked_checksum(head[:8]) == struct.unpack_from("<I", head, 8)[0]:
        return _tensorboard
    if head.lstrip().startswith(b"{"):
        if b'"log_history"' in head:
            return _trainer_state
        first = head.partition(b"\n")[0]
        return _torchtitan if b'"log_type_name"' in first and b'"time_us"' in first else None
    return None


# The formats


def _tensorboard(file: BinaryIO) -> Iterator[Row]:
    """Yield the scalars of an event file: records of TensorFlow, each with an event in it."""
    row: Row = {}
    for record in _tensorflow_records(file):
        event = _fields(record)
        step, wall = _signed(event.get(2, [0])[-1]), _double(event.get(1, [0])[-1])
        for summary in event.get(5, []):
            for value in _fields(_bytes(summary)).get(1, []):
                fields = _fields(_bytes(value))
                number = _scalar(fields)
                if number is None or 1 not in fields:
                    continue
                if row and row["step"] != step:
                    yield row
                    row = {}
                row = row or {"step": step, "timestamp": wall}
                if len(row) < MAX_NAMES:
                    row[_text(fields[1][-1])] = number
    if row:
        yield row


def _tensorflow_records(file: BinaryIO) -> Iterator[bytes]:
    while len(head := file.read(12)) == 12:
        (length, checksum) = struct.unpack("<QI", head)
        if _masked_checksum(head[:8]) != checksum:
            raise BadRecord(f"no record at byte {file.tell() - 12:,}")
        if length > MAX_RECORD:
            if length > 1 << 40:
                raise BadRecord(f"a record of {length:,} bytes")
            file.seek(length + 4, io.SEEK_CUR)
            continue
        record = file.read(length)
        if len(record) < length or len(file.read(4)) < 4:
            return
        yield record


def _scalar(value: dict[int, list[Any]]) -> float | None:
    """Return the number of a `Summary.Value`, as torch writes it, or as a tensor, as TensorFlow does."""
    if 2 in value and isinstance(value[2][-1], bytes) and len(value[2][-1]) == 4:
        return float(struct.unpack("<f", value[2][-1])[0])
    if 8 not in value:
        return None
    tensor = _fields(_bytes(value[8][-1]))
    if 2 in tensor and _fields(_bytes(tensor[2][-1])):  # it has dimensions
        return None
    form = {1: "<f", 2: "<d"}.get(tensor.get(1, [0])[-1])
    data = next((each[-1] for each in (tensor.get(4), tensor.get(5), tensor.get(6)) if each), None)
    if form is None or not isinstance(data, bytes) or len(data) != struct.calcsize(form):
        return None
    return float(struct.unpack(form, data)[0])


def _wandb(file: BinaryIO) -> Iterator[Row]:
    """Yield the history of an offline run: records of LevelDB's log, in blocks of 32 KiB."""
    for record in _leveldb_records(file):
        for history in _fields(record).get(2, []):
            numbers: Values = []
            for item in _fields(_bytes(history)).get(1, []):
                fields = _fields(_bytes(item))
                parts = fields.get(2) or fields.get(1, [])
                try:
                    _flatten("/".join(map(_text, parts)), json.loads(fields.get(16, [b"null"])[-1]), numbers)
                except (ValueError, TypeError):
                    raise BadRecord("a value that is no JSON") from None
            known = dict(numbers)
            step = next((known[name] for name in STEPS if name in known), None)
            names = {name: value for name, value in known.items() if name not in STEPS and not name.startswith("_")}
            if step is not None and names:
                yield {"step": _whole(step), **_moment(known.get("_timestamp")), **names}


def _leveldb_records(file: BinaryIO) -> Iterator[bytes]:
    size, block = 7, 32768
    if len(file.read(size)) < size:
        return
    record = b""
    while True:
        if (left := block - file.tell() % block) < size:
            file.seek(left, io.SEEK_CUR)  # padding
        head = file.read(size)
        if len(head) < size:
            return
        _, length, kind = struct.unpack("<IHB", head)
        if kind not in (1, 2, 3, 4) or length > block:
            raise BadRecord(f"no record at byte {file.tell() - size:,}")
        data = file.read(length)
        if len(data) < length:
            return
        record = data if kind in (1, 2) else record + data
        if len(record) > MAX_RECORD:
            record = record[:0]  # a table or the like: its rest is read as a record of its own, without a history
        if kind in (1, 4) and record:
            yield record


def _trainer_state(file: BinaryIO) -> Iterator[Row]:
    """Yield what HF Trainer logged. Seconds since its start are in the last row; where tokens are counted, in each."""
    data = file.read(MAX_STATE + 1)
    if len(data) > MAX_STATE:
        raise BadRecord(f"more than {MAX_STATE:,} bytes")
    try:
        state = json.loads(data)
    except ValueError:
        raise BadRecord("it is no JSON") from None
    history, total = state.get("log_history"), state.get("max_steps")
    for entry in history if isinstance(history, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("step"), int):
            numbers: Values = []
            named = {_since_start(name): value for name, value in entry.items() if name != "step"}
            _flatten("", named, numbers)
            plan = {"max_steps": total} if isinstance(total, int) and total > 0 else {}
            yield {"step": entry["step"], **plan, **dict(numbers)}


def _since_start(name: str) -> str:
    """Return the name of a figure of HF Trainer: those of speed are of the whole run so far, not of the last steps."""
    if name == "train_runtime":
        return "elapsed"
    is_speed = name.startswith("train_") and name.endswith("_per_second")
    return f"since_start/{name.removeprefix('train_')}" if is_speed else name


def _torchtitan(file: BinaryIO) -> Iterator[Row]:
    """Yield the steps of a rank: its numbers, the seconds of its spans, and the time of its last record."""
    row: Row = {}
    while line := file.readline(MAX_LINE):
        try:
            record = json.loads(line)
            step, moment = record.get("step"), record["time_us"] / 1e6
            kind, value = str(record["log_type_name"]), record.get("value")
        except (ValueError, KeyError, TypeError, AttributeError):
            if not line.endswith(b"\n") and len(line) < MAX_LINE:
                break  # cut
            raise BadRecord("a line that is no record of torchtitan") from None
        if not isinstance(step, int):
            continue
        if row and row["step"] != step:
            yield row
            row = {}
        row = row or {"step": step}
        row["timestamp"] = moment
        if not isinstance(value, int | float) or len(row) >= MAX_NAMES:
            continue
        if kind == "metric_value":
            row[str(record.get("event_name")).removeprefix("train.")] = value
        elif kind.endswith("_end"):
            name = f"timing_s/{kind.removesuffix('_end')}"
            row[name] = row.get(name, 0.0) + value / 1e3
    if row:
        yield row


# Their parts


def _flatten(name: str, value: Any, into: Values, depth: int = MAX_DEPTH) -> None:
    """Add the numbers of a JSON value, by their paths; media and texts are left out."""
    if isinstance(value, dict) and depth and "_type" not in value:
        for key, each in value.items():
            _flatten(f"{name}/{key}" if name else str(key), each, into, depth - 1)
    elif isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity"):
        into.append((name, float(value)))
    elif isinstance(value, int | float) and not isinstance(value, bool) and len(into) < MAX_NAMES:
        into.append((name, value))


def _moment(value: float | None) -> Row:
    return {} if value is None else {"timestamp": value}


def _whole(value: float) -> int:
    return int(value) if math.isfinite(value) else 0


def _fields(data: bytes) -> dict[int, list[Any]]:
    """Return the fields of a protobuf message by their numbers: ints, and bytes of all that is longer or fixed."""
    fields: dict[int, list[Any]] = {}
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        value: int | bytes
        if kind == 0:
            value, at = _varint(data, at)
        else:
            length = {1: 8, 5: 4}.get(kind)
            if kind == 2:
                length, at = _varint(data, at)
            if length is None or length > len(data) - at:
                raise BadRecord("a field longer than its message")
            value = data[at : at + length]
            at += length
        fields.setdefault(key >> 3, []).append(value)
    return fields


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise BadRecord("a number without an end")


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    raise BadRecord("a number in place of a message")


def _text(value: Any) -> str:
    return _bytes(value).decode("utf-8", "replace")


def _signed(value: Any) -> int:
    if not isinstance(value, int):
        raise BadRecord("a step that is no number")
    return (value & (1 << 64) - 1) - (1 << 64 if value >> 63 & 1 else 0)


def _double(value: Any) -> float:
    return float(struct.unpack("<d", value)[0]) if isinstance(value, bytes) and len(value) == 8 else 0.0


def _checksum_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _checksum_table()


def _masked_checksum(data: bytes) -> int:
    """Return the CRC-32C of `data` as TensorFlow masks it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF

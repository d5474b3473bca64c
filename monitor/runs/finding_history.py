"""Which findings came and went while somebody watched a run, kept beside its journals for whoever watches next.

They cannot be read again from the journals: a view has only the findings of its own moment.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from monitor.diagnosis.finding_log import MAX_CHANGES
from monitor.model.report import Finding
from monitor.model.view import FindingChange
from trainhooks.protocol.limits import clean

FILE = "finding-changes.jsonl"
MAX_BYTES = 1 << 18  # some 1,000 changes; a finding that comes and goes all day fills no disk
SAME_SECONDS = 30.0  # two who watch see one change within that time: a view comes each second, and a slow one later


class _Row(msgspec.Struct):
    time: Annotated[float, msgspec.Meta(ge=0, le=1e11)]  # Unix time
    kind: Literal["appeared", "worse", "cleared"]
    code: str
    severity: Literal["info", "warning", "critical"]
    title: str


def keep_changes(run: Path, changes: Iterable[FindingChange]) -> None:
    """Append changes; nothing is written where the directory is another user's, full or gone."""
    since = time.time() - time.monotonic()
    rows = [
        {
            "time": change.t + since,
            "kind": change.kind,
            "code": change.finding.code,
            "severity": change.finding.severity,
            "title": change.finding.title,
        }
        for change in changes
    ]
    with contextlib.suppress(OSError):
        if not rows or run.stat().st_uid != os.getuid():
            return
        with (run / FILE).open("ab") as out:
            if out.tell() < MAX_BYTES:
                out.write(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))


def kept_changes(run: Path) -> list[FindingChange]:
    """Return the newest changes, the oldest first, at times of this process's monotonic clock."""
    since = time.time() - time.monotonic()
    found: dict[tuple[str, str], float] = {}  # the newest of a code and kind
    changes = []
    for row in sorted(_rows(run), key=lambda row: row.time):
        if row.time - found.get((row.code, row.kind), -SAME_SECONDS) >= SAME_SECONDS:
            finding = Finding(code=clean(row.code), severity=row.severity, title=clean(row.title))
            changes.append(FindingChange(row.time - since, row.kind, finding))
        found[row.code, row.kind] = row.time
    return changes[-MAX_CHANGES:]


def _rows(run: Path) -> list[_Row]:
    try:
        with (run / FILE).open("rb") as file:
            lines = file.read(2 * MAX_BYTES).splitlines()
    except OSError:
        return []
    rows = []
    for line in lines:
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):  # half a line, or another version's
            rows.append(_decoder.decode(line))
    return rows


_decoder = msgspec.json.Decoder(_Row)

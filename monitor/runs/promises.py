"""What findings promised and what `trainmon try` measured, kept beside the runs: a line of JSON each."""

from __future__ import annotations

import json
import math
import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from monitor.model.comparison.paired import Measured
from monitor.model.report import Gain
from monitor.units import plural, times
from trainhooks.protocol import rundir

NAME = "promises.jsonl"
MAX_LINES = 1000  # the newest stay
MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Kept:
    """One trial: times as fast, promised and measured."""

    code: str
    setting: str
    promised: float | None
    measured: float
    low: float
    high: float
    pairs: int
    at: float  # Unix time


def _path() -> Path:
    return rundir.state_dir() / NAME


def keep(code: str, setting: str, promised: Gain | None, measured: Measured) -> None:
    """Add a trial. A directory that cannot be written keeps none."""
    likely = None if promised is None else promised.likely if promised.likely is not None else promised.most
    added = Kept(code, setting, likely, measured.value, measured.low, measured.high, measured.pairs, time.time())
    with suppress(OSError):
        rundir.ready_runs_dir()
        lines = [json.dumps(asdict(one)) for one in (*kept(), added)][-MAX_LINES:]
        path = _path()
        fresh = path.with_name(f"{NAME}.{os.getpid()}")
        fresh.write_text("".join(f"{line}\n" for line in lines))
        fresh.replace(path)


def kept(code: str | None = None) -> list[Kept]:
    """Return the trials kept, the oldest first; of one finding alone where it is named."""
    try:
        text = rundir.read_regular(_path(), MAX_BYTES).decode("utf-8", "replace")
    except OSError:
        return []
    found = [one for line in text.splitlines() if (one := _read(line)) is not None]
    return [one for one in found if code is None or one.code == code]


def _read(line: str) -> Kept | None:
    """Return a line; None where it is not of this form, or its numbers are none."""
    with suppress(ValueError, TypeError, RecursionError):
        one = Kept(**json.loads(line))
        numbers = [one.measured, one.low, one.high, *([] if one.promised is None else [one.promised])]
        if isinstance(one.code, str) and all(type(x) is float and 0.0 < x < math.inf for x in numbers):
            return one
    return None


def line(code: str) -> str | None:
    """Return `on your machines: promised 1.9x, measured 1.7x, 4 times`; None where nothing was tried."""
    found = kept(code)
    if not found:
        return None
    promised = [one.promised for one in found if one.promised is not None]
    words = [f"promised {times(median(promised))}"] if promised else []
    words.append(f"measured {times(median(one.measured for one in found))}")
    return f"On your machines: {', '.join(words)}, {plural(len(found), 'time', 'times')} (`trainmon try`)."

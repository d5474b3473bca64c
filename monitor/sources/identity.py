"""The small files of a run, `run.json` and `exit.json`, made into what a reader may rely on. A gate like `decode`.

They are written by trainmon, and by hand, by older versions and by half-copied disks: what is not of its kind is left
out, and counts as unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from monitor.sources.decode import tidy_facts
from trainhooks import rundir
from trainhooks.events import MAX_INTEGER, MAX_NAME, MAX_TEXT, clean

MAX_WORDS = 4096  # of a command
LATEST = 253_402_300_799.0  # the last second of the year 9999: what the calendar can show


def identity(run: Path) -> dict[str, Any]:
    """What `run.json` tells; where it does not tell the run's id, that is the name of its directory."""
    return {"id": _text(run.absolute().name), **tidy(rundir.read_json(run / rundir.IDENTITY), _IDENTITY)}


def ending(run: Path) -> dict[str, Any] | None:
    """What `exit.json` tells; None while there is none."""
    found = rundir.read_json(run / rundir.EXIT)
    return None if found is None else tidy(found, _ENDING)


def tidy(found: dict[str, Any] | None, kinds: dict[str, Callable[[Any], Any]]) -> dict[str, Any]:
    """The entries of known keys that are of their kind, cleaned. Others pass as facts do: this is no closed form."""
    known = tidy_facts(found or {})
    for key, kind in kinds.items():
        value = kind((found or {}).get(key))
        if value is None:
            known.pop(key, None)
        else:
            known[key] = value
    return known


def _text(value: Any) -> str | None:
    return (clean(value, MAX_NAME) or None) if isinstance(value, str) else None


def _long_text(value: Any) -> str | None:
    return (clean(value, MAX_TEXT) or None) if isinstance(value, str) else None


def _whole(value: Any) -> int | None:
    return value if type(value) is int and -MAX_INTEGER <= value <= MAX_INTEGER else None


def _amount(value: Any) -> float | int | None:
    return value if type(value) in (int, float) and 0 <= value <= MAX_INTEGER else None


def _moment(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and 0 <= value <= LATEST else None


def _yes(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _words(value: Any) -> list[str] | None:
    if not isinstance(value, list):
        return None
    return [clean(word, MAX_TEXT) for word in value[:MAX_WORDS] if isinstance(word, str)]


def _tags(value: Any) -> dict[str, str] | None:
    if not isinstance(value, dict):
        return None
    pairs = [(clean(key, MAX_NAME), clean(told, MAX_NAME)) for key, told in list(value.items())[:100]]
    return {key: told for key, told in pairs if key}


_IDENTITY: dict[str, Callable[[Any], Any]] = {
    "id": _text,
    "name": _text,
    "host": _text,
    "cwd": _long_text,
    "version": _text,
    "boot_id": _text,
    "imported_from": _long_text,
    "started": _moment,
    "imported_at": _moment,
    "started_monotonic": _amount,
    "pid": _whole,
    "start_ticks": _whole,
    "price": _amount,
    "expect_tps": _amount,
    "named": _yes,
    "launched": _yes,
    "imported": _yes,
    "command": _words,
    "tags": _tags,
}
_ENDING: dict[str, Callable[[Any], Any]] = {
    "exit_code": _whole,
    "signal": _whole,
    "ended": _moment,
    "ended_monotonic": _amount,
}

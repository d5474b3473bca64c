"""The small files of a run, `run.json` and `exit.json`.

Entries of the wrong type are dropped and count as unknown: the files may be written by hand or by other versions.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from monitor.sources.decode import tidy_facts
from trainhooks.protocol import rundir
from trainhooks.protocol.limits import MAX_INTEGER, MAX_NAME, MAX_TEXT, clean

MAX_WORDS = 4096  # of a command
MAX_TIMESTAMP = 253_402_300_799.0  # the last second of the year 9999, the limit of datetime


def identity(run: Path) -> dict[str, Any]:
    """Return the content of `run.json`; the run's id defaults to the name of its directory."""
    return {"id": _text(run.absolute().name), **checked_fields(rundir.read_json(run / rundir.IDENTITY), _IDENTITY)}


def ending(run: Path) -> dict[str, Any] | None:
    """Return the content of `exit.json`; None while there is none."""
    content = rundir.read_json(run / rundir.EXIT)
    return None if content is None else checked_fields(content, _ENDING)


def stopped_by(run: Path) -> str | None:
    """Return why a run was stopped, where trainmon was asked to; None where it was not."""
    if not (run / rundir.STOPPED).exists():
        return None
    from monitor.model.wall_time import (  # late, as `trainmon run` forks with this module
        STOPPED_BY_RULE,
        STOPPED_BY_YOU,
    )

    reason = _text((rundir.read_json(run / rundir.STOPPED) or {}).get("reason"))
    return STOPPED_BY_YOU if reason is None else f"{STOPPED_BY_RULE}{reason}"


def checked_fields(content: dict[str, Any] | None, types: dict[str, Callable[[Any], Any]]) -> dict[str, Any]:
    """Return the entries cleaned, without known keys of the wrong type. Unknown keys pass as facts do."""
    known = tidy_facts(content or {})
    for key, convert in types.items():
        value = convert((content or {}).get(key))
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
    return float(value) if type(value) in (int, float) and 0 <= value <= MAX_TIMESTAMP else None


def _yes(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _words(value: Any) -> list[str] | None:
    if not isinstance(value, list):
        return None
    return [clean(word, MAX_TEXT) for word in value[:MAX_WORDS] if isinstance(word, str)]


def _tags(value: Any) -> dict[str, str] | None:
    if not isinstance(value, dict):
        return None
    pairs = [(clean(key, MAX_NAME), clean(text, MAX_NAME)) for key, text in list(value.items())[:100]]
    return {key: text for key, text in pairs if key}


_IDENTITY: dict[str, Callable[[Any], Any]] = {
    "id": _text,
    "name": _text,
    "host": _text,
    "cwd": _long_text,
    "version": _text,
    "boot_id": _text,
    "pid_namespace": _text,
    "time_namespace": _text,
    "imported_from": _long_text,
    "started": _moment,
    "imported_at": _moment,
    "started_monotonic": _amount,
    "pid": _whole,
    "group": _whole,
    "start_ticks": _whole,
    "price": _amount,
    "expect_tps": _amount,
    "named": _yes,
    "launched": _yes,
    "attached": _yes,
    "imported": _yes,
    "command": _words,
    "tags": _tags,
    "environment": _tags,
}
_ENDING: dict[str, Callable[[Any], Any]] = {
    "exit_code": _whole,
    "signal": _whole,
    "ended": _moment,
    "ended_monotonic": _amount,
}

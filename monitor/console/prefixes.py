"""What launchers and loggers put before a line: ranks, times of day, levels. Pure."""

from __future__ import annotations

import re
from calendar import timegm

_RANK = re.compile(
    r"^\s{0,8}(?:\[(?:rank|default|node\d{1,4}[:, ]{1,2}rank|GPU|r)[ :=]?(?P<a>\d{1,6})\]:?"
    r"|\[(?:\d{1,4},)?(?P<b>\d{1,6})\](?:<std(?:out|err)>)?:"
    r"|\(?rank[ :=]{1,2}(?P<c>\d{1,6})\)?[:\]|]?)\s?",
    re.IGNORECASE,
)
_RAY = re.compile(r"^\s{0,8}\([\w.:-]{1,120} pid=\d{1,10}(?:, ip=[\w.:-]{1,60})?\)\s?")
_BARE_RANK = re.compile(r"^(?P<rank>\d{1,5}): (?=\S)")
_WALL = re.compile(
    r"(?P<year>\d{4})[-/](?P<month>\d\d)[-/](?P<day>\d\d)[T ,-]{1,2}(?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)"
    r"(?P<f>[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
)
_DAY_FIRST = re.compile(  # or the month first, as transformers has it: told apart only where one is above 12
    r"(?P<a>\d\d)/(?P<b>\d\d)/(?P<year>\d{4}),? (?:- )?(?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)(?P<f>[.,]\d{1,9})?"
)
_TIME = re.compile(
    r"^\W{0,3}(?:[IWEF]\d{4} |[A-Z]{1,8}[: ]{1,3}|\d\d/\d\d )?(?P<h>[01]\d|2[0-3]):(?P<m>[0-5]\d):(?P<s>[0-5]\d)"
    r"(?P<f>[.,]\d{1,9})?(?=[\s\]|-])(?P<glog>\s{1,8}\d{1,9}\s[\w./-]{1,80}:\d{1,6}\]|\s[\w.]{1,60}\]:)?"
)
_LOGGER = re.compile(
    r"^[\s\-|:]{0,8}"
    r"(?:[\w./\[\]<>:-]{1,80}\s{1,4}[-|:]\s{1,4}|\[[A-Za-z_][\w.:, /-]{0,60}\]:?\s{0,4}|[\w.]{1,60}:){0,3}?"
    r"[\s\-|:\[]{0,8}\b(?:INFO|WARNING|WARN|DEBUG|ERROR|NOTICE)\b[\s\-|:\]]{0,8}"
    r"(?:[\w./<>]{1,80}:[\w<>]{1,60}:\d{1,6}\s{1,3}[-|]\s{1,3})?"
)

DAY = 86400.0


def rank(text: str) -> tuple[int | None, str]:
    """The rank that a launcher wrote before the line, and the line without it."""
    if text[:1] not in "[(rR ":
        return None, text
    if "pid=" in text[:160] and (worker := _RAY.match(text)) is not None:
        text = text[worker.end() :]
    found = _RANK.match(text)
    if found is None:
        return None, text
    told = next(each for each in found.groups() if each is not None)
    return int(told), text[found.end() :]


def bare_rank(text: str) -> tuple[int | None, str]:
    """`3: step 10 ...` as srun writes it. It may as well be something else; the caller has to know more."""
    found = _BARE_RANK.match(text) if text[:1].isdigit() else None
    return (int(found["rank"]), text[found.end() :]) if found is not None else (None, text)


def wall(text: str) -> tuple[float | None, str]:
    """The time of day at the begin of a line, in seconds, and the line without it and its logger's words.

    The zone is unknown: the seconds are good for differences, and to be shown as they stood there.
    """
    head = text[:64]
    found = _WALL.search(head) if ":" in head else None
    told: float | None = None
    if found is not None:
        parts = [int(found[each]) for each in ("year", "month", "day", "h", "m", "s")]
        if 1970 <= parts[0] < 2200 and 1 <= parts[1] <= 12 and 1 <= parts[2] <= 31 and parts[3] < 24:
            told = timegm((*parts, 0, 0, 0)) + _fraction(found["f"])
    elif ":" in head and (found := _DAY_FIRST.search(head)) is not None:
        month, day = sorted((int(found["a"]), int(found["b"])), key=lambda part: part > 12)
        if 1 <= month <= 12 and 1 <= day <= 31 and 1970 <= int(found["year"]) < 2200 and int(found["h"]) < 24:
            parts = [int(found["year"]), month, day, int(found["h"]), int(found["m"]), int(found["s"])]
            told = timegm((*parts, 0, 0, 0)) + _fraction(found["f"])
    elif ":" in head and (found := _TIME.match(head)) is not None:
        told = int(found["h"]) * 3600.0 + int(found["m"]) * 60 + int(found["s"]) + _fraction(found["f"])
    if found is not None and told is not None:
        text = text[: found.start()] + " " + text[found.end() :]
    return told, _without_logger(text)


def _without_logger(text: str) -> str:
    if not any(level in text[:160] for level in ("INFO", "WARN", "DEBUG", "ERROR", "NOTICE")):
        return text
    found = _LOGGER.match(text[:200])
    return text[found.end() :] if found is not None else text


def _fraction(text: str | None) -> float:
    return float("0." + text[1:]) if text else 0.0

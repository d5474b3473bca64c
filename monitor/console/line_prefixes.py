"""Read what launchers and loggers put before a line: ranks, times of day and levels."""

from __future__ import annotations

import re
from calendar import timegm

_RANK = re.compile(
    r"^\s{0,8}(?:\[(?:rank|default|node\d{1,4}[:, ]{1,2}rank|GPU|r)[ :=]?(?P<a>\d{1,6})\]:?"
    r"|\[(?:\d{1,4},)?(?P<b>\d{1,6})\](?:<std(?:out|err)>)?:"
    r"|\(?rank[ :=]{1,2}(?P<c>\d{1,6})\)?[:\]|]?)\s?",
    re.IGNORECASE,
)
_RAY = re.compile(r"^\s{0,8}\(([\w.:-]{1,120} pid=\d{1,10}(?:, ip=[\w.:-]{1,60})?)\)\s?")
_RAY_REPEATED = re.compile(r"\s?\[repeated \d{1,9}x across cluster\].*")  # with advice on the first such line
_BARE_RANK = re.compile(r"^(?P<rank>\d{1,5}): (?=\S)")
_WALL = re.compile(
    r"(?P<year>\d{4})[-/](?P<month>\d\d)[-/](?P<day>\d\d)[T ,-]{1,2}(?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)"
    r"(?P<f>[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
)
_DAY_FIRST = re.compile(  # or the month first, as transformers has it: distinguished only where one is above 12
    r"(?P<a>\d\d)/(?P<b>\d\d)/(?P<year>\d{4}),? (?:- )?(?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)(?P<f>[.,]\d{1,9})?"
)
_TIME = re.compile(
    r"^\W{0,3}(?:[IWEF]\d{4} |[A-Z]{1,8}[: ]{1,3}|\d\d/\d\d )?(?P<h>[01]\d|2[0-3]):(?P<m>[0-5]\d):(?P<s>[0-5]\d)"
    r"(?P<f>[.,]\d{1,9})?(?=[\s\]|-])(?P<glog>\s{1,8}\d{1,20}\s[\w./-]{1,80}:\d{1,6}\]|\s[\w.]{1,60}\]:)?"
)
_LOGGER = re.compile(
    r"^[\s\-|:]{0,8}"
    r"(?:[\w./\[\]<>:-]{1,80}\s{1,4}[-|:]\s{1,4}|\[[A-Za-z_][\w.:, /-]{0,60}\]:?\s{0,4}|[\w.]{1,60}:){0,3}?"
    r"[\s\-|:\[]{0,8}\b(?:INFO|WARNING|WARN|DEBUG|ERROR|NOTICE)\b[\s\-|:\]]{0,8}"
    r"(?:[\w./<>]{1,80}:[\w<>]{1,60}:\d{1,6}\s{1,3}[-|]\s{1,3})?"
)

DAY = 86400.0
MAX_PREFIX = 64  # characters in which a time of day ends


def worker(text: str) -> tuple[str, str]:
    """Return which worker's line Ray passed on to the driver's output, and the line as it was; "": the driver's own."""
    found = _RAY.match(text) if "pid=" in text[:160] else None
    return ("", text) if found is None else (found[1], _RAY_REPEATED.sub("", text[found.end() :]))


def rank(text: str) -> tuple[int | None, str]:
    """Return the rank that a launcher wrote before the line, and the line without it."""
    if text[:1] not in "[(rR ":
        return None, text
    text = worker(text)[1]
    match = _RANK.match(text)
    if match is None:
        return None, text
    number = next(group for group in match.groups() if group is not None)
    return int(number), text[match.end() :]


def bare_rank(text: str) -> tuple[int | None, str]:
    """Return the rank of `3: step 10 ...` as srun writes it. It may also be something else; the caller decides."""
    match = _BARE_RANK.match(text) if text[:1].isdigit() else None
    return (int(match["rank"]), text[match.end() :]) if match is not None else (None, text)


def wall(text: str) -> tuple[float | None, str]:
    """Return the time of day at the beginning of a line, in seconds, and the line without it and its logger's words.

    The zone is unknown: the seconds serve for differences, and to be shown as they were printed.
    """
    head = text[:MAX_PREFIX]
    match = _WALL.search(head) or _DAY_FIRST.search(head) or _TIME.match(head) if ":" in head else None
    moment = _moment(match) if match is not None else None
    if match is not None and moment is not None:
        text = text[: match.start()] + " " + text[match.end() :]
    return moment, _without_logger(text)


def _moment(match: re.Match[str]) -> float | None:
    parts = match.groupdict()
    hour, minute, second = (int(parts[part]) for part in ("h", "m", "s"))
    fraction = float("0." + parts["f"][1:]) if parts["f"] else 0.0
    if "year" not in parts:
        return hour * 3600.0 + minute * 60 + second + fraction
    if "month" in parts:
        month, day = int(parts["month"]), int(parts["day"])
    else:
        month, day = sorted((int(parts["a"]), int(parts["b"])), key=lambda part: part > 12)
    year = int(parts["year"])
    if not (1970 <= year < 2200 and 1 <= month <= 12 and 1 <= day <= 31 and hour < 24):
        return None
    return timegm((year, month, day, hour, minute, second, 0, 0, 0)) + fraction


def _without_logger(text: str) -> str:
    if not any(level in text[:160] for level in ("INFO", "WARN", "DEBUG", "ERROR", "NOTICE")):
        return text
    match = _LOGGER.match(text[:200])
    return text[match.end() :] if match is not None else text

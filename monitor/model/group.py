"""Several trainings under one command: each as a row, and all of them together. Pure."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from monitor.model.report import Best, BestMember, Group, Member, Report
from monitor.model.state import RunState
from monitor.units import age, number, plural
from trainhooks.protocol.vocabulary import HIGHER_IS_BETTER, LOWER_IS_BETTER

MAX_DIFFERING = 8  # settings
CURVE_POINTS = 40
MAX_NAMED = 3  # settings of a training in a line

# Words in names of metrics of held-out data, which are preferred for judging a run.
HELD_OUT_WORDS = ("eval", "val", "valid", "validation", "test", "dev")
GOAL_WORDS = ("target", "goal", "threshold")  # in names of what a program wants to reach
_WORDS = re.compile(r"[a-z0-9]+")


def best(report: Report) -> Best | None:
    """Return the best value of the metric that judges a run; metrics of held-out data are preferred."""
    for held_out in (True, False):
        for names, word in ((HIGHER_IS_BETTER, "highest"), (LOWER_IS_BETTER, "lowest")):
            for metric, row in report.metrics.items():
                words = set(_WORDS.findall(metric.lower()))
                value = row.min if word == "lowest" else row.max
                is_judge = bool(words & set(names)) and not words & set(GOAL_WORDS)
                if value is not None and is_judge and bool(words & set(HELD_OUT_WORDS)) == held_out:
                    return Best(metric, value, word)
    return None


def member_of(report: Report, state: RunState) -> Member:
    """Return a training as a row, with all settings that are known of it; its number is not known yet."""
    judged = best(report)
    facts, progress, rates = report.run.facts, report.progress, report.throughput
    return Member(
        number=0,
        name=report.run.name,
        state=report.outcome.state,
        error=report.outcome.error,
        started=report.run.started,
        steps_done=progress.steps_done,
        steps_total=progress.steps_total,
        startup_seconds=report.wall.startup,
        elapsed_seconds=progress.elapsed_seconds,
        eta_seconds=progress.eta_seconds,
        steps_per_second=rates.steps_per_second,
        tokens_per_second=rates.tokens_per_second,
        samples_per_second=rates.samples_per_second,
        best=judged,
        curve=() if judged is None else _curve(state, judged.metric),
        settings={**_arguments(facts.command), **facts.training.settings},
    )


def _curve(state: RunState, metric: str) -> tuple[tuple[float, float], ...]:
    column = state.metrics.get(metric)
    if column is None:
        return ()
    curve = column.curve()
    points = [point for point in zip(curve.x, curve.mean, strict=True) if math.isfinite(point[1])]
    every = max(1, -(-len(points) // CURVE_POINTS))
    return tuple(points[::every])


def _arguments(command: Sequence[str]) -> dict[str, Any]:
    """Return the options of a command by name: `--lr 1e-3`, `--lr=1e-3`, `lr=1e-3`."""
    found: dict[str, Any] = {}
    for word, following in zip(command, [*command[1:], ""], strict=False):
        name, is_given, value = word.partition("=")
        if not (name.startswith("-") or is_given):
            continue
        name = name.lstrip("-").replace("-", "_")
        if name:
            found[name] = value if is_given else True if following.startswith("--") or not following else following
    return found


def group_of(members: Sequence[Member], shown: int, command: Sequence[str], planned: int | None = None) -> Group | None:
    """Return the trainings together; None for a single one.

    Args:
        members: in the order in which they began.
        shown: the place of the one that the report is of.
        command: that runs them all.
        planned: how many there are to be, where it is known.
    """
    if len(members) < 2:
        return None
    differing = _differing([member.settings for member in members])
    rows = [
        replace(
            member,
            number=place,
            settings={name: member.settings[name] for name in differing if name in member.settings},
        )
        for place, member in enumerate(members, 1)
    ]
    planned = _planned(command, members, differing) if planned is None else planned
    total = planned if planned is not None and planned >= len(rows) else None
    return Group(
        done=sum(row.is_over for row in rows),
        total=total,
        elapsed_seconds=_elapsed(rows),
        eta_seconds=_time_left(rows, total),
        best=_best(rows),
        members=rows,
        shown=shown + 1,
    )


def _differing(settings: Sequence[dict[str, Any]]) -> list[str]:
    names = dict.fromkeys(name for table in settings for name in table)
    return [name for name in names if any(table.get(name) != settings[0].get(name) for table in settings)][
        :MAX_DIFFERING
    ]


def _planned(command: Sequence[str], members: Sequence[Member], differing: Sequence[str]) -> int | None:
    """Return how many trainings a command asks for, as `--lr 1e-4 1e-3 1e-2` does; None where it is not certain.

    That is a list of values to an option, among which each training has another one. Where a second list may be gone
    through as well, as its values hold a setting that all trainings so far have in common, the number is unknown.
    """
    found = []
    for values in _lists(command):
        names = {name for member in members for name, value in member.settings.items() if _number(value) in values}
        found += [(values, names)] if names else []
    if len(found) != 1:
        return None
    ((values, names),) = found
    for name in names.intersection(differing):
        own = [_number(member.settings.get(name)) for member in members]
        if set(own) <= set(values) and len(set(own)) == len(own):
            return len(values)
    return None


def _lists(command: Sequence[str]) -> list[list[float]]:
    """Return the numbers that each option of a command is given, where they are several and differ."""
    lists: list[list[float]] = [[]]
    for word in command:
        numbers = [_number(part) for part in word.partition("=")[2 if "=" in word else 0].split(",")]
        known = [number for number in numbers if number is not None]
        if len(known) < len(numbers):
            lists.append([])
        elif word.startswith("-") and "=" in word:
            lists += [known, []]
        else:
            lists[-1] += known
    return [values for values in lists if len(values) > 1 and len(set(values)) == len(values)]


def _number(value: Any) -> float | None:
    try:
        return float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else None
    except ValueError:
        return None


def _best(rows: Sequence[Member]) -> BestMember | None:
    judged = [(row.best, row.number) for row in rows if row.best is not None]
    if not judged or len({(one.metric, one.word) for one, _ in judged}) > 1:
        return None
    pick = min if judged[0][0].word == "lowest" else max
    one, number_ = pick(judged, key=lambda pair: pair[0].value)
    return BestMember(one.metric, one.value, one.word, number_)


def _elapsed(rows: Sequence[Member]) -> float | None:
    known = [(row.started, row.elapsed_seconds) for row in rows]
    times = [(begin, begin + seconds) for begin, seconds in known if begin is not None and seconds is not None]
    return max(end for _, end in times) - min(begin for begin, _ in times) if len(times) == len(rows) else None


def _time_left(rows: Sequence[Member], total: int | None) -> float | None:
    """Return the seconds until all have ended; None where unknown.

    Those to come are taken to last as long as the others, and as many to run at once as now.
    """
    living = [row for row in rows if not row.is_over]
    if not living or total is None or any(row.eta_seconds is None for row in living):
        return None
    left = [row.eta_seconds or 0.0 for row in living]
    lengths = [row.elapsed_seconds for row in rows if row.state == "finished" and row.elapsed_seconds is not None]
    lengths = lengths or [(row.elapsed_seconds or 0.0) + (row.eta_seconds or 0.0) for row in living]
    return max(max(left), (sum(left) + (total - len(rows)) * fmean(lengths)) / len(living))


def place(group: Group) -> str:
    """Return which of the trainings is shown: `training 3 of 5, about 12 s left for all`."""
    count = f" of {group.total}" if group.total else f", {group.done} done"
    return f"training {group.shown}{count}{_left(group)}"


def _left(group: Group) -> str:
    return f", about {age(group.eta_seconds)} left for all" if group.eta_seconds is not None else ""


def line(group: Group) -> str:
    """Return `2 of 5 done, about 12 s left for all; best loss 0.006 (#2, lr 0.001); shown: #3, lr 0.01`."""
    begun = len(group.members)
    count = f"{group.done} of {group.total} done" if group.total else f"{begun} so far, {group.done} done"
    if group.done == begun and group.total in (None, begun):
        broken = Counter(row.state for row in group.members if row.state != "finished")
        count = ", ".join(
            [f"{begun}, all {'ended' if broken else 'done'}", *(f"{n} {state}" for state, n in broken.items())]
        )
    parts = [count + _left(group)]
    if group.best is not None:
        parts.append(f"best {group.best.metric} {number(group.best.value)} ({_named(group, group.best.number)})")
    parts.append(f"shown: {_named(group, group.shown)}")
    return "; ".join(parts)


def _named(group: Group, place: int) -> str:
    settings = list(group.members[place - 1].settings.items())
    named = ", ".join(
        f"{name} {value:g}" if type(value) is float else f"{name} {value}" for name, value in settings[:MAX_NAMED]
    )
    more = f" and {plural(len(settings) - MAX_NAMED, 'more', 'more')}" if len(settings) > MAX_NAMED else ""
    return f"#{place}" + (f", {named}{more}" if named else "")

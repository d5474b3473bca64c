"""A line of the table: what was checked, by us and by somebody else."""

from __future__ import annotations

from dataclasses import dataclass

OK, BAD, TOLD = "ok", "DIFFERS", "told"  # `told`: a measurement that nothing is expected of


@dataclass(frozen=True)
class Row:
    check: str
    ours: str
    theirs: str
    verdict: str = OK


def judged(check: str, ours: str, theirs: str, good: bool) -> Row:
    return Row(check, ours, theirs, OK if good else BAD)


def line(row: Row) -> str:
    return f"{row.check:<46} {row.ours:>24} {row.theirs:>24}  {row.verdict}"


HEAD = line(Row("check", "trainmon", "reference", "verdict"))

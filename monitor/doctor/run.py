"""All looks, one after another, and how they are told."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from monitor.doctor import gpus, places, pythons
from monitor.doctor.above import above
from monitor.doctor.check import Check
from monitor.doctor.logout import logout
from monitor.doctor.terminal import terminal
from monitor.running import ties

Paint = Callable[[str, str], str]  # a word, and the state that it stands for


def examine(python: str | None = None) -> list[Check]:
    """
    Args:
        python: of the training; by default what `python` means here.

    Raises:
        monitor.runs.UserError: `python` is no program.
    """
    driver = gpus.checks()
    cards = driver[0].details.get("gpus", 0)
    return [
        *driver,
        pythons.own_libraries(),
        *pythons.training_python(python, cards),
        *places.run_directory(),
        above(),
        places.sockets(),
        logout(ties.tie()),
        terminal(),
    ]


def text(checks: Sequence[Check], width: int, paint: Paint = lambda word, state: word) -> str:
    """A line a part, and below it what to do."""
    room = max(len(check.part) for check in checks)
    margin = " " * 9
    lines = []
    for check in checks:
        head = f"{paint(f'{check.state:7}', check.state)}  "
        body = f"{check.part:{room}}  {check.text}"
        folded = textwrap.wrap(body, max(20, width - 9), subsequent_indent=" " * (room + 2))
        lines += [head + folded[0], *(margin + line for line in folded[1:])]
        if check.advice is not None:
            hint = textwrap.wrap(check.advice, max(20, width - 9 - room - 4))
            indent = margin + " " * (room + 2)
            lines += [f"{indent}{'→' if number == 0 else ' '} {line}" for number, line in enumerate(hint)]
    fatal = [check.part for check in checks if check.fatal]
    lines.append("")
    lines.append(
        f"trainmon cannot work: {', '.join(fatal)} broken" if fatal else "trainmon can record and show a training here"
    )
    return "\n".join(lines) + "\n"


def mapping(checks: Sequence[Check]) -> dict[str, Any]:
    return {"ok": not any(check.fatal for check in checks), "checks": [asdict(check) for check in checks]}

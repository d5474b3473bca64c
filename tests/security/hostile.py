"""A run in which every text that a run can carry was written by somebody who means harm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.fuzz.inputs import HOSTILE, WHOLE

MARK = "EVIL"  # what is left of such a text when it has been made harmless
# Clears the screen, retitles the window, fills the clipboard, turns text around, draws a line of its own...
EVIL = MARK + "".join(text for text in HOSTILE if len(text) < 40)
KEPT = ("kind", "clock", "status", "level", "source")  # words with a meaning of their own


def everywhere(pattern: Any, evil: str = EVIL) -> Any:
    """The same with `evil` for every text, names of entries included."""
    if isinstance(pattern, str):
        return evil
    if isinstance(pattern, dict):
        return {evil: everywhere(next(iter(pattern.values()), evil), evil)}
    if isinstance(pattern, (list, tuple)):
        return [everywhere(each, evil) for each in pattern]
    return pattern


def event(kind: str, seq: int, t: float, **more: Any) -> dict[str, Any]:
    """A whole event of a kind, with `EVIL` in all its texts; absent ones are written, too."""
    whole = next(row for row in WHOLE if row["kind"] == kind)
    made = {name: each if name in KEPT else everywhere(each) for name, each in whole.items()}
    for name in (
        "name",
        "host",
        "detail",
        "code",
        "error",
        "note",
        "tree_busiest_name",
        "others_busiest_name",
        "driver",
        "bus_id",
        "frame",
    ):
        if name in made:
            made[name] = EVIL
    if kind == "gpu":
        made["processes"] = [[7, EVIL, 5, None]]
    return {**made, "producer": "p", "seq": seq, "t": t, **more}


def write(run: Path, alive: bool = False) -> Path:
    """The run's directory. `alive`: as if this very process were its training."""
    run.mkdir(parents=True)
    rows = [event("hello", 0, 100.0, rank=0, wall=1.7e9), event("facts", 1, 100.1, total_steps=500)]
    rows.append({"kind": "facts", "producer": "p", "seq": 2, "t": 100.1, "facts": {"compile": {"reasons": [EVIL]}}})
    for index in range(1, 60):
        start, seconds = 100.0 + index, 5.0 if index == 40 else 0.5
        more: dict[str, Any] = {"index": index, "start": start, "duration": seconds, "role": EVIL, "stage": None}
        more |= {"phases": [[EVIL, seconds / 2, "host", 1]], "metrics": {EVIL: "nan" if index == 9 else 0.1}}
        more |= {"status": "skipped" if index % 7 == 0 else "ok", "thread": None, "forwards": None, "epoch": None}
        rows.append(event("step", len(rows), start + seconds, **more))
    for kind in ("span", "metrics", "frames", "note", "gpu", "host", "pulse"):
        rows.append(event(kind, len(rows), 160.0, **({"level": "warning"} if kind == "note" else {})))
    if not alive:
        rows.append(event("bye", len(rows), 161.0))
    text = "".join(json.dumps(row, ensure_ascii=index % 2 == 0) + "\n" for index, row in enumerate(rows))
    (run / "rank-0-p.jsonl").write_text(text, encoding="utf-8")
    identity: dict[str, Any] = {"id": EVIL, "name": EVIL, "host": EVIL, "command": [EVIL], "cwd": EVIL, "version": EVIL}
    identity |= {"started": 1.7e9, "named": True, "tags": {EVIL: EVIL}, "imported_from": EVIL}
    (run / "run.json").write_text(json.dumps(identity))
    (run / "exit.json").write_text(json.dumps({"exit_code": EVIL, "signal": EVIL}))
    (run / "console.log").write_text(f"{EVIL} step 3/9 loss: 0.5\n" * 20, encoding="utf-8")
    return run

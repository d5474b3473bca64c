"""Turn a run into one file for replay: its journals in the order of time, without names of the machine.

    python demo/record.py ~/.local/state/trainmon/runs/RUN demo/recordings/NAME.jsonl
    trainmon replay demo/recordings/NAME.jsonl

The program's output is not recorded, as its lines have no times.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

NAMES_A_MACHINE = ("host", "pid", "cwd")


def recorded(run: Path) -> list[dict[str, Any]]:
    """Return the events of a run ordered by time, keeping each producer's order."""
    rows = []
    for journal in sorted(run.glob("*.jsonl"), key=lambda path: not path.name.startswith("rank-")):
        latest = float("-inf")
        for line in journal.read_text(encoding="utf-8").splitlines():
            event = anonymous(json.loads(line))
            latest = max(latest, event["t"])
            rows.append((latest, event))
    return [event for _, event in sorted(rows, key=lambda row: row[0])]


def anonymous(event: dict[str, Any]) -> dict[str, Any]:
    """Return the event without host, process ids and directories."""
    kept: dict[str, Any] = {key: _without_paths(value) for key, value in event.items() if key not in NAMES_A_MACHINE}
    if isinstance(facts := kept.get("facts"), dict):
        kept["facts"] = {key: value for key, value in facts.items() if key not in NAMES_A_MACHINE}
    if isinstance(processes := kept.get("processes"), list):
        kept["processes"] = [[0, *rest] for _, *rest in processes]
    return kept


def _without_paths(value: Any) -> Any:
    """Return `value` with every path reduced to its last component."""
    if isinstance(value, str):
        return os.path.basename(value) if "/" in value and " /" not in value else value
    if isinstance(value, list):
        return [_without_paths(item) for item in value]
    return {key: _without_paths(item) for key, item in value.items()} if isinstance(value, dict) else value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a run's directory")
    parser.add_argument("file", type=Path, help="where the recording goes")
    given = parser.parse_args()
    lines = [json.dumps(event, separators=(",", ":")) for event in recorded(given.run)]
    given.file.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    print(f"{given.file}: {len(lines):,} events, {given.file.stat().st_size / 1024:,.0f} KiB")


if __name__ == "__main__":
    main()

"""What the hooks find of steps that cannot train as they should, and that they find nothing in unusual ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .watched import LIMIT, ROOT, SCRIPTS, environment

TOGETHER = 3 * LIMIT  # they run in one process, one after the other
pytestmark = pytest.mark.timeout(TOGETHER)

# What is found, by the way of training; in all others, nothing.
FOUND = {
    "never zeroed": "kept_gradients",
    "no backward": "no_gradient",
    "others": "no_gradient",
    "target trained": "no_gradient",
    "no rate": "zero_rate",
    "eval left on": "eval_mode",
    "eval from the start": "eval_mode",
    "eval with gradients": "eval_gradients",
    "retained": "retained",
    "large table": "embedding",
    "gan": "optimizers",
    "encoder": "unused_gradients",
    "encoder beside": "unused_gradients",
    "encoder trained rarely": "optimizers",
    "averaged in each pass": "gradient_syncs",
    "averaged around the pass": "gradient_syncs",
    "averaged and compiled": "gradient_syncs",
}
MAIN = (
    "plain", "zeroed by data", "frozen norms", "eval left on", "eval with gradients", "never zeroed", "others",
    "evolved", "target trained", "retained", "averaged in each pass", "averaged once", "averaged and clipped",
    "averaged and zeroed", "encoder", "encoder beside", "encoder frozen", "encoder by hand", "encoder in hooks",
    "encoder of copies", "encoder trained rarely",
)  # fmt: skip


def found(state: Path, *kinds: str) -> dict[str, dict[str, Any]]:
    """Return what is found in these ways of training; in all of them by default."""
    ended = subprocess.run(
        [sys.executable, str(SCRIPTS / "checked.py"), *kinds],
        env=environment(state),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TOGETHER,
        check=True,
    )
    return dict(json.loads(line) for line in ended.stdout.splitlines())


@pytest.mark.long
def test_faults_are_found_with_their_numbers_and_nothing_else(tmp_path: Path) -> None:
    tables = found(tmp_path, *MAIN)
    assert {kind: set(table) for kind, table in tables.items()} == {
        kind: {FOUND[kind]} if kind in FOUND else set() for kind in MAIN
    }
    kept = tables["never zeroed"]["kept_gradients"]
    assert kept["steps"] == kept["checked"] >= 16
    assert tables["others"]["no_gradient"]["parameters"] == 18
    assert tables["target trained"]["no_gradient"]["assigned"] in (1, 2), "seen where the steps around it are checked"
    mode = tables["eval left on"]["eval_mode"]
    assert mode["trained"] and (mode["modules"], mode["count"]) == (["BatchNorm1d", "Dropout"], 2)
    assert tables["eval with gradients"]["eval_gradients"] == {"calls": 50, "times": 2}
    averages = tables["averaged in each pass"]["gradient_syncs"]
    assert {name: averages[name] for name in ("steps", "passes", "averaged", "unneeded")} == {
        "steps": 16, "passes": 64, "averaged": 64, "unneeded": 48,
    }  # fmt: skip
    assert averages["comm"] >= averages["overlap"] > 0.0
    unused = tables["encoder"]["unused_gradients"]
    assert (unused["tensors"], unused["cut"], unused["beside"], unused["trained"]) == (4, 552, 0, 18)
    assert 0 < unused["needless"] < unused["nodes"]
    unused = tables["encoder beside"]["unused_gradients"]
    assert (unused["tensors"], unused["cut"], unused["beside"], unused["trained"]) == (2, 0, 72, 72)


@pytest.mark.long
@pytest.mark.parametrize(("kind", "of"), [("gan", None), ("gan without a critic", 2)])
def test_a_rate_of_zero_in_one_of_several_optimizers(tmp_path: Path, kind: str, of: int | None) -> None:
    table = found(tmp_path, kind)[kind]
    assert table["optimizers"] == 2
    assert table.get("zero_rate", {}).get("of") == of


@pytest.mark.long
def test_unusual_ways_that_are_right_are_left_alone(tmp_path: Path) -> None:
    tables = found(tmp_path)
    assert tables.pop("gan without a critic").keys() == {"optimizers", "zero_rate"}
    assert {kind: set(table) for kind, table in tables.items() if table} == {
        kind: {name} for kind, name in FOUND.items()
    }
    assert len(tables) - len(FOUND) >= 14
    assert tables["eval from the start"]["eval_mode"]["trained"] is False
    assert tables["no rate"]["zero_rate"]["highest"] == 0.0
    table = tables["large table"]["embedding"]
    assert (table["rows"], table["width"]) == (70_000, 64)
    assert table["touched"] < 0.01

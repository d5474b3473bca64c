"""What the hooks find of steps that cannot train as they should, and that they find nothing in unusual ones."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from .watched import LIMIT, ROOT, SCRIPTS, environment

TOGETHER = 3 * LIMIT  # all of them run in one process, one after the other
pytestmark = pytest.mark.timeout(TOGETHER)

# What is found, by the way of training; in all others, nothing.
FOUND = {
    "never zeroed": "kept_gradients",
    "no backward": "no_gradient",
    "others": "no_gradient",
    "no rate": "zero_rate",
    "eval left on": "eval_mode",
    "eval from the start": "eval_mode",
    "eval with gradients": "eval_gradients",
    "retained": "retained",
    "large table": "embedding",
    "gan": "optimizers",
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    ended = subprocess.run(
        [sys.executable, str(SCRIPTS / "checked.py")],
        env=environment(tmp_path_factory.mktemp("state")),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TOGETHER,
        check=True,
    )
    return dict(json.loads(line) for line in ended.stdout.splitlines())


def test_each_fault_is_found_and_nothing_else(found: dict[str, dict[str, Any]]) -> None:
    assert {kind: set(table) for kind, table in found.items() if table} == {
        kind: {name} for kind, name in FOUND.items()
    }
    assert len(found) - len(FOUND) >= 2 * 7


def test_what_is_found_has_its_numbers(found: dict[str, dict[str, Any]]) -> None:
    kept = found["never zeroed"]["kept_gradients"]
    assert kept["steps"] == kept["checked"] >= 16
    assert found["others"]["no_gradient"]["parameters"] == 18
    assert found["no rate"]["zero_rate"]["highest"] == 0.0
    mode = found["eval left on"]["eval_mode"]
    assert mode["trained"] and (mode["modules"], mode["count"]) == (["BatchNorm1d", "Dropout"], 2)
    assert found["eval from the start"]["eval_mode"]["trained"] is False
    assert found["eval with gradients"]["eval_gradients"] == {"calls": 50, "times": 2}
    table = found["large table"]["embedding"]
    assert (table["rows"], table["width"]) == (70_000, 64)
    assert table["touched"] < 0.01

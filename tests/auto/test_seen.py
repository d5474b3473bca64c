"""What a program sees of its model, its batches and its own stack is what it sees without trainmon."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from .watched import both, long


@pytest.mark.long
@pytest.mark.parametrize(
    "kind", ["methods", "batches", "tracebacks", "modes", *map(long, ("places", "imports", "handles"))]
)
def test_nothing_differs_for_the_program(tmp_path: Path, kind: str) -> None:
    if kind in ("tracebacks", "imports") and sys.version_info < (3, 11):
        pytest.skip("a bare `raise` restores the traceback up to Python 3.10")
    both(tmp_path, "seen.py", kind)


@pytest.mark.long
def test_no_tensor_of_ours_lives_on(tmp_path: Path) -> None:
    both(tmp_path, "seen.py", "living")

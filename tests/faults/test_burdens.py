"""Each fault of disks, crowds and speed, in its short form. In a file of its own, so that two cores share them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import crowd, disk, speed
from tests.faults.catalogue import FAULTS, Fault
from tests.faults.test_faults import holds

FAMILIES = [module.__name__.rpartition(".")[2] for module in (disk, crowd, speed)]


@pytest.mark.parametrize("fault", [each for each in FAULTS if each.family in FAMILIES], ids=lambda each: each.name)
def test_a_fault_does_no_harm(fault: Fault, tmp_path: Path) -> None:
    holds(fault, tmp_path)

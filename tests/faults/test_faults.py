"""Each fault on terminals, processes, sockets and requests, in its short form: no harm, nothing lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import processes, questions, sockets, terminal
from tests.faults.catalogue import FAULTS, Fault, NotHere

FAMILIES = [module.__name__.rpartition(".")[2] for module in (terminal, processes, sockets, questions)]


def holds(fault: Fault, path: Path) -> None:
    try:
        found = fault.run(path, True)
    except NotHere as why:
        pytest.skip(f"LOUD: not injected: {why}")
    assert found.injected > 0
    assert not found.harmed
    assert found.lost == 0


@pytest.mark.parametrize("fault", [each for each in FAULTS if each.family in FAMILIES], ids=lambda each: each.name)
def test_a_fault_does_no_harm(fault: Fault, tmp_path: Path) -> None:
    holds(fault, tmp_path)

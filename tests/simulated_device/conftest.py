"""Plays of workloads, shared by all tests of a run."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.simulated_device.plays import Plays, Zygote


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    zygote = Zygote()
    yield zygote
    zygote.end()


@pytest.fixture(scope="session")
def play(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Plays:
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "simulated"
    return Plays(zygote, tmp_path_factory.mktemp("plays"), shared)

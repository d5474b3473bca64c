"""What every test needs: nothing of the developer's own environment, and no claim about speed."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

from tests.signals import as_in_a_terminal

# A busy box makes examples slow; that is no fault of what is tested.
settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")

as_in_a_terminal()

for _name in [name for name in os.environ if name.startswith("TRAINMON")] + [
    "NO_COLOR",
    "FORCE_COLOR",
    "RANK",
    "WORLD_SIZE",
]:
    os.environ.pop(_name, None)


LONG = ("e2e", "auto", "zoo", "compare", "tui")  # whose files take minutes


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long files first: one that begins last would run alone."""
    items.sort(key=lambda item: item.path.parent.name not in LONG)


@pytest.fixture(autouse=True)
def _terminals_have_their_own_size() -> None:
    """Textual's screenshots leave COLUMNS and LINES behind, which win over a terminal's real size."""
    for name in ("COLUMNS", "LINES"):
        os.environ.pop(name, None)

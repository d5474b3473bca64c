"""What all tests of unmodified programs share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .inspected import Facts


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Facts]:
    """What is recorded of operations."""
    import torch

    from trainhooks.auto import instrumentation
    from trainhooks.protocol.secrets import mask_config

    said: list[Facts] = []
    put: Callable[[Any], None] = lambda entry: said.append(mask_config(entry[1]["facts"])["ops"])  # noqa: E731
    monkeypatch.setattr(instrumentation.session, "quiet_put", lambda: put)
    torch._dynamo.utils.counters.clear()  # other tests may have compiled
    return said

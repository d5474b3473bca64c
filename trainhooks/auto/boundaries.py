"""Steps and phases of plain PyTorch programs, told from what every training does: fetch, backward, optimizer."""

from __future__ import annotations

from types import ModuleType


def install(_: ModuleType) -> None:
    """Called after `torch.optim.optimizer` has been imported."""

"""How probes are made of texts."""

from __future__ import annotations

from typing import Any

from tests.harmless.compare import PYTHON, Program
from tests.harmless.trainings import masked

TORCH = """
import gc, os, sys, torch
from torch import nn
torch.manual_seed(0); torch.set_num_threads(1)
"""
# Enough steps of one loop that each of them takes the hooks' shortest way. A probe may change anything and train again.
TRAINED = (
    TORCH
    + """
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
data = torch.utils.data.TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
loader = torch.utils.data.DataLoader(data, batch_size=4)
def train():
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad(); loss.backward(); optimizer.step()
    return loss.item().hex()
print(train())
"""
)


def probes(family: str, texts: dict[str, str], before: str = TRAINED, **further: Any) -> tuple[Program, ...]:
    """Return a program for each text, by its name; `before` is put before each."""
    given: dict[str, Any] = {"command": (PYTHON, "train.py"), "masked": masked, "ends": 0, **further}
    return tuple(
        Program(name, family, files={"train.py": before + text, **given.get("files", {})}, **_without_files(given))
        for name, text in texts.items()
    )


def _without_files(given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name != "files"}

"""Nothing of the training lives longer than without trainmon: no tensor of a step, and no model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.auto.watched import LIMIT, ROOT, SCRIPTS, environment, watched


@pytest.mark.long
def test_a_function_that_trains_can_let_go_of_its_model_and_its_first_step(tmp_path: Path) -> None:
    seen = watched(tmp_path, str(SCRIPTS / "weighed.py"))
    assert "left: 0\n" in seen.out, seen.err


@pytest.mark.long
@pytest.mark.parametrize(
    "script", [("plain_loop.py",), ("accelerate_loop.py",), ("lightning_fit.py", "lightning"), ("trl_grpo.py",)]
)
def test_at_the_last_step_the_same_tensors_live_as_without(tmp_path: Path, script: tuple[str, ...]) -> None:
    command = [str(SCRIPTS / "weighed.py"), str(SCRIPTS / script[0]), *script[1:]]
    bare = subprocess.run(
        [sys.executable, *command], env=environment(tmp_path), cwd=ROOT, capture_output=True, text=True, timeout=LIMIT
    )
    alive = [line for line in bare.stdout.splitlines() if line.startswith("alive:")]
    assert alive, bare.stderr
    # What is kept is kept in every run; a sample of the stack holds a frame for some microseconds of one.
    assert alive in (
        [line for line in watched(tmp_path / name, *command).out.splitlines() if line.startswith("alive:")]
        for name in ("first", "second", "third")
    )


SWAPPED = """
import weakref
import torch
from torch import nn

torch.manual_seed(0)
model, copied, plain = (nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)) for _ in range(3))
copied.load_state_dict(model.state_dict())
optimizers = torch.optim.Adam(model.parameters(), 1e-2), torch.optim.SGD(plain.parameters(), 1e-2)
x = torch.randn(16, 4)
plain(x).sum().backward()  # a pass before any update
for step in range(40):
    for each, optimizer in zip((model, plain), optimizers):
        with torch.no_grad():
            goal = copied(x + step)
        optimizer.zero_grad()
        (each(x) - goal).square().mean().backward()
        optimizer.step()
held = [one for each in (model, copied, plain) for one in each.parameters()]
print("weak references:", sum(len(weakref.getweakrefs(one)) for one in held))
torch.__future__.set_swap_module_params_on_conversion(True)
for optimizer in optimizers:
    optimizer.zero_grad()
for each in (model, copied, plain):
    each.double()
now = [one for each in (model, copied, plain) for one in each.parameters()]
print("the same:", all(one is other for one, other in zip(held, now)))
"""


@pytest.mark.long
def test_no_parameter_is_referred_to_weakly_so_that_torch_can_swap_it(tmp_path: Path) -> None:
    (tmp_path / "swapped.py").write_text(SWAPPED)
    seen = watched(tmp_path, str(tmp_path / "swapped.py"))
    assert (seen.code, seen.err) == (0, "")
    assert "weak references: 0\n" in seen.out and "the same: True\n" in seen.out
    assert len(seen.events("facts")) > 0

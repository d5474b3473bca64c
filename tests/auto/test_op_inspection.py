"""The inspection of a forward pass leaves the program as it is: errors, modes, devices, compilers, warnings."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from trainhooks.auto.operations import op_inspection

from .inspected import Facts, Function, X, inspect_call
from .watched import both, long


def test_an_error_of_the_model_passes_and_leaves_nothing(recorded: list[Facts]) -> None:
    calls = []

    def forward(x: Any, w: Any) -> Any:
        calls.append(1)
        raise KeyError("theirs")

    with pytest.raises(KeyError, match="theirs"):
        inspect_call(Function(forward, (1,)), X)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        inspect_call(Function(lambda x, w: x @ w, (3, 3)), X)
    assert calls == [1] and recorded == [] and torch.overrides._get_current_function_mode_stack() == []


def test_an_error_of_ours_ends_the_census_alone(recorded: list[Facts], monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def fails(*_: Any) -> Any:
        asked.append(1)
        raise ZeroDivisionError

    monkeypatch.setattr("trainhooks.auto.operations.op_census.products", fails)
    module = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
    assert torch.equal(inspect_call(module, X), module(X))
    assert asked == [1] and recorded == [{"step": 2, "flops_unknown": "ZeroDivisionError"}]


def test_no_tensor_is_kept(recorded: list[Facts]) -> None:
    seen: list[Any] = []

    def forward(x: Any, w: Any) -> Any:
        y = x.reshape(-1, 64) @ w
        seen.append(weakref.ref(y))
        y = y.relu()
        assert seen[0]() is None  # at once, as without us
        scores = F.softmax(x @ x.transpose(1, 2), -1)
        seen.append(weakref.ref(scores))
        return y

    gc.disable()
    try:
        with torch.no_grad():
            out = weakref.ref(inspect_call(Function(forward, (64, 64)), X))
            assert out() is None and all(each() is None for each in seen) and len(recorded) == 1
    finally:
        gc.enable()


def test_default_devices_stay(recorded: list[Facts]) -> None:
    def forward(x: Any, w: Any) -> Any:
        with torch.device("cpu"):
            return x @ w + torch.zeros(3)

    with torch.device("cpu"):
        before = torch.overrides._get_current_function_mode_stack()
        inspect_call(Function(forward, (64, 3)), X)
        assert torch.overrides._get_current_function_mode_stack() == before
    torch.set_default_device("cpu")
    try:
        inspect_call(Function(forward, (64, 3)), X)
    finally:
        torch.set_default_device(None)
    assert len(recorded) == 2 and all("flops_unknown" not in facts for facts in recorded)
    assert torch.overrides._get_current_function_mode_stack() == []


def test_what_the_program_leaves_on_the_stack_stays_there(recorded: list[Facts]) -> None:
    class Theirs(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    theirs = Theirs()
    inspect_call(Function(lambda x, w: (theirs.__enter__(), x * w)[1], (64,)), X)
    try:
        assert torch.overrides._get_current_function_mode_stack() == [theirs]
        inspect_call(nn.Linear(64, 3), X)
        assert recorded[-1]["flops_unknown"] == "another mode overrides torch's functions"
    finally:
        theirs.__exit__(None, None, None)


def test_a_stack_that_a_compiler_takes_away_and_puts_back(recorded: list[Facts]) -> None:
    """What it says of its begin comes while the stack is empty."""

    def forward(x: Any, w: Any) -> Any:
        ours = torch.overrides._pop_mode()  # type: ignore[no-untyped-call]
        torch._dynamo.callback.callback_handler.run_start_callbacks(None)  # type: ignore[arg-type]
        torch.overrides._push_mode(ours)  # type: ignore[no-untyped-call]
        return x @ w

    inspect_call(Function(forward, (64, 3)), X)
    assert torch.overrides._get_current_function_mode_stack() == []  # type: ignore[no-untyped-call]
    assert "compiled" in recorded[0]["flops_unknown"]


@pytest.mark.parametrize(
    ("module", "says"),
    [
        (lambda: nn.DataParallel(nn.Linear(64, 3)), "DataParallel"),
        (lambda: nn.Sequential(torch.jit.trace(nn.Linear(64, 3), X)), "scripted"),
        (lambda: nn.Sequential(nn.TransformerEncoderLayer(64, 4).eval(), nn.Linear(64, 3)), "fast path"),
        (lambda: torch.compile(nn.Linear(64, 3), backend="eager"), "compiled"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_where_it_cannot_be_seen_it_is_said(recorded: list[Facts], module: Any, says: str) -> None:
    inspect_call(module(), X)
    assert says in recorded[0]["flops_unknown"] and "flops_forward" not in recorded[0]


def test_several_models(recorded: list[Facts]) -> None:
    one, other = nn.Linear(64, 3), nn.Linear(64, 3)
    found = op_inspection.OpInspection()
    assert not found.is_due(one, 1) and found.is_due(one, 2)
    found.call_for(torch, one)(X)
    assert not found.is_due(nn.Sequential(one), 2)  # wrapped since
    assert not found.is_due(other, 2) and not found.is_due(other, 3) and not found.is_due(one, 3)
    assert "flops_unknown" not in recorded[0] and recorded[1:] == [{"flops_unknown": op_inspection.SEVERAL}]


def test_trainings_of_one_kind_one_after_the_other(recorded: list[Facts]) -> None:
    found, model = op_inspection.OpInspection(), nn.Linear(64, 3)
    assert not found.is_due(model, 1) and found.is_due(model, 2)
    found.call_for(torch, model)(X)
    del model
    gc.collect()
    assert not found.is_due(nn.Linear(64, 3), 3) and len(recorded) == 1


def test_a_model_that_was_wrapped_after_its_first_call_is_one_model(recorded: list[Facts]) -> None:
    inner = nn.Linear(64, 3)
    outer, found = nn.Sequential(inner), op_inspection.OpInspection()
    assert not found.is_due(inner, 1) and not found.is_due(outer, 2) and found.is_due(outer, 3)
    found.call_for(torch, outer)(X)
    assert "flops_unknown" not in recorded[0] and recorded[0]["step"] == 3


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda x, w: torch.func.vmap(lambda row: row @ w)(x), "torch.func"),
        (lambda x, w: torch.autograd.grad((x @ w).sum(), w, create_graph=True)[0], "gradients are computed"),
    ],
)
def test_operations_that_are_not_whole(recorded: list[Facts], function: Callable[..., Any], says: str) -> None:
    inspect_call(Function(function, (64, 3)), X)
    assert says in recorded[0]["flops_unknown"] and recorded[0]["flops_forward"] > 0


def test_what_somebody_put_in_the_place_of_torchs_functions_runs_once(
    recorded: list[Facts], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = []

    def replaced(owner: Any, name: str) -> None:
        plain = getattr(owner, name)

        def method(*args: Any, **kwargs: Any) -> Any:
            ran.append(name)
            return plain(*args, **kwargs) * 2

        monkeypatch.setattr(owner, name, method)

    for name in ("matmul", "relu", "norm"):  # the last one is Python's
        replaced(torch.Tensor, name)
    for name in ("softmax", "linear"):
        replaced(F, name)
    module = Function(lambda x, w: F.softmax(F.linear(x, w).matmul(w).relu(), -1) / x.norm(), (64, 64))
    plain, once = module(X), ran[:]
    ran.clear()
    assert torch.equal(inspect_call(module, X), plain) and ran == once
    assert recorded[0]["flops_forward"] == 2 * 2 * 512 * 64 * 64


SCRIPT = """
import sys, torch
from torch._dynamo.testing import CompileCounter
from trainhooks.auto import instrumentation
from trainhooks.auto.operations import op_inspection
counter = CompileCounter()
recorded = []
instrumentation.session.quiet_put = lambda: lambda entry: recorded.append(entry[1]["facts"]["ops"])
inner = torch.compile(lambda x, w: (x @ w).relu().sum(), backend=counter)
class Late(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.randn(8, 8))
    def forward(self, x):
        return inner(x @ self.w, self.w)
model = Late()
inspection = op_inspection.OpInspection()
inspection.is_due(model, 1), inspection.is_due(model, 2)
call = inspection.call_for(torch, model)
for _ in range(3):
    call(torch.randn(4, 8)).backward()
    call = model
print(counter.frame_count, counter.op_count, len(torch.overrides._get_current_function_mode_stack()), recorded)
"""


@pytest.mark.long
def test_what_compiles_during_the_pass_compiles_once() -> None:
    ended = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=100, check=True)
    frames, operations, modes, facts = ended.stdout.split(maxsplit=3)
    assert (frames, operations, modes) == ("1", "3", "0"), ended.stderr
    assert "compiled" in facts


WARNED = """
import torch
from trainhooks.auto import instrumentation
from trainhooks.auto.operations import op_inspection
torch._dynamo.utils.counters
instrumentation.session.quiet_put = lambda: print
class Model(torch.nn.Linear):
    def forward(self, x):
        torch.tensor(x)
        return super().forward(x)
model, inspection, call = Model(3, 3), op_inspection.OpInspection(), None
for step in range(3):
    call = inspection.call_for(torch, model) if inspection.is_due(model, step) else model
    call(torch.randn(2, 3)).sum().backward()
"""


@pytest.mark.long
def test_what_the_program_is_warned_of_it_is_warned_of_once() -> None:
    ended = subprocess.run([sys.executable, "-c", WARNED], capture_output=True, text=True, timeout=100, check=True)
    assert "flops_forward" in ended.stdout
    assert ended.stderr.count("To copy construct from a tensor") == 1


@pytest.mark.long
@pytest.mark.parametrize("script", ["plain_loop.py", long("plain_accumulation.py")])
def test_a_run_tells_its_operations(tmp_path: Any, script: str) -> None:
    run = both(tmp_path, script)
    recorded = [event["facts"]["ops"] for event in run.events("facts") if "ops" in event.get("facts", {})]
    assert len(recorded) == 1 and recorded[0]["flops_forward"] > 0 and "flops_unknown" not in recorded[0]
    assert run.facts["batch"]["bytes"] > 0

"""One forward pass looked at: its operations counted as torch counts them, and the program none the wiser."""

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
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from trainhooks.auto import op_look
from trainhooks.facts import masked_config

from .watched import both

Facts = dict[str, Any]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Facts]:
    """What is told of operations."""
    said: list[Facts] = []
    put: Callable[[Any], None] = lambda entry: said.append(masked_config(entry[1]["facts"])["ops"])  # noqa: E731
    monkeypatch.setattr(op_look.session, "quiet_put", lambda: put)
    torch._dynamo.utils.counters.clear()  # other tests may have compiled
    return said


def look(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    """The second call of a model, looked at."""
    found = op_look.Look()
    assert not found.due(module, 1) and found.due(module, 2)
    call = found.at(torch, module)
    assert found.done and not found.due(module, 3)
    return call(*args, **kwargs)


def counted(module: nn.Module, *args: Any, **kwargs: Any) -> tuple[int, int]:
    """FLOPs forward and backward, as torch counts them. In plain kernels, for the fused ones compute scores again."""
    with sdpa_kernel(SDPBackend.MATH):
        with FlopCounterMode(display=False) as forward:
            loss = _loss(module(*args, **kwargs))
        with FlopCounterMode(display=False) as backward:
            loss.backward()
    return forward.get_total_flops(), backward.get_total_flops()


def _loss(output: Any) -> Any:
    output = output[0] if isinstance(output, tuple) else getattr(output, "logits", output)
    return output.float().sum()


class Function(nn.Module):
    """A function with weights."""

    def __init__(self, function: Callable[..., Any], *shapes: tuple[int, ...]) -> None:
        super().__init__()
        self.weights = nn.ParameterList([nn.Parameter(torch.randn(shape) * 0.1) for shape in shapes])
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args, *self.weights)


class Attention(nn.Module):
    def __init__(self, by_hand: bool, heads: int = 4) -> None:
        super().__init__()
        self.by_hand, self.heads = by_hand, heads
        self.qkv, self.out = nn.Linear(64, 192), nn.Linear(64, 64)

    def forward(self, x: Any) -> Any:
        b, length, width = x.shape
        q, k, v = (each.view(b, length, self.heads, -1).transpose(1, 2) for each in self.qkv(x).split(width, 2))
        if self.by_hand:
            scores = (q @ k.transpose(-2, -1)) * q.shape[-1] ** -0.5
            mask = torch.ones(length, length, dtype=torch.bool).tril()
            y = F.dropout(F.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1), 0.1) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, length, width))


class Fused(nn.MultiheadAttention):
    def forward(self, x: Any) -> Any:  # type: ignore[override]
        return super().forward(x, x, x, need_weights=False)


class Adapted(nn.Module):
    """A frozen layer with a trained product of low rank beside it, twice."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.ModuleList([nn.Linear(64, 64).requires_grad_(False) for _ in range(2)])
        self.down = nn.ModuleList([nn.Linear(64, 8, bias=False) for _ in range(2)])
        self.up = nn.ModuleList([nn.Linear(8, 64, bias=False) for _ in range(2)])

    def forward(self, x: Any) -> Any:
        for frozen, down, up in zip(self.frozen, self.down, self.up, strict=True):
            x = frozen(x) + up(down(x))
        return x


X = torch.randn(4, 128, 64)
IMAGE = torch.randn(2, 8, 16, 16)
CASES: dict[str, tuple[Callable[[], nn.Module], tuple[Any, ...]]] = {
    "perceptron": (lambda: nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 32)), (X,)),
    "input that learns": (lambda: nn.Linear(64, 96), (X.clone().requires_grad_(),)),
    "images": (lambda: nn.Sequential(nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Conv2d(16, 8, 3, 2)), (IMAGE,)),
    "transposed": (lambda: nn.Sequential(nn.Conv2d(8, 4, 1), nn.ConvTranspose2d(4, 8, 3, stride=2)), (IMAGE,)),
    "sound": (lambda: nn.Conv1d(64, 32, 5, dilation=2), (X.transpose(1, 2),)),
    "volumes": (lambda: nn.Conv3d(2, 4, 3), (torch.randn(1, 2, 8, 8, 8),)),
    "encoder": (lambda: nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), (X,)),
    "multi-head": (lambda: nn.MultiheadAttention(64, 4, batch_first=True), (X, X, X)),
    "multi-head, fused": (lambda: Fused(64, 4, batch_first=True), (X,)),
    "multi-head across": (lambda: nn.MultiheadAttention(64, 4, kdim=32, vdim=16), (X, X[:2, :, :32], X[:2, :, :16])),
    "by hand": (lambda: Attention(True), (X,)),
    "sdpa": (lambda: Attention(False), (X,)),
    "einsum": (lambda: Function(lambda x, w: torch.einsum("bld,edh->bleh", x, w), (3, 64, 16)), (X,)),
    "einsum, dots": (lambda: Function(lambda x, w: torch.einsum("...d,dh->...h", x, w), (64, 16)), (X,)),
    "einsum, batches": (lambda: Function(lambda x, w: torch.einsum("bld,bmd->blm", x * w, x), (64,)), (X,)),
    "einsum, elements": (lambda: Function(lambda x, w: torch.einsum("bld,d->bld", x, w) @ x[0].T, (64,)), (X,)),
    "broadcast": (lambda: Function(lambda x, w: torch.matmul(w, x), (5, 1, 16, 128)), (X,)),
    "operator": (lambda: Function(lambda x, w: x.reshape(-1, 64) @ w, (64, 24)), (X,)),
    "addmm": (lambda: Function(lambda x, w: torch.addmm(w[:1, :24].detach(), x[0], w), (64, 24)), (X,)),
    "baddbmm": (lambda: Function(lambda x, w: torch.baddbmm(x[:, :, :9], x, w), (4, 64, 9)), (X,)),
    "operators of torch": (lambda: Function(lambda x, w: torch.ops.aten.mm(x[0], w), (64, 24)), (X,)),
    "tensordot": (lambda: Function(lambda x, w: torch.tensordot(x, w, dims=1), (64, 24)), (X,)),
    "adapters": (Adapted, (X,)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operations_are_what_torch_counts(told: list[Facts], name: str) -> None:
    torch.manual_seed(0)
    make, args = CASES[name]
    module = make()
    expected = counted(module, *args)
    torch.manual_seed(1)
    plain = module(*args)
    torch.manual_seed(1)
    seen = look(module, *args)
    for one, other in zip(*(each if isinstance(each, tuple) else (each,) for each in (plain, seen)), strict=True):
        assert one is other is None or torch.equal(one, other)
    assert torch.overrides._get_current_function_mode_stack() == []
    (facts,) = told
    assert facts["flops_forward"] == pytest.approx(expected[0], rel=0.01)
    assert facts["flops_backward"] == pytest.approx(expected[1], rel=0.01)
    assert sum(facts["flops_by_dtype"].values()) == facts["flops_forward"] + facts["flops_backward"]
    assert "flops_unknown" not in facts and facts["step"] == 2 and facts["syncs"] == [] and "copies" not in facts


def test_groups_of_channels(told: list[Facts]) -> None:
    """Torch's own count of their backward pass is that of no groups; forward it is right."""
    module = nn.Sequential(nn.Conv2d(8, 16, 3, groups=4), nn.ConvTranspose2d(16, 8, 3, groups=2))
    expected = counted(module, IMAGE)[0]
    look(module, IMAGE.to(memory_format=torch.channels_last))
    first = 2 * (2 * 16 * 14 * 14) * (2 * 9)
    second = expected - first
    assert told[0]["flops_forward"] == expected and told[0]["flops_backward"] == first + 2 * second
    assert told[0]["conv"]["count"] == 2 and told[0]["conv"]["share"] == 1.0 and told[0]["conv"]["channels_last"] > 0


@pytest.mark.parametrize(("kind", "gates"), [(nn.LSTM, 4), (nn.GRU, 3), (nn.RNN, 1)])
@pytest.mark.parametrize("packed", [False, True])
def test_recurrent_layers(told: list[Facts], kind: Any, gates: int, packed: bool) -> None:
    module = kind(64, 32, num_layers=2, bidirectional=True, batch_first=True)
    given = nn.utils.rnn.pack_padded_sequence(X, [128] * 4, batch_first=True) if packed else X
    look(module, given)
    forward = 2 * 4 * 128 * gates * 2 * (32 * (64 + 32) + 32 * (64 + 32))
    first = 2 * 4 * 128 * gates * 2 * 32 * 64
    assert told[0]["flops_forward"] == forward and told[0]["flops_backward"] == 2 * forward - first


def _language_model(family: str, attention: str) -> Any:
    import transformers

    more = {"vocab_size": 300, "bos_token_id": None, "eos_token_id": None, "attn_implementation": attention}
    if family == "gpt2":
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=64, n_layer=2, n_head=4, **more))
    shape = {"hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2, "num_attention_heads": 4}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(num_key_value_heads=2, **shape, **more))


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_language_models(told: list[Facts], family: str, attention: str) -> None:
    model, tokens = _language_model(family, attention), torch.randint(0, 300, (2, 160))
    expected = counted(model, input_ids=tokens)
    look(model, input_ids=tokens)
    (facts,) = told
    assert facts["flops_forward"] == pytest.approx(expected[0], rel=0.01)
    assert facts["flops_backward"] == pytest.approx(expected[1], rel=0.01)
    assert facts["flops_attention"] == 12 * 2 * 64 * 160 * (2 * 160)  # layers, width, length, positions
    assert (facts["batch"], facts["length"], facts["positions"]) == (2, 160, 320)
    written = facts.get("attention_written_out")
    assert (facts["sdpa"], written is None) == ((2, True) if attention == "sdpa" else (0, False))
    if written:
        matrix = 2 * 4 * 160 * 160 * 4
        assert written["count"] == 2 and 2 * 3 * matrix <= written["bytes"] <= 2 * 6 * matrix
        assert written["length"] == 160 and "modeling_" in written["place"]


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputation_is_told_apart(told: list[Facts], reentrant: bool) -> None:
    model, tokens = _language_model("llama", "sdpa"), torch.randint(0, 300, (2, 64))
    expected = counted(model, input_ids=tokens)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    model.enable_input_require_grads()
    look(model, input_ids=tokens)
    assert (told[0]["flops_forward"], told[0]["flops_backward"]) == expected
    assert told[0]["flops_recompute"] == pytest.approx(expected[0] - 2 * 2 * 64 * 64 * 300)  # all but the head


class Own(torch.autograd.Function):
    """Of a program's own; it may start any kernels."""

    @staticmethod
    def forward(ctx: Any, x: Any, w: Any) -> Any:  # type: ignore[override]
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:  # type: ignore[override]
        x, w = ctx.saved_tensors
        return gradient @ w.T, x.transpose(1, 2).sum(0) @ gradient.sum(0)


@pytest.mark.parametrize("last", [True, False])
def test_functions_of_the_programs_own(told: list[Facts], last: bool) -> None:
    """What they do by torch's functions is counted; what they start besides is not known."""
    look(Function(lambda x, w: Own.apply(x, w) if last else Own.apply(x, w) * 2, (64, 32)), X)
    assert told[0]["flops_forward"] == told[0]["flops_backward"] == 2 * 512 * 64 * 32
    assert "launches" not in told[0] and told[0]["calls"] > 0


def test_attention_by_hand_is_seen_as_such(told: list[Facts]) -> None:
    look(Attention(True), X)
    matrix = 4 * 4 * 128 * 128 * 4
    written = told[0]["attention_written_out"]
    assert written["count"] == 1 and written["bytes"] == 5 * matrix  # product, scaled, masked, softmax, dropout
    assert written["place"].startswith("tests/auto/test_op_census.py:")
    look(Attention(True), X[:, :64])
    assert "attention_written_out" not in told[1]  # too short to be worth it
    assert told[1]["flops_attention"] > 0
    look(nn.MultiheadAttention(64, 4, batch_first=True), X, X, X)
    assert told[2]["attention_written_out"]["bytes"] == 2 * matrix


def test_what_a_product_is_computed_in(told: list[Facts]) -> None:
    module = nn.Sequential(nn.Linear(64, 96), nn.Linear(96, 101))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        look(module, X)
    assert list(told[0]["flops_by_dtype"]) == ["bfloat16"]
    assert told[0]["misaligned"]["shapes"] == ["512x101x96"] and 0.4 < told[0]["misaligned"]["share"] < 0.8
    look(module.double(), X.double())
    assert list(told[1]["flops_by_dtype"]) == ["float64"] and told[1]["misaligned"]["shapes"] == []


def test_an_odd_number_of_rows_is_none_of_odd_length(told: list[Facts]) -> None:
    """Texts that are padded to the longest of a batch: their number times its length is what it is."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        look(nn.Sequential(nn.Linear(64, 96), nn.Linear(96, 128)), X[:3, :127])
    assert told[0]["misaligned"] == {"share": 0.0, "shapes": []}


@pytest.fixture
def on_device(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], Any]:
    """Tensors that say they are on a GPU: those that this was called with."""
    marked: dict[int, Any] = {}
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda self: id(self) in marked), raising=False)

    def mark(tensor: Any) -> Any:
        marked[id(tensor)] = tensor
        return tensor

    return mark


def test_waits_and_copies_by_line(told: list[Facts], on_device: Callable[[Any], Any]) -> None:
    x, mask, host = on_device(torch.randn(8, 8)), on_device(torch.ones(8, 8, dtype=torch.bool)), torch.ones(3)
    scalar = on_device(torch.ones(()))

    def forward(weight: Any) -> Any:
        for _ in range(3):
            scalar.item()
        if scalar:
            x[mask], x[0], host.sum().item()
        torch.where(mask), torch.where(mask, x, x), x.nonzero(), torch.unique(x)
        x.to("cpu"), x.to("cpu", non_blocking=True), host.to(x), host.tolist()
        host.copy_(x[0, :3])
        x[mask] = 0.0
        return weight * 2

    look(Function(forward, (1,)))
    waits = {(row["call"], row["count"]) for row in told[0]["syncs"]}
    once = {("bool()", 1), ("[mask]", 1), (".where", 1), (".nonzero", 1), (".unique", 1), (".to", 1)}
    assert waits == {(".item", 3), *once}
    assert all(row["place"].startswith("tests/auto/test_op_census.py:") for row in told[0]["syncs"])
    copies = told[0]["copies"]
    assert (copies["d2h"], copies["d2h_calls"]) == (2 * 256, 2)
    assert (copies["h2d"], copies["h2d_calls"], copies["h2d_pageable"]) == (12, 1, 12)
    assert told[0]["flops_unknown"] == "no matrix product was seen"


def test_an_error_of_the_model_passes_and_leaves_nothing(told: list[Facts]) -> None:
    calls = []

    def forward(x: Any, w: Any) -> Any:
        calls.append(1)
        raise KeyError("theirs")

    with pytest.raises(KeyError, match="theirs"):
        look(Function(forward, (1,)), X)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        look(Function(lambda x, w: x @ w, (3, 3)), X)
    assert calls == [1] and told == [] and torch.overrides._get_current_function_mode_stack() == []


def test_an_error_of_ours_ends_the_census_alone(told: list[Facts], monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def fails(*_: Any) -> Any:
        asked.append(1)
        raise ZeroDivisionError

    monkeypatch.setattr("trainhooks.auto.op_census.products", fails)
    module = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
    assert torch.equal(look(module, X), module(X))
    assert asked == [1] and told == [{"step": 2, "flops_unknown": "ZeroDivisionError"}]


def test_no_tensor_is_kept(told: list[Facts]) -> None:
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
            out = weakref.ref(look(Function(forward, (64, 64)), X))
            assert out() is None and all(each() is None for each in seen) and len(told) == 1
    finally:
        gc.enable()


def test_default_devices_stay(told: list[Facts]) -> None:
    def forward(x: Any, w: Any) -> Any:
        with torch.device("cpu"):
            return x @ w + torch.zeros(3)

    with torch.device("cpu"):
        before = torch.overrides._get_current_function_mode_stack()
        look(Function(forward, (64, 3)), X)
        assert torch.overrides._get_current_function_mode_stack() == before
    torch.set_default_device("cpu")
    try:
        look(Function(forward, (64, 3)), X)
    finally:
        torch.set_default_device(None)
    assert len(told) == 2 and all("flops_unknown" not in facts for facts in told)
    assert torch.overrides._get_current_function_mode_stack() == []


def test_what_the_program_leaves_on_the_stack_stays_there(told: list[Facts]) -> None:
    class Theirs(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    theirs = Theirs()
    look(Function(lambda x, w: (theirs.__enter__(), x * w)[1], (64,)), X)
    try:
        assert torch.overrides._get_current_function_mode_stack() == [theirs]
        look(nn.Linear(64, 3), X)
        assert told[-1]["flops_unknown"] == "another mode overrides torch's functions"
    finally:
        theirs.__exit__(None, None, None)


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
def test_where_it_cannot_be_seen_it_is_said(told: list[Facts], module: Any, says: str) -> None:
    look(module(), X)
    assert says in told[0]["flops_unknown"] and "flops_forward" not in told[0]


def test_several_models(told: list[Facts]) -> None:
    one, other = nn.Linear(64, 3), nn.Linear(64, 3)
    found = op_look.Look()
    assert not found.due(one, 1) and found.due(one, 2)
    found.at(torch, one)(X)
    assert not found.due(nn.Sequential(one), 2)  # wrapped since
    assert not found.due(other, 2) and not found.due(other, 3) and not found.due(one, 3)
    assert "flops_unknown" not in told[0] and told[1:] == [{"flops_unknown": op_look.SEVERAL}]


def test_trainings_of_one_kind_one_after_the_other(told: list[Facts]) -> None:
    found, model = op_look.Look(), nn.Linear(64, 3)
    assert not found.due(model, 1) and found.due(model, 2)
    found.at(torch, model)(X)
    del model
    gc.collect()
    assert not found.due(nn.Linear(64, 3), 3) and len(told) == 1


def test_a_model_that_was_wrapped_after_its_first_call_is_one_model(told: list[Facts]) -> None:
    inner = nn.Linear(64, 3)
    outer, found = nn.Sequential(inner), op_look.Look()
    assert not found.due(inner, 1) and not found.due(outer, 2) and found.due(outer, 3)
    found.at(torch, outer)(X)
    assert "flops_unknown" not in told[0] and told[0]["step"] == 3


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda x, w: torch.func.vmap(lambda row: row @ w)(x), "torch.func"),
        (lambda x, w: torch.autograd.grad((x @ w).sum(), w, create_graph=True)[0], "gradients are asked for"),
    ],
)
def test_operations_that_are_not_whole(told: list[Facts], function: Callable[..., Any], says: str) -> None:
    look(Function(function, (64, 3)), X)
    assert says in told[0]["flops_unknown"] and told[0]["flops_forward"] > 0


def test_what_somebody_put_in_the_place_of_torchs_functions_runs_once(
    told: list[Facts], monkeypatch: pytest.MonkeyPatch
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
    assert torch.equal(look(module, X), plain) and ran == once
    assert told[0]["flops_forward"] == 2 * 2 * 512 * 64 * 64


SCRIPT = """
import sys, torch
from torch._dynamo.testing import CompileCounter
from trainhooks.auto import op_look
counter = CompileCounter()
told = []
op_look.session.quiet_put = lambda: lambda entry: told.append(entry[1]["facts"]["ops"])
inner = torch.compile(lambda x, w: (x @ w).relu().sum(), backend=counter)
class Late(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.randn(8, 8))
    def forward(self, x):
        return inner(x @ self.w, self.w)
model = Late()
look = op_look.Look()
look.due(model, 1), look.due(model, 2)
call = look.at(torch, model)
for _ in range(3):
    call(torch.randn(4, 8)).backward()
    call = model
print(counter.frame_count, counter.op_count, len(torch.overrides._get_current_function_mode_stack()), told)
"""


def test_what_compiles_during_the_pass_compiles_once() -> None:
    ended = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=100, check=True)
    frames, operations, modes, facts = ended.stdout.split(maxsplit=3)
    assert (frames, operations, modes) == ("1", "3", "0"), ended.stderr
    assert "compiled" in facts


WARNED = """
import torch
from trainhooks.auto import op_look
torch._dynamo.utils.counters
op_look.session.quiet_put = lambda: print
class Model(torch.nn.Linear):
    def forward(self, x):
        torch.tensor(x)
        return super().forward(x)
model, look, call = Model(3, 3), op_look.Look(), None
for step in range(3):
    call = look.at(torch, model) if look.due(model, step) else model
    call(torch.randn(2, 3)).sum().backward()
"""


def test_what_the_program_is_warned_of_it_is_warned_of_once() -> None:
    ended = subprocess.run([sys.executable, "-c", WARNED], capture_output=True, text=True, timeout=100, check=True)
    assert "flops_forward" in ended.stdout
    assert ended.stderr.count("To copy construct from a tensor") == 1


@pytest.mark.parametrize("script", ["plain_loop.py", "plain_accumulation.py"])
def test_a_run_tells_its_operations(tmp_path: Any, script: str) -> None:
    run = both(tmp_path, script)
    told = [event["facts"]["ops"] for event in run.events("facts") if "ops" in event.get("facts", {})]
    assert len(told) == 1 and told[0]["flops_forward"] > 0 and "flops_unknown" not in told[0]
    assert run.facts["batch"]["bytes"] > 0

"""The census of one forward pass: its operations counted as torch counts them; attention, dtypes, waits and copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from .inspected import Facts, Function, X, inspect_call


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
def test_operations_are_what_torch_counts(recorded: list[Facts], name: str) -> None:
    torch.manual_seed(0)
    make, args = CASES[name]
    module = make()
    expected = counted(module, *args)
    torch.manual_seed(1)
    plain = module(*args)
    torch.manual_seed(1)
    seen = inspect_call(module, *args)
    for one, other in zip(*(each if isinstance(each, tuple) else (each,) for each in (plain, seen)), strict=True):
        assert one is other is None or torch.equal(one, other)
    assert torch.overrides._get_current_function_mode_stack() == []
    (facts,) = recorded
    assert facts["flops_forward"] == pytest.approx(expected[0], rel=0.01)
    assert facts["flops_backward"] == pytest.approx(expected[1], rel=0.01)
    assert sum(facts["flops_by_dtype"].values()) == facts["flops_forward"] + facts["flops_backward"]
    assert "flops_unknown" not in facts and facts["step"] == 2 and facts["syncs"] == [] and "copies" not in facts


def test_groups_of_channels(recorded: list[Facts]) -> None:
    """Torch's own count of their backward pass is that of no groups; forward it is right."""
    module = nn.Sequential(nn.Conv2d(8, 16, 3, groups=4), nn.ConvTranspose2d(16, 8, 3, groups=2))
    expected = counted(module, IMAGE)[0]
    inspect_call(module, IMAGE.to(memory_format=torch.channels_last))
    first = 2 * (2 * 16 * 14 * 14) * (2 * 9)
    second = expected - first
    assert recorded[0]["flops_forward"] == expected and recorded[0]["flops_backward"] == first + 2 * second
    assert (
        recorded[0]["conv"]["count"] == 2
        and recorded[0]["conv"]["share"] == 1.0
        and recorded[0]["conv"]["channels_last"] > 0
    )


@pytest.mark.parametrize(("kind", "gates"), [(nn.LSTM, 4), (nn.GRU, 3), (nn.RNN, 1)])
@pytest.mark.parametrize("packed", [False, True])
def test_recurrent_layers(recorded: list[Facts], kind: Any, gates: int, packed: bool) -> None:
    module = kind(64, 32, num_layers=2, bidirectional=True, batch_first=True)
    given = nn.utils.rnn.pack_padded_sequence(X, [128] * 4, batch_first=True) if packed else X
    inspect_call(module, given)
    forward = 2 * 4 * 128 * gates * 2 * (32 * (64 + 32) + 32 * (64 + 32))
    first = 2 * 4 * 128 * gates * 2 * 32 * 64
    assert recorded[0]["flops_forward"] == forward and recorded[0]["flops_backward"] == 2 * forward - first


def _language_model(family: str, attention: str) -> Any:
    import transformers

    more = {"vocab_size": 300, "bos_token_id": None, "eos_token_id": None, "attn_implementation": attention}
    if family == "gpt2":
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=64, n_layer=2, n_head=4, **more))
    shape = {"hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2, "num_attention_heads": 4}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(num_key_value_heads=2, **shape, **more))


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_language_models(recorded: list[Facts], family: str, attention: str) -> None:
    model, tokens = _language_model(family, attention), torch.randint(0, 300, (2, 160))
    expected = counted(model, input_ids=tokens)
    inspect_call(model, input_ids=tokens)
    (facts,) = recorded
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
def test_recomputation_is_told_apart(recorded: list[Facts], reentrant: bool) -> None:
    model, tokens = _language_model("llama", "sdpa"), torch.randint(0, 300, (2, 64))
    expected = counted(model, input_ids=tokens)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    model.enable_input_require_grads()
    inspect_call(model, input_ids=tokens)
    assert (recorded[0]["flops_forward"], recorded[0]["flops_backward"]) == expected
    assert recorded[0]["flops_recompute"] == pytest.approx(expected[0] - 2 * 2 * 64 * 64 * 300)  # all but the head


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
def test_functions_of_the_programs_own(recorded: list[Facts], last: bool) -> None:
    """What they do by torch's functions is counted; what they start besides is not known."""
    inspect_call(Function(lambda x, w: Own.apply(x, w) if last else Own.apply(x, w) * 2, (64, 32)), X)
    assert recorded[0]["flops_forward"] == recorded[0]["flops_backward"] == 2 * 512 * 64 * 32
    assert "launches" not in recorded[0] and recorded[0]["calls"] > 0


def test_attention_by_hand_is_seen_as_such(recorded: list[Facts]) -> None:
    inspect_call(Attention(True), X)
    matrix = 4 * 4 * 128 * 128 * 4
    written = recorded[0]["attention_written_out"]
    assert written["count"] == 1 and written["bytes"] == 5 * matrix  # product, scaled, masked, softmax, dropout
    assert written["place"].startswith("tests/auto/test_op_census.py:")
    inspect_call(Attention(True), X[:, :64])
    assert "attention_written_out" not in recorded[1]  # too short to be worth it
    assert recorded[1]["flops_attention"] > 0
    inspect_call(nn.MultiheadAttention(64, 4, batch_first=True), X, X, X)
    assert recorded[2]["attention_written_out"]["bytes"] == 2 * matrix


def test_what_a_product_is_computed_in(recorded: list[Facts]) -> None:
    module = nn.Sequential(nn.Linear(64, 96), nn.Linear(96, 101))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inspect_call(module, X)
    assert list(recorded[0]["flops_by_dtype"]) == ["bfloat16"]
    assert recorded[0]["misaligned"]["shapes"] == ["512x101x96"] and 0.4 < recorded[0]["misaligned"]["share"] < 0.8
    inspect_call(module.double(), X.double())
    assert list(recorded[1]["flops_by_dtype"]) == ["float64"] and recorded[1]["misaligned"]["shapes"] == []


def test_an_odd_number_of_rows_is_none_of_odd_length(recorded: list[Facts]) -> None:
    """Texts that are padded to the longest of a batch: their number times its length is what it is."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inspect_call(nn.Sequential(nn.Linear(64, 96), nn.Linear(96, 128)), X[:3, :127])
    assert recorded[0]["misaligned"] == {"share": 0.0, "shapes": []}


@pytest.fixture
def on_device(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], Any]:
    """Tensors that say they are on a GPU: those that this was called with."""
    marked: dict[int, Any] = {}
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda self: id(self) in marked), raising=False)

    def mark(tensor: Any) -> Any:
        marked[id(tensor)] = tensor
        return tensor

    return mark


def test_waits_and_copies_by_line(recorded: list[Facts], on_device: Callable[[Any], Any]) -> None:
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

    inspect_call(Function(forward, (1,)))
    waits = {(row["call"], row["count"]) for row in recorded[0]["syncs"]}
    once = {("bool()", 1), ("[mask]", 1), (".where", 1), (".nonzero", 1), (".unique", 1), (".to", 1)}
    assert waits == {(".item", 3), *once}
    assert all(row["place"].startswith("tests/auto/test_op_census.py:") for row in recorded[0]["syncs"])
    copies = recorded[0]["copies"]
    assert (copies["d2h"], copies["d2h_calls"]) == (2 * 256, 2)
    assert (copies["h2d"], copies["h2d_calls"], copies["h2d_pageable"]) == (12, 1, 12)
    assert recorded[0]["flops_unknown"] == "no matrix product was seen"

"""The work of a token, the peaks of cards by the driver's names for them, and MFU with its formula."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor import run_facts
from monitor.model.compute.flops import Accelerator, Model, Work, compute_dtype, flops_a_token, mfu_of, model_of
from monitor.model.compute.peaks import PEAKS, ceiling, kind_of, peak_of

H100 = "NVIDIA H100 80GB HBM3"
LLAMA_8B: dict[str, Any] = {
    "class": "LlamaForCausalLM", "model_type": "llama", "parameters": 8_030_261_248,
    "trainable_parameters": 8_030_261_248, "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "head_dim": 128, "vocab_size": 128_256, "tie_word_embeddings": False,
}  # fmt: skip


def read(facts: dict[str, Any]) -> Model:
    return model_of(run_facts.read({"model": facts}).model)


def counted(model: Any, length: int) -> float:
    """FLOPs a token, as torch counts the matrix products of one forward and backward."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    tokens = torch.randint(0, 300, (2, length))
    with FlopCounterMode(display=False) as counter:
        model(input_ids=tokens, labels=tokens).loss.backward()
    return float(counter.get_total_flops()) / (2 * length)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2"])
def test_the_formula_is_what_torch_counts(family: str, tied: bool) -> None:
    import transformers

    more = {"vocab_size": 300, "tie_word_embeddings": tied, "attn_implementation": "eager"}
    more |= {"bos_token_id": None, "eos_token_id": None}
    if family == "gpt2":
        config = transformers.GPT2Config(n_embd=64, n_layer=3, n_head=4, n_positions=128, **more)
    else:
        kind = {"llama": transformers.LlamaConfig, "qwen3": transformers.Qwen3Config}[family]
        shape = {"hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3, "num_attention_heads": 4}
        config = kind(**shape, num_key_value_heads=2, head_dim={"llama": 16, "qwen3": 32}[family], **more)
    model = transformers.AutoModelForCausalLM.from_config(config)
    size = sum(parameter.numel() for parameter in model.parameters())
    names = ("num_hidden_layers", "hidden_size", "num_attention_heads", "head_dim", "vocab_size", "n_positions")
    facts = {name: getattr(config, name, None) for name in names}
    facts |= {"class": type(model).__name__, "parameters": size, "tie_word_embeddings": tied}
    for length in (32, 128):
        # Biases and norms are parameters without matrix products: they weigh on a model this small only.
        assert flops_a_token(read(facts), length) == pytest.approx(counted(model, length), rel=0.02)


def test_a_model_of_eight_billion_by_hand() -> None:
    model = read(LLAMA_8B)
    assert model.matmul_parameters == 8_030_261_248 - 128_256 * 4096
    assert flops_a_token(model, 8192) == 6 * 7_504_924_672 + 12 * 32 * 4096 * 8192
    assert read({**LLAMA_8B, "tie_word_embeddings": True}).matmul_parameters == 8_030_261_248


@pytest.mark.parametrize(
    ("fact", "says"),
    [
        ({"peft": "LORA"}, "LORA"),
        ({"trainable_parameters": 4_000_000}, "frozen"),
        ({"num_local_experts": 8}, "experts"),
        ({"n_routed_experts": 64}, "experts"),
        ({"model_type": "qwen3_moe"}, "experts"),
        ({"model_type": "mixtral"}, "experts"),
        ({"quantization": "bitsandbytes"}, "quantized"),
        ({"is_encoder_decoder": True}, "encoder"),
        ({"hidden_size": None}, "shape"),
        ({"num_hidden_layers": "many"}, "shape"),
        ({"num_attention_heads": None}, "shape"),
        ({"parameters": None}, "shape"),
        ({"vocab_size": None}, "shape"),
        ({"tie_word_embeddings": None}, "shape"),
        ({"class": None}, "shape"),
        ({"parameters": 5}, "shape"),
        ({"sliding_window": 1024}, "sliding window"),
        ({"sharded": True}, "sharded across ranks"),
    ],
)
def test_unknown_where_the_formula_does_not_hold(fact: dict[str, Any], says: str) -> None:
    found = mfu_of(Work(read({**LLAMA_8B, **fact}), 2048.0, "bf16"), 10_000.0, [Accelerator(H100)])
    assert found.share is None and found.of_ceiling is None and found.flops_a_token is None and found.formula == ()
    assert found.unknown is not None and says in found.unknown


def test_a_tied_table_is_no_head_where_the_model_has_none() -> None:
    facts = {**LLAMA_8B, "class": "LlamaForSequenceClassification", "tie_word_embeddings": True}
    assert read(facts).matmul_parameters == 8_030_261_248 - 128_256 * 4096
    assert read({}) == Model()


KNOWN = Work(read(LLAMA_8B), 8192.0, "bf16")


@pytest.mark.parametrize(
    ("work", "rate", "devices", "says"),
    [
        (Work(KNOWN.model, None, "bf16"), 1e4, [Accelerator(H100)], "length"),
        (Work(KNOWN.model, 8192.0, None), 1e4, [Accelerator(H100)], "dtype"),
        (KNOWN, 1e4, [], "GPUs"),
        (KNOWN, 1e4, [Accelerator(None)], "unnamed GPU"),
        (KNOWN, 1e4, [Accelerator(H100), Accelerator("NVIDIA H20")], "NVIDIA H20 not listed"),
        (KNOWN, 1e4, [Accelerator("Tesla T4")], "in bf16 not listed"),
        (KNOWN, None, [Accelerator(H100)], "tokens"),
        (KNOWN, 0.0, [Accelerator(H100)], "tokens"),
    ],
)
def test_unknown_where_an_input_is(work: Work, rate: float | None, devices: list[Accelerator], says: str) -> None:
    found = mfu_of(work, rate, devices)
    assert found.share is None and found.peak is None
    assert found.unknown is not None and says in found.unknown


def test_mfu_with_its_formula() -> None:
    found = mfu_of(KNOWN, 56_000.0, [Accelerator(H100, 1980)] * 8)
    each = 6 * 7_504_924_672 + 12 * 32 * 4096 * 8192
    assert found.share == pytest.approx(56_000 * each / (8 * 989e12))
    assert found.of_ceiling == pytest.approx(found.share), "a clock above the one of the data sheet promises no more"
    assert found.unknown is None
    assert found.formula == (
        "MFU 41% = 56,000 tok/s x 57.9 GFLOP a token / 7,912 TFLOPS",
        "57.9 GFLOP a token = 6 x 7,504,924,672 parameters in matrix products"
        " + 12 x 32 layers x 4,096 wide x 8,192 tokens long",
        "peak: 8 x NVIDIA H100 80GB HBM3, 989 TFLOPS dense in bf16",
        "41% of the 7,912 TFLOPS reachable at the current 1,980 MHz",
    )


def test_a_clocked_down_card_has_a_lower_ceiling() -> None:
    found = mfu_of(KNOWN, 7_000.0, [Accelerator(H100, 1290)])
    assert found.ceiling == pytest.approx(132 * 4096 * 1290e6)
    assert found.share is not None and found.of_ceiling == pytest.approx(found.share * 989e12 / found.ceiling)
    assert found.formula[-1].endswith("reachable at the current 1,290 MHz")
    without = mfu_of(KNOWN, 7_000.0, [Accelerator(H100)])
    assert without.share == found.share and without.ceiling is None and without.of_ceiling is None


@pytest.mark.parametrize(
    ("name", "dtype", "tflops"),
    [
        ("NVIDIA H100 80GB HBM3", "bf16", 989),
        ("NVIDIA H100 PCIe", "bf16", 756),
        ("NVIDIA H200", "bf16", 989),
        ("NVIDIA H200", "tf32", 495),
        ("NVIDIA H200 (SIMULATED)", "fp32", 67),
        ("NVIDIA A100-SXM4-80GB", "bf16", 312),
        ("NVIDIA A100-SXM4-40GB", "fp16", 312),
        ("NVIDIA A100 80GB PCIe", "tf32", 156),
        ("A100-PCIE-40GB", "fp32", 19.5),
        ("NVIDIA A10", "bf16", 125),
        ("NVIDIA L4", "bf16", 121),
        ("NVIDIA L40S", "bf16", 362),
        ("Tesla T4", "fp16", 65),
        ("Tesla T4", "tf32", 8.1),
        ("Tesla V100-SXM2-16GB", "fp16", 125),
        ("NVIDIA GeForce RTX 3090", "bf16", 71),
        ("NVIDIA GeForce RTX 4090", "bf16", 165),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "bf16", 79),
        ("NVIDIA GeForce RTX 5090", "bf16", 209.5),
        ("NVIDIA H100 NVL", "bf16", 835.5),
        ("NVIDIA H200 NVL", "tf32", 417.5),
        ("NVIDIA GH200 480GB", "bf16", 989),
        ("NVIDIA GH200 144G HBM3e", "bf16", 989),
        ("NVIDIA A30", "bf16", 165),
        ("NVIDIA A40", "bf16", 149.7),
        ("NVIDIA RTX A6000", "bf16", 154.8),
        ("NVIDIA RTX 6000 Ada Generation", "bf16", 364.2),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "bf16", 503.8),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "bf16", 438.9),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "bf16", 500),
        ("Tesla V100-PCIE-16GB", "fp16", 112),
        ("Tesla V100S-PCIE-32GB", "fp16", 130),
        ("NVIDIA B200", "bf16", 2250),
        ("NVIDIA B200", "fp32", 75),
        ("AMD Instinct MI300X OAM", "bf16", 1307),
    ],
)
def test_cards_by_the_names_that_drivers_give(name: str, dtype: str, tflops: float) -> None:
    peak = peak_of(name)
    assert peak is not None and peak.tflops(dtype) == tflops


@pytest.mark.parametrize(
    "name",
    [
        None, "", "NVIDIA A10G", "NVIDIA A10M", "NVIDIA L40", "NVIDIA GeForce RTX 3090 Ti", "NVIDIA H20",
        "NVIDIA GeForce RTX 4090 D", "NVIDIA GeForce RTX 5090 Laptop GPU", "NVIDIA GeForce RTX 3080 Laptop GPU",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA H100 80GB HBM3 MIG 3g.40gb", "NVIDIA H100", "Quadro RTX 6000",
        "NVIDIA RTX 5000 Ada Generation", "NVIDIA H100 NVL MIG 1g.12gb", "NVIDIA V100",
        "GRID V100DX-32Q", "NVIDIA GB200", "Quadro RTX 4000", "gpu", "80GB",
    ],
)  # fmt: skip
def test_a_card_that_is_only_like_a_listed_one_is_unknown(name: str | None) -> None:
    assert peak_of(name) is None and ceiling(name, "bf16", 1000) is None


@given(st.text(max_size=60))
def test_any_name_is_taken(name: str) -> None:
    assert peak_of(name) is PEAKS.get(kind_of(name))


# The SM clocks of the data sheets, at which the peak is reached.
BOOST = {
    "v100 sxm": 1530, "t4": 1590, "a10": 1695, "a100": 1410, "l4": 2040, "l40s": 2520, "rtx 3090": 1695,
    "rtx 4090": 2520, "rtx 4090 laptop": 2040, "rtx 5090": 2407, "h100 sxm": 1830, "h100 pcie": 1620, "h200": 1830,
    "gh200": 1830, "h100 nvl": 1545, "h200 nvl": 1545, "v100 pcie": 1380, "v100s": 1597, "a30": 1440, "a40": 1740,
    "rtx a6000": 1800, "rtx 6000 ada": 2505, "rtx pro 6000 blackwell workstation edition": 2617,
    "rtx pro 6000 blackwell max q workstation edition": 2280, "rtx pro 6000 blackwell server edition": 2597,
}  # fmt: skip


def test_every_card_whose_ceiling_is_told_is_checked() -> None:
    assert {kind for kind, peak in PEAKS.items() if peak.sms is not None} == set(BOOST)


@pytest.mark.parametrize("kind", BOOST)
def test_the_ceiling_at_the_boost_clock_is_the_peak(kind: str) -> None:
    """So that a sparse figure, or a wrong count of SMs, cannot slip into the table."""
    peak = PEAKS[kind]
    for dtype in ("tf32", "bf16", "fp16"):
        most, each = peak.tflops(dtype), peak.flop_a_clock(dtype)
        if most is not None:
            assert peak.sms is not None and each is not None
            assert peak.sms * each * BOOST[kind] / 1e6 == pytest.approx(most, rel=0.03)


def test_a_ceiling_never_exceeds_the_peak_and_follows_the_clock() -> None:
    assert ceiling(H100, "bf16", 5000) == 989.0
    assert ceiling(H100, "bf16", 600) == pytest.approx(132 * 4096 * 600 / 1e6)
    assert ceiling(H100, "fp32", 1000) == pytest.approx(132 * 256 * 1000 / 1e6)
    for clock in (None, 0, -5):
        assert ceiling(H100, "bf16", clock) is None
    assert ceiling("NVIDIA B200", "bf16", 1500) is None, "its tensor cores' rate is not in the table"
    assert ceiling("Tesla T4", "bf16", 1500) is None


@pytest.mark.parametrize(
    ("dtypes", "autocast", "precision", "found"),
    [
        (["bfloat16"], None, "highest", "bf16"),
        (["torch.float16"], None, None, "fp16"),
        (["float32"], None, "highest", "fp32"),
        (["float32"], None, "high", "tf32"),
        (["float32"], None, None, None),
        (["float32"], "torch.bfloat16", None, "bf16"),
        (["float32", "bfloat16"], None, "highest", None),
        (["float32", "bfloat16"], "bfloat16", "highest", "bf16"),
        (["float32"], "float8_e4m3fn", None, None),
        (["int8"], None, None, None),
        ([], None, "high", None),
    ],
)
def test_the_format_of_matrix_products(
    dtypes: list[str], autocast: str | None, precision: str | None, found: str | None
) -> None:
    assert compute_dtype(dtypes, autocast, precision) == found


@given(st.integers(1, 10**13), st.integers(1, 500), st.integers(1, 10**5), st.floats(1, 1e6), st.floats(1e-3, 1e9))
def test_more_of_anything_is_more_work(n: int, layers: int, width: int, length: float, rate: float) -> None:
    model = Model(n, layers, width)
    each = flops_a_token(model, length)
    assert each is not None and each > 6 * n and each >= 12 * layers * width * length
    found = mfu_of(Work(model, length, "bf16"), rate, [Accelerator(H100, 1500)] * 2)
    assert found.share is not None and found.of_ceiling is not None and math.isfinite(found.share)
    assert 0 < found.share <= found.of_ceiling

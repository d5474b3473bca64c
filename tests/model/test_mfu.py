"""MFU of whole runs: told where every input of the formula is, and nowhere else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from monitor.model.report import Throughput
from monitor.reports.report_json import as_json
from monitor.reports.run_text import text
from trainhooks.protocol.events import Facts, Gpu

from .conftest import Story, report_of
from .test_flops import LLAMA_8B

H200 = "NVIDIA H200"
EACH = 6 * 7_504_924_672 + 12 * 32 * 4096 * 2048  # FLOP a token at 2,048 tokens
KNOWN: dict[str, Any] = {
    "model": {**LLAMA_8B, "dtypes": {"bfloat16": 8_030_261_248}},
    "optimizer": {"device": "cuda"},
    "autocast": "off",
    "torch": {"matmul_precision": "highest"},
    "devices": ["GPU-a"],
}


def run(
    facts: dict[str, Any] | None = None,
    gpu: dict[str, Any] | None = None,
    step: dict[str, Any] | None = None,
    phases: tuple[str, ...] = ("forward", "backward"),
    **hello: Any,
) -> Story:
    """A run of 20 steps of a second, each 4 sequences of 2,048 tokens."""
    story = Story(**hello).tell(Facts, facts={**KNOWN, **(facts or {})})
    for _ in range(20):
        story.tell(Gpu, **{"uuid": "GPU-a", "name": H200, "utilization": 99.0, "sm_clock": 1980, **(gpu or {})})
        told = {"tokens": 8192, "samples": 4, **(step or {})}
        story.step_with(told, **{name: 1.0 / len(phases) for name in phases})
    return story


def throughput(story: Story, alive: bool = False) -> Throughput:
    return report_of(story, alive=alive).throughput


def test_a_known_run_has_its_mfu_and_the_formula_to_it() -> None:
    found = throughput(run())
    assert found.mfu == pytest.approx(8192 * EACH / 989e12) and found.recent.mfu == pytest.approx(found.mfu)
    assert found.mfu_formula[0].startswith("MFU 40% = 8,192 tok/s x 48.3 GFLOP a token / 989 TFLOPS")
    assert found.mfu_formula[-1] == "peak: 1 x NVIDIA H200, 989 TFLOPS dense in bf16"
    assert found.mfu_unknown is None


def test_the_report_shows_it() -> None:
    report = report_of(run())
    told = text(report)
    assert ", MFU 40%" in told
    assert report.throughput.mfu_formula[0] in told
    assert json.loads(as_json(report))["throughput"]["mfu"] == pytest.approx(report.throughput.mfu)


def test_the_clock_of_now_is_told_of_a_running_run_under_load() -> None:
    assert (
        throughput(run(gpu={"sm_clock": 1290}), alive=True)
        .mfu_formula[-1]
        .endswith("reachable at the current 1,290 MHz")
    )
    assert "MHz" not in str(throughput(run(gpu={"sm_clock": 1290})).mfu_formula)
    assert "MHz" not in str(throughput(run(gpu={"sm_clock": 345, "utilization": 0.0}), alive=True).mfu_formula)


@pytest.mark.parametrize(
    ("facts", "tflops"),
    [
        ({"model": {**KNOWN["model"], "dtypes": {"float32": 1}}}, 67.0),
        ({"model": {**KNOWN["model"], "dtypes": {"float32": 1}}, "torch": {"matmul_precision": "high"}}, 495.0),
        ({"model": {**KNOWN["model"], "dtypes": {"float32": 1}}, "autocast": "bfloat16"}, 989.0),
        ({"model": {**KNOWN["model"], "dtypes": {"float32": 1}}, "config": {"bf16": True}}, 989.0),
        ({"model": {**KNOWN["model"], "dtypes": {"float32": 1}}, "environment": {"NVIDIA_TF32_OVERRIDE": "1"}}, 495.0),
        ({"autocast": None}, 989.0),
    ],
)
def test_the_peak_is_the_one_of_the_format(facts: dict[str, Any], tflops: float) -> None:
    found = throughput(run(facts, step={"tokens": 512, "samples": 1}))
    each = 6 * 7_504_924_672 + 12 * 32 * 4096 * 512
    assert found.mfu == pytest.approx(512 * each / (tflops * 1e12))


@pytest.mark.parametrize(
    ("facts", "gpu", "says"),
    [
        ({"model": {**KNOWN["model"], "peft": "LORA"}}, {}, "adapters (LORA)"),
        ({"model": {**KNOWN["model"], "num_local_experts": 8}}, {}, "experts"),
        ({"model": {**KNOWN["model"], "sharded": True}}, {}, "sharded"),
        ({"model": {}}, {}, "shape"),
        ({"model": {**KNOWN["model"], "dtypes": {"float32": 1, "bfloat16": 1}}}, {}, "dtype"),
        ({"model": {**KNOWN["model"], "dtypes": {"float32": 1}}, "autocast": None}, {}, "dtype"),
        ({"model": {**KNOWN["model"], "dtypes": {"float32": 1}}, "torch": {}}, {}, "dtype"),
        ({"autocast": "bfloat16", "config": {"fp16": True}}, {}, "dtype"),
        ({"accelerate": {"mixed_precision": "fp8"}}, {}, "dtype"),
        ({"config": {"precision": "transformer-engine"}}, {}, "dtype"),
        ({"config": {"packing": True}}, {}, "packed"),
        ({"config": {"parallelism_config": {"tp_size": 2}}}, {}, "across ranks"),
        ({"optimizer": {"device": "cpu"}}, {}, "not on a GPU"),
        ({"updates": {"unused_gradients": {"cut": 1000, "beside": 0}}}, {}, "an untrained model"),
        ({}, {"name": "NVIDIA A10G"}, "NVIDIA A10G not listed"),
        ({}, {"name": None}, "unnamed GPU"),
    ],
)
def test_unknown_stays_unknown_and_says_why(facts: dict[str, Any], gpu: dict[str, Any], says: str) -> None:
    found = throughput(run(facts, gpu))
    assert found.mfu is None and found.recent.mfu is None and found.mfu_formula == []
    assert found.mfu_unknown is not None and says in found.mfu_unknown


@pytest.mark.parametrize("used", [[], ["GPU-b"], ["GPU-a", "GPU-b"]])
def test_a_gpu_that_the_training_does_not_use_or_nobody_reads_makes_none(used: list[str]) -> None:
    """A model on the CPU of a machine with an H200 tells no device, whatever the driver shows."""
    report = report_of(run({"devices": used}))
    assert report.throughput.mfu is None and report.throughput.mfu_unknown is None
    assert "MFU" not in text(report)


def test_steps_that_do_more_than_train_have_none() -> None:
    said = throughput(run(phases=("generation", "training"))).mfu_unknown
    assert said is not None and "generate" in said
    story = run(step={"role": "actor"})
    story.step_with({"tokens": 8192, "samples": 4, "role": "critic"}, forward=1.0)
    said = throughput(story).mfu_unknown
    assert said is not None and "roles" in said


def test_steps_without_tokens_or_lengths_have_none() -> None:
    for step, says in (({"tokens": None}, "length"), ({"samples": None}, "length")):
        said = throughput(run(step=step)).mfu_unknown
        assert said is not None and says in said


def test_more_than_the_peak_is_no_mfu() -> None:
    found = throughput(run(step={"tokens": 40_960, "samples": 20}))
    assert found.mfu is None and found.mfu_unknown is not None and "above 100%" in found.mfu_unknown


def test_each_rank_is_measured_by_its_own_gpus() -> None:
    first, second = run(), run({"devices": ["GPU-b"]}, {"uuid": "GPU-b"}, producer="q", rank=1)
    found = report_of(first, second).throughput
    assert found.mfu == pytest.approx(8192 * EACH / 989e12)
    assert found.mfu_formula[-1] == "rank 0 only: its own tokens on its own GPUs"
    both = throughput(run({"devices": ["GPU-a", "GPU-b"]}).tell(Gpu, uuid="GPU-b", name=H200))
    assert both.mfu == pytest.approx(8192 * EACH / (2 * 989e12))


def test_a_simulated_gpu_is_named_as_such_in_the_formula() -> None:
    found = throughput(run(gpu={"name": "NVIDIA H200 (SIMULATED)", "simulated": True}))
    assert "SIMULATED" in found.mfu_formula[-1]


def test_parameters_that_ranks_share_out_are_told_as_such() -> None:
    import torch
    from torch import distributed
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

    from trainhooks.auto.models.program_facts import model_facts

    model = torch.nn.Linear(4, 4)
    assert "sharded" not in model_facts(model)
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        model.weight = torch.nn.Parameter(distribute_tensor(model.weight.detach(), mesh, [Shard(0)]))
        facts = model_facts(model)
    finally:
        distributed.destroy_process_group()
    assert facts["sharded"] is True and facts["parameters"] == 20


SEEN: dict[str, Any] = {  # of a call on 4 sequences of 1,024 tokens
    "step": 2,
    "flops_forward": 4.0e12,
    "flops_backward": 8.0e12,
    "flops_attention": 3.0e12,
    "flops_by_dtype": {"bfloat16": 11.9e12, "float32": 0.1e12},
    "batch": 4,
    "length": 1024,
    "positions": 4096,
    "input": "4x1024",
}
A_TOKEN = 9e12 / 4096 + 3e12 / 4096 * 2  # at 2,048 tokens


@pytest.mark.parametrize(
    "facts",
    [
        {"model": {}},
        {"model": {**KNOWN["model"], "peft": "LORA"}},
        {"model": {**KNOWN["model"], "num_local_experts": 8}},
        {"model": {}, "config": {"packing": True}},
        {"model": {}, "autocast": None, "torch": {}},
    ],
)
def test_any_model_has_an_mfu_by_the_operations_that_were_seen(facts: dict[str, Any]) -> None:
    found = throughput(run({**facts, "ops": SEEN}))
    assert found.mfu == pytest.approx(8192 * A_TOKEN / 989e12) and found.recent.mfu == pytest.approx(found.mfu)
    assert found.mfu_formula[1] == (
        "3.66 GFLOP a token = 2.2 GFLOP + 715 kFLOP x 2,048 tokens, from the operations of step 2 on 4x1024"
    )
    assert found.mfu_unknown is None


def test_the_formula_and_what_was_seen() -> None:
    """Where they agree the formula stands; where they do not, both are told, and what was seen counts."""
    alike = {**SEEN, "flops_forward": 0.0, "flops_attention": 12 * 32 * 4096 * 1024 * 4096.0}
    alike["flops_forward"] = 4096 * (6 * 7_504_924_672 + 12 * 32 * 4096 * 1024) * 1.05
    alike["flops_backward"] = 0
    assert throughput(run({"ops": alike})).mfu == pytest.approx(8192 * EACH / 989e12)
    assert throughput(run({"ops": alike})).mfu_formula == throughput(run()).mfu_formula
    other = throughput(run({"ops": SEEN}))
    assert other.mfu == pytest.approx(8192 * A_TOKEN / 989e12)
    assert any("the formula gives 48.3 GFLOP" in line for line in other.mfu_formula)


def test_images_are_counted_by_the_sample() -> None:
    conv = {"count": 3, "share": 0.9, "tf32": True}
    seen = {"step": 2, "flops_forward": 1e12, "flops_backward": 2e12, "flops_attention": 0, "batch": 32, "conv": conv}
    seen |= {"flops_by_dtype": {"float32": 3e12}, "input": "32x3x224x224"}
    found = throughput(run({"model": {}, "ops": seen}, step={"tokens": None, "samples": 64}))
    assert found.mfu == pytest.approx(64 * 3e12 / 32 / 495e12)
    assert found.mfu_formula[0].startswith("MFU 1.2% = 64.0 samples/s x 93.8 GFLOP a sample / 495 TFLOPS")
    assert found.mfu_formula[1].endswith("= 3 TFLOP / 32 samples, from the operations of step 2 on 32x3x224x224")
    seen["conv"] = {**conv, "tf32": False}
    assert throughput(run({"ops": seen}, step={"tokens": None, "samples": 64})).mfu == pytest.approx(6e12 / 67e12)


@pytest.mark.parametrize(
    ("ops", "more", "says"),
    [
        (
            {"flops_unknown": "compiled: its operations are not seen"},
            {},
            "compiled: its operations are not seen; model shape unknown",
        ),
        ({**SEEN, "flops_unknown": "what flash_attn computes is not seen"}, {}, "flash_attn"),
        ({**SEEN, "flops_by_dtype": {"float64": 1.0}}, {"autocast": None}, "dtype"),
        ({**SEEN, "flops_forward": 4e18}, {}, "above 100%"),
        ({"calls": 3}, {}, "no operations recorded"),
        (SEEN, {"model": {"is_encoder_decoder": True}}, "encoder-decoder"),
        (SEEN, {"config": {"parallelism_config": {"tp_size": 2}}}, "across ranks"),
    ],
)
def test_operations_that_do_not_tell_make_none(ops: dict[str, Any], more: dict[str, Any], says: str) -> None:
    found = throughput(run({"model": {}, **more, "ops": ops}))
    assert found.mfu is None and found.mfu_unknown is not None and says in found.mfu_unknown


def test_a_formula_stands_where_operations_could_not_be_seen() -> None:
    found = throughput(run({"ops": {"flops_unknown": "compiled: its operations are not seen"}}))
    assert found.mfu == pytest.approx(8192 * EACH / 989e12)


def test_calls_that_share_a_batch_and_calls_that_repeat_it() -> None:
    facts: dict[str, Any] = {"model": {}, "ops": {**SEEN, "batch": 1, "length": 2048}}
    assert throughput(run(facts, step={"forwards": 4})).mfu is not None  # one sample each
    said = throughput(run(facts, step={"forwards": 8})).mfu_unknown
    assert said is not None and "called 8 times a step" in said


def test_a_comparison_knows_the_work_by_operations() -> None:
    from monitor.model.compute.flops import work_of

    assert work_of(report_of(run({"model": {}, "ops": SEEN}))).flops_a_token == pytest.approx(A_TOKEN)
    assert work_of(report_of(run({"model": {}}))).flops_a_token is None


def test_a_split_card_has_no_peak_of_its_own() -> None:
    """CUDA may call an instance by its card's UUID; the card's peak is not what the instance can do."""
    found = throughput(run(gpu={"mig": True}))
    assert found.mfu is None and "MIG" in str(found.mfu_unknown)


def test_a_lower_power_limit_is_told_beside_the_peak() -> None:
    lower = throughput(run(gpu={"power_limit": 450.0, "power_limit_default": 700.0}))
    assert lower.mfu == throughput(run()).mfu, "the peak stays the one of the data sheet"
    assert lower.mfu_formula[-1] == "power limit 450 W of 700 W; the peak is that of the full limit"
    for usual in ({"power_limit": 700.0, "power_limit_default": 700.0}, {"power_limit": 450.0}):
        assert "power limit" not in str(throughput(run(gpu=usual)).mfu_formula)

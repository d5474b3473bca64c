"""What is worth a trial: short, ranked, apart from the findings, and nothing on runs that could not gain."""

from __future__ import annotations

import json

import pytest

from monitor.diagnosis.diagnose import diagnose
from monitor.diagnosis.rule import Evidence
from monitor.diagnosis.suggestions import MAX_SUGGESTIONS, suggest
from monitor.model.report import Report, Suggestion
from monitor.model.summary import make_report, open_work
from monitor.reports.report_json import as_json
from monitor.reports.run_text import markdown, text

from .conftest import Story, around, folded
from .test_hardware_rules import GIB, HALF_EMPTY, RTX, SICK, on_cpu, on_gpu, optimizer
from .test_rules import facts, healthy, padded


def reported(told: Story, alive: bool = False) -> Report:
    state = folded(told)
    about = around(state, alive)
    known = make_report(state, about)
    evidence = Evidence(state, known, open_work(state, about, known.outcome))
    known.findings = diagnose(evidence)
    known.to_try = suggest(evidence, known.findings)
    return known


def tried(told: Story, alive: bool = False) -> list[Suggestion]:
    return reported(told, alive).to_try


def texts(told: Story) -> str:
    return "\n".join(each.text for each in tried(told))


BATCH = {"config": {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 8}}
ROOMY = {"peak_allocated": 50 * GIB}
CHECKPOINTS = {"model": {"class": "M", "gradient_checkpointing": True}}


@pytest.mark.parametrize(
    ("told", "says"),
    [
        (lambda: on_gpu(busy=40.0, n=40), "mixed precision (bf16)"),
        (lambda: on_gpu(allocator=ROOMY, autocast="bfloat16", **CHECKPOINTS), "gradient_checkpointing=False"),
        (
            lambda: on_gpu(allocator=HALF_EMPTY, autocast="bfloat16", **BATCH),
            "per_device_train_batch_size=2 → 4 with gradient_accumulation_steps=8 → 4",
        ),
        (lambda: on_gpu(autocast="bfloat16"), "torch.optim.AdamW(..., fused=True)"),
        (
            lambda: facts(healthy(40).span("checkpoint", 0.3).step(forward=0.1), config={"save_steps": 5}),
            "save_steps=5",
        ),
        (lambda: padded(0.25), "group_by_length"),
        (lambda: on_cpu(loader={"dataloader_pin_memory": True}), "leave out pin_memory=True"),
        (lambda: on_cpu(config={"tf32": True}), "leave out tf32=True"),
        (lambda: on_gpu(config={"tf32": True, "bf16": True}), "tf32=True: it is for fp32"),
        (
            lambda: on_cpu(
                framework="transformers", config={"dataloader_num_workers": 0, "dataloader_prefetch_factor": 4}
            ),
            "leave out dataloader_prefetch_factor=4",
        ),
    ],
)
def test_what_may_help(told: object, says: str) -> None:
    assert callable(told)
    assert says in texts(told())
    assert all(each.because and each.memory for each in tried(told()))


@pytest.mark.parametrize(
    ("told", "says"),
    [
        (lambda: healthy(), ""),
        (lambda: on_gpu(n=4), ""),  # too few steps
        (lambda: on_gpu(busy=10.0, n=40), "precision"),  # no faster kernel helps
        (lambda: on_gpu(), "precision"),  # a finding says it
        (lambda: on_gpu(allocator={"peak_allocated": 70 * GIB}, autocast="bfloat16", **BATCH), "batch_size"),
        (lambda: on_gpu(autocast="bfloat16", optimizer=optimizer(fused=True)), "fused"),
        (lambda: on_gpu(autocast="bfloat16", step={"forward": 1.0, "optimizer": 0.01}), "fused"),
        (lambda: on_cpu(framework="transformers", config={"dataloader_pin_memory": True}), "pin_memory"),  # a default
        (lambda: on_gpu(RTX, config={"tf32": True}), "tf32"),  # little gain, and yet it is made use of
        (lambda: padded(0.6), "group"),  # a finding says it
    ],
)
def test_what_would_not(told: object, says: str) -> None:
    assert callable(told)
    if says:
        assert says not in texts(told())
    else:
        assert tried(told()) == []


def test_a_long_run_that_is_not_compiled() -> None:
    told = on_gpu(autocast="bfloat16", n=60)
    assert "torch.compile(model)" not in [each.text for each in tried(told, alive=True)]  # nobody knows how long it is
    from trainhooks.protocol.events import Facts

    told.tell(Facts, total_steps=10_000)
    assert "torch.compile(model)" in [each.text for each in tried(told, alive=True)]
    assert "torch.compile(model)" not in [each.text for each in tried(facts(told, compile={"graphs": 1}), alive=True)]


@pytest.mark.parametrize("code", SICK)
def test_the_list_stays_short(code: str) -> None:
    assert len(tried(SICK[code]())) <= MAX_SUGGESTIONS


def test_every_format_shows_them() -> None:
    known = reported(on_gpu(allocator=HALF_EMPTY, autocast="bfloat16", **BATCH))
    rows = json.loads(as_json(known))["to_try"]
    assert rows and all(set(row) == {"text", "memory", "because"} for row in rows)
    assert "\nTo try\n" in text(known)
    assert "## To try" in markdown(known)
    assert "activations grow with the batch" in text(known)

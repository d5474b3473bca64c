"""Runs that were recorded on an H100, and what the rules of today say of them.

Some of the programs are the scripts of gpu-check. The others were written by somebody who did not know the rules;
what is wrong with them was written down before they ran.
"""

from __future__ import annotations

import json
import re
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from monitor.reports.report_json import as_json
from monitor.runs.follow import load
from tests.gpu_check.expected import SICK, WELL, Case
from tests.gpu_check.judge import Outcome, said
from trainhooks.protocol import rundir

ARCHIVE = Path(__file__).resolve().parent / "recorded" / "h100.tar.xz"
ABSOLUTE = re.compile(r'"(/[^"\s]+)')
NEUTRAL = ("/home/user/", "/tmp/")  # in place of the directories in which the programs ran

OWN = (
    "sick_attention_by_hand", "sick_channels_first", "sick_deterministic", "sick_empty_cache", "sick_fp32",
    "sick_gpu_shared_beside", "sick_item_each_layer", "sick_launch_blocking", "sick_launch_bound", "sick_losses_kept",
    "sick_misaligned", "sick_pageable_copies", "sick_slow_loader", "sick_small_batch", "sick_unfused_optimizer",
    "well_cuda_graph", "well_dense", "well_evaluation", "well_hf_gpt2", "well_lightning", "well_nanogpt", "well_ppo",
    "well_resnet", "well_trl_sft",
)  # fmt: skip

# Programs of others: nothing but these recordings is kept of them.
FOREIGN = (
    Case("sick_attention_scores.py", ("slow-attention",)),
    Case("sick_distill.py", ("unused-gradients",)),
    Case("sick_dpo_reference.py", ("synchronizing", "pageable-copies"), {"pageable-copies": "half a GB to the host"}),
    Case("sick_few_images.py", ("epoch-start",)),
    Case("sick_gradient_log.py", ("synchronizing",)),
    Case("sick_grpo_code_reward.py", ("sequential-rewards",)),
    Case("sick_lightning_saves.py", ("checkpoint-stall",)),
    Case("sick_lora_sft.py", ("garbage-collection", "debug-settings", "unaccounted-time")),
    Case("sick_lstm_cells.py", ("launch-bound",)),
    Case("sick_moe_sft.py", ("synchronizing",), {"launch-bound": "its kernels are short, too"}),
    Case("sick_offline_dqn.py", ("unaccounted-time",), {"pageable-copies": "what was stacked is copied so"}),
    Case("sick_pix2pix.py", ("unused-gradients",)),
    Case("sick_ppo_gae.py", ("launch-bound",), {"unaccounted-time": "gae() runs in no phase, and is most of it"}),
    Case("sick_probe_backward.py", ("unused-gradients",)),
    Case("sick_reward_model.py", ("padding-waste",)),
    Case("sick_rloo_regex.py", ("no-kv-cache",)),
    Case(
        "sick_sage_sampler.py",
        ("unaccounted-time", "input-bound"),
        {"garbage-collection": "the graph is a list of lists: 8 collections of 0.1 s"},
    ),
    Case("sick_segmentation_iou.py", ("synchronizing",)),
    Case("sick_speech_frontend.py", ("input-bound",)),
    Case("sick_trainer_evaluates.py", ("eval-heavy",)),
    Case("well_dit_ema.py"),
    Case("well_dlrm.py"),
    Case("well_dpo_cached.py"),
    Case("well_gpt_trainer.py"),
    Case("well_grpo_static_cache.py"),
    Case("well_lora_accelerate.py"),
    Case("well_lora_long.py"),
    Case("well_ppo_vectorized.py"),
    Case("well_reward_bucketed.py"),
    Case("well_td3bc.py"),
)

# What the rules do not find in these recordings, and why.
MISSED = {
    "sick_lightning_saves": "one save in 4.5 s",
    "sick_losses_kept": "5.5 s; a leak takes ten to show",
    "sick_pix2pix": "a missing detach() is not looked for",
}


def known() -> dict[str, Case]:
    """Return what is known of each recording, by its name."""
    cases = {each.name: each for each in (*SICK, *WELL) if each.name in OWN}
    then = cases["sick_deterministic"]  # when it was recorded, it multiplied in exact fp32 as well
    cases["sick_deterministic"] = replace(then, accepted=("fp32-matmul", *then.accepted))
    return cases | {each.name: each for each in FOREIGN}


CASES = known()


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpack the recordings: a state directory for each."""
    path = tmp_path_factory.mktemp("recorded")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(path, filter="data")
    return path


def judged(case: Case, states: Path, monkeypatch: pytest.MonkeyPatch) -> Outcome:
    """Return what `trainmon report --json` says of a recording today."""
    state = states / case.name
    monkeypatch.setenv(rundir.STATE_VARIABLE, str(state))
    (run,) = (state / "runs").iterdir()
    return Outcome(case, said(json.loads(as_json(load(run).report))))


def test_every_recording_has_its_case_and_every_case_its_recording(states: Path) -> None:
    assert {path.name for path in states.iterdir()} == set(CASES)
    assert len(CASES) == len(OWN) + len(FOREIGN) == 54
    assert all(each.sick == name.startswith("sick_") for name, each in CASES.items())
    assert all(CASES[name].sick for name in MISSED)


def test_the_paths_in_the_recordings_are_neutral(states: Path) -> None:
    for path in states.glob("*/runs/*/*.json*"):
        assert all(f"{each}/".startswith(NEUTRAL) for each in ABSOLUTE.findall(path.read_text())), path


@pytest.mark.parametrize("name", sorted(name for name in CASES if CASES[name].sick and name not in MISSED))
def test_the_cause_is_named_first_and_nothing_false_is_said(
    name: str, states: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = judged(CASES[name], states, monkeypatch)
    assert outcome.verdict == "ok", outcome.findings


@pytest.mark.parametrize("name", sorted(MISSED))
def test_what_is_missed_is_still_missed_and_nothing_false_is_said(
    name: str, states: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where this fails because the cause is named: take the name out of MISSED, and mend docs/gpu-check.md."""
    outcome = judged(CASES[name], states, monkeypatch)
    assert outcome.verdict == "MISSED", outcome.findings


@pytest.mark.parametrize("name", sorted(name for name in CASES if not CASES[name].sick))
def test_a_healthy_program_has_no_warning(name: str, states: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = judged(CASES[name], states, monkeypatch)
    assert not [each for each in outcome.findings if each.severity in ("warning", "critical")], outcome.findings

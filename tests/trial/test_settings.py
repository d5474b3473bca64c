"""Settings of `trainmon try`: what is accepted, and what each changes in a real program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from monitor.model.batch_argument import with_batch
from trainhooks.protocol import rundir, trial_settings
from trainhooks.protocol.trial_settings import BadSetting

PROGRAM = """
import gc, sys
import torch
from torch.utils.data import DataLoader
torch.set_num_threads(3)
torch.set_float32_matmul_precision("highest")
torch.autograd.set_detect_anomaly(True)
class Rows:
    def __len__(self): return 8
    def __getitem__(self, index): return float(index)
loader = DataLoader(Rows(), 4, True)
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.Adam(model.parameters(), foreach=True)
with torch.profiler.profile():
    optimizer.step()
gc.disable()
loop = []; loop.append(loop); del loop
print({
    "num_workers": loader.num_workers, "persistent_workers": loader.persistent_workers,
    "prefetch_factor": loader.prefetch_factor, "pin_memory": loader.pin_memory, "batch_size": loader.batch_size,
    "threads": torch.get_num_threads(), "matmul_precision": torch.get_float32_matmul_precision(),
    "fused": optimizer.param_groups[0]["fused"], "foreach": optimizer.param_groups[0]["foreach"],
    "detect_anomaly": torch.is_anomaly_enabled(), "cudnn_benchmark": torch.backends.cudnn.benchmark,
    "compile": hasattr(model._compiled_call_impl, "_torchdynamo_orig_callable"),
    "gc_collect": gc.collect() > 0, "trials": "trainhooks.auto.trials" in sys.modules,
})
"""
AS_WRITTEN = {
    "num_workers": 0, "persistent_workers": False, "prefetch_factor": None, "pin_memory": False, "batch_size": 4,
    "threads": 3, "matmul_precision": "highest", "fused": None, "foreach": True, "detect_anomaly": True,
    "cudnn_benchmark": False, "compile": False, "gc_collect": True, "trials": False,
}  # fmt: skip


def seen(tmp_path: Path, settings: str | None) -> dict[str, object]:
    environment = {**os.environ, rundir.RUN_VARIABLE: str(tmp_path), "PYTHONPATH": rundir.BOOTSTRAP}
    if settings is not None:
        environment[trial_settings.VARIABLE] = settings
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=100, check=True
    )
    found: dict[str, object] = eval(done.stdout.splitlines()[-1], {"__builtins__": {}})
    return found


def test_without_the_variable_nothing_is_changed(tmp_path: Path) -> None:
    assert seen(tmp_path, None) == AS_WRITTEN
    assert not (tmp_path / trial_settings.APPLIED).exists()


@pytest.mark.long
@pytest.mark.parametrize(
    ("settings", "changed"),
    [
        (
            {"num_workers": 2, "persistent_workers": True, "prefetch_factor": 4, "pin_memory": True},
            {"num_workers": 2, "persistent_workers": True, "prefetch_factor": 4, "pin_memory": True},
        ),
        ({"persistent_workers": True, "prefetch_factor": 4}, {}),  # no workers: torch refuses both
        ({"threads": 1, "matmul_precision": "high"}, {"threads": 1, "matmul_precision": "high"}),
        ({"fused": True}, {"fused": True, "foreach": False}),
        ({"foreach": False}, {"foreach": False}),
        ({"compile": True, "cudnn_benchmark": True}, {"compile": True, "cudnn_benchmark": True}),
        ({"detect_anomaly": False, "gc_collect": False}, {"detect_anomaly": False, "gc_collect": False}),
    ],
)
def test_each_setting_is_what_the_program_gets(
    tmp_path: Path, settings: dict[str, trial_settings.Value], changed: dict[str, object]
) -> None:
    assert seen(tmp_path, json.dumps(settings)) == {**AS_WRITTEN, **changed, "trials": True}
    applied = tmp_path / trial_settings.APPLIED
    told = [line.partition("=")[0] for line in applied.read_text().splitlines()] if applied.exists() else []
    assert set(told) >= set(settings) if changed else not told


@pytest.mark.parametrize("settings", ['{"os.system": 1}', '{"num_workers": -1}', "[1]", '{"threads": true}', "no"])
def test_what_is_not_known_changes_nothing(tmp_path: Path, settings: str) -> None:
    assert seen(tmp_path, settings) == {**AS_WRITTEN, "trials": True}


@pytest.mark.parametrize("text", ["workers=4", "num_workers", "num_workers=many", "fused=1", "pin_memory=2", ""])
def test_a_mistake_is_told(text: str) -> None:
    with pytest.raises(BadSetting):
        trial_settings.read_words(text)


def test_words_are_read_back() -> None:
    text = "num_workers=4,pin_memory=true,matmul_precision=high"
    settings = trial_settings.read_words(text)
    assert settings == {"num_workers": 4, "pin_memory": True, "matmul_precision": "high"}
    assert trial_settings.words(settings) == text


@pytest.mark.parametrize(
    ("command", "changed"),
    [
        ("python t.py --batch-size 8", "python t.py --batch-size 16"),
        ("t.py --train_batch_size=8 --eval_batch_size 4", "t.py --train_batch_size=16 --eval_batch_size 4"),
        ("python t.py -b 8 --epochs 3", "python t.py -b 16 --epochs 3"),
        ("python -m train data.batch_size=8 lr=3", "python -m train data.batch_size=16 lr=3"),
        ("python t.py --lr 8", None),
        ("python t.py --batch-size", None),
        ("python t.py --batch-size 8 --micro-batch-size 2", None),  # which of the two?
    ],
)  # fmt: skip
def test_the_batch_size_of_a_command(command: str, changed: str | None) -> None:
    found = with_batch(command.split(), 16)
    assert found == (None if changed is None else changed.split())

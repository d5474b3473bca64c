"""What calls and libraries do: threads that really wait there, and names of files and calls."""

from __future__ import annotations

import copy
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from trainhooks.protocol import calls
from trainhooks.protocol.calls import call_activity, effects_of, library_activity
from trainhooks.recording.frames import PERIODS, Sampler


class Gate:
    """Something to wait for, which a test opens at its end."""

    def __init__(self) -> None:
        self.the_lock = threading.Lock()
        self.the_lock.acquire()
        self.items: queue.Queue[int] = queue.Queue()
        self.opened = threading.Event()

    def __deepcopy__(self, memo: Any) -> None:
        self.opened.wait()

    def open(self) -> None:
        self.the_lock.release()
        self.items.put(1)
        self.opened.set()


def enters(gate: Gate) -> None:
    with gate.the_lock:
        pass


def acquires(gate: Gate) -> None:
    gate.the_lock.acquire()


def sleeps(gate: Gate) -> None:
    while not gate.opened.is_set():
        time.sleep(0.2)


def runs(gate: Gate) -> None:
    subprocess.run([sys.executable, "-c", "import time; time.sleep(3)"])


def copies(gate: Gate) -> None:
    copy.deepcopy([gate])


def computes(gate: Gate) -> None:
    while not gate.opened.is_set():
        sum(range(1000))


WAYS: list[tuple[Callable[[Gate], None], str]] = [
    (enters, "lock"),
    (acquires, "lock"),
    (lambda gate: gate.items.get(), "queue"),  # type: ignore[misc, list-item]
    (lambda gate: gate.opened.wait(), "thread"),  # type: ignore[misc, list-item]
    (sleeps, "sleep"),
    (runs, "subprocess"),
    (computes, ""),
]


@pytest.mark.parametrize(("way", "activity"), WAYS, ids=[f"{activity}-{i}" for i, (_, activity) in enumerate(WAYS)])
def test_a_sample_says_what_goes_on_there(way: Callable[[Gate], None], activity: str) -> None:
    gate, sampler = Gate(), Sampler()
    thread = threading.Thread(target=way, args=(gate,), daemon=True)
    thread.start()
    assert thread.ident is not None
    seen: dict[str, int] = {}
    until = time.monotonic() + 30
    while seen.get(activity, 0) < 3 and time.monotonic() < until:  # the first samples may see it on its way there
        if sampler.is_due(time.monotonic()):
            sampler.sample(thread.ident, "other")
        frames = sampler.report(time.monotonic(), is_last=True)
        for _, place, count in frames.rows if frames is not None else ():
            if way.__name__ in ("<lambda>", place.function):
                seen[place.activity] = seen.get(place.activity, 0) + count
        time.sleep(0.02)
    gate.open()
    thread.join()
    assert max(seen, key=seen.__getitem__) == activity, seen


@pytest.mark.parametrize(
    ("frames", "activity"),
    [
        ([("zlib.py", "compress"), ("PIL/PngImagePlugin.py", "_save"), ("matplotlib/figure.py", "savefig")], "plot"),
        ([("matplotlibish/figure.py", "savefig")], None),
        ([("torch/serialization.py", "_save"), ("torch/serialization.py", "save")], "torch.save"),
        ([("torch/serialization.py", "load")], "torch.load"),
        ([("threading.py", "run"), ("threading.py", "_bootstrap")], None),
        ([("threading.py", "wait"), ("queue.py", "get"), ("torch/utils/data/dataloader.py", "_next")], "data loading"),
        ([("sklearn/metrics/_ranking.py", "roc_auc_score")], "metrics"),
        ([("sklearn/svm/_base.py", "fit")], None),
        ([("transformers/tokenization_utils_fast.py", "_batch_encode_plus")], "tokenizer"),
        ([("transformers/trainer.py", "train")], None),
        ([("json/encoder.py", "iterencode")], "JSON"),
        ([("copy.py", "copy")], None),
        ([("torch/distributed/fsdp/fully_sharded.py", "forward")], None),
        (
            [
                ("torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py", "foreach_all_gather"),
                ("torch/nn/modules/module.py", "_call_impl"),
            ],
            "collective",
        ),
    ],
)
def test_the_outermost_library_that_is_known_counts(frames: list[tuple[str, str]], activity: str | None) -> None:
    assert library_activity(frames) == activity


@pytest.mark.parametrize(
    ("call", "activity"),
    [
        ("os.fsync", "fsync"), ("loss.item", "tensor read"), (".item", "tensor read"), ("self.items", None),
        ("time.sleep", "sleep"), ("gc.collect", "garbage collection"), ("pool.collect", None), (None, None),
        ("torch.save", "torch.save"), ("best.save", None), ("self.writer.writerow", "CSV"),
    ],
)  # fmt: skip
def test_a_call_is_named_only_where_its_name_is_clear(call: str | None, activity: str | None) -> None:
    assert call_activity(call) == activity


def test_collect_is_the_collector_s_only_where_it_is_no_python() -> None:
    assert (call_activity("collect", is_innermost=True), call_activity("collect")) == ("garbage collection", None)


def test_a_path_is_that_inside_its_library() -> None:
    library = "/usr/lib/python3.11/"
    assert calls.package_path("/v/lib/python3.11/site-packages/matplotlib/figure.py", (library,)) == (
        "matplotlib/figure.py"
    )
    assert calls.package_path("/usr/lib/python3.11/json/encoder.py", (library,)) == "json/encoder.py"


def test_the_loss_functions_of_torch_are_known() -> None:
    assert library_activity([("torch/nn/functional.py", "cross_entropy")]) == "loss"
    assert library_activity([("torch/nn/functional.py", "mse_loss"), ("torch/nn/modules/loss.py", "forward")]) == "loss"
    assert library_activity([("torch/nn/functional.py", "multi_head_attention_forward")]) == "model"
    assert library_activity([("torch/nn/modules/linear.py", "forward")]) == "model"
    assert library_activity([("torch/nn/modules/module.py", "_wrapped_call_impl")]) == "model"
    assert library_activity([("torch/nn/modules/module.py", "named_parameters")]) is None
    assert [call_activity(name, is_innermost=True) for name in ("F.linear", "nn.functional.kl_div")] == [
        "model",
        "loss",
    ]
    assert call_activity("F.resize") is None  # of another library


def test_a_short_run_is_sampled_more_often_than_a_long_one() -> None:
    sampler, now, at = Sampler(), 0.0, []
    while now < PERIODS[-1][0] + 60:
        if sampler.is_due(now):
            at.append(now)
        now += 0.05

    def rate(begin: float, end: float) -> float:
        return sum(begin <= t < end for t in at) / (end - begin)

    assert rate(0, 10) > 1.5 * rate(100, 200) > 2.5 * rate(PERIODS[-1][0] + 5, PERIODS[-1][0] + 55) > 0
    assert rate(0, 10) <= 21


def test_samples_of_one_report_stand_for_equally_long() -> None:
    sampler = Sampler()
    me, change = threading.get_ident(), PERIODS[0][0]
    now, reports = 0.0, []
    while now < change + 100:
        if sampler.is_due(now):
            sampler.sample(me, "other")
        found = sampler.report(now)
        if found is not None:
            reports.append(found)
        now += 0.05
    assert any(abs(frames.t - change) < 0.2 for frames in reports), "it ends where the distance changes"
    for frames in reports:
        assert frames.begin is not None
        each = (frames.t - frames.begin) / sum(count for _, _, count in frames.rows)
        assert any(abs(each - period) < 0.03 for _, period in PERIODS)
    assert len(reports) >= 10, "what grows shows in a short run"


@pytest.mark.parametrize(
    ("call", "done"),
    [
        ("loss.item", calls.SYNCHRONIZES), (".cpu", calls.SYNCHRONIZES | calls.COPIES), ("batch.to", calls.COPIES),
        ("float", calls.SYNCHRONIZES), ("np.bincount", 0), ("self.net", calls.IS_MODEL), ("time.sleep", calls.WAITS),
        ("print", calls.LOGS | calls.SYNCHRONIZES), ("logging.info", calls.LOGS), ("wandb.log", calls.LOGS),
        ("wandb.login", 0), ("run.log_artifact", calls.LOGS), ("json.dump", calls.LOGS), ("logger.save", calls.LOGS),
        ("np.save", calls.SAVES), ("best.save", 0), ("self.model.save_pretrained", calls.SAVES),
        ("F.mse_loss", calls.COMPUTES), ("torch.from_numpy", 0), ("torch.load", 0), ("torch.manual_seed", 0),
        ("logits.softmax", calls.COMPUTES), ("mean", 0), ("x.mul_", calls.COMPUTES),
        ("torch.cuda.empty_cache", calls.EMPTIES_CACHE), ("subprocess.check_output", calls.RUNS_PROCESS),
        ("subprocess.Popen", 0), ("self.run", 0), ("", 0),
    ],
)  # fmt: skip
def test_one_table_says_what_a_call_does(call: str, done: int) -> None:
    assert effects_of(call) & ~(calls.TORCH_SYNCHRONIZES | calls.TORCH_COPIES) == done


def test_torch_itself_may_do_what_others_of_that_name_do_not() -> None:
    assert {"item", "bincount", "is_nonzero"} < calls.torch_functions(calls.TORCH_SYNCHRONIZES)
    assert "synchronize" not in calls.torch_functions(calls.TORCH_SYNCHRONIZES), "it is no function of a tensor's"
    assert not effects_of("torch.tensor") & (calls.COPIES | calls.COMPUTES)


def test_no_call_is_in_the_table_twice() -> None:
    names = [name for _, _, names in calls._ROWS for name in names.split()]
    assert len(names) == len(set(names)) == len(calls._CALLS)

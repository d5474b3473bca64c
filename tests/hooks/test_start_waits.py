"""What a program waits for before its first step, by made-up stacks."""

from __future__ import annotations

import pytest

from trainhooks.protocol import start_waits
from trainhooks.protocol.start_waits import is_helper, start_wait

Frames = list[tuple[str, str]]
PROGRAM = ("/home/me/train.py", "<module>")
IMPORTING = [
    ("<frozen importlib._bootstrap>", "_call_with_frames_removed"),
    ("<frozen importlib._bootstrap>", "_find_and_load"),
]
LOADER = "torch/utils/data/dataloader.py"
INIT = [
    ("torch/distributed/distributed_c10d.py", "init_process_group"),
    ("torch/distributed/c10d_logger.py", "wrapper"),
]
HUB = [("requests/sessions.py", "send"), ("huggingface_hub/file_download.py", "http_get")]
LOADING = [("transformers/modeling_utils.py", "from_pretrained")]

# Innermost first, above the program's own line.
STACKS: dict[str, tuple[Frames, tuple[str, str] | None]] = {
    "an import": (
        [("sklearn/base.py", "<module>"), *IMPORTING, ("sklearn/__init__.py", "<module>"), *IMPORTING],
        ("import", "sklearn"),
    ),
    "an import that shows no frame yet": (IMPORTING, ("import", "")),
    "a module of the program's": ([("/home/me/mydata.py", "<module>"), *IMPORTING], ("import", "mydata")),
    "a package of the program's": ([("/home/me/data/__init__.py", "<module>"), *IMPORTING], ("import", "data")),
    "what an import has led to is none": ([("/home/me/mydata.py", "read"), PROGRAM], None),
    "a download by the hub": (HUB, ("download", "huggingface_hub")),
    "a download while a model is loaded": ([*HUB, *LOADING], ("download", "huggingface_hub")),
    "a download by urllib": ([("http/client.py", "read"), ("urllib/request.py", "urlopen")], ("download", "urllib")),
    "a download by torch.hub": ([("torch/hub.py", "download_url_to_file")], ("download", "torch")),
    "a tracker's request": (
        [("requests/sessions.py", "send"), ("wandb/sdk/wandb_init.py", "init")],
        ("tracker", "wandb"),
    ),
    "a lock of a download": ([("filelock/_api.py", "acquire"), *HUB], ("lock file", "filelock")),
    "a checkpoint": ([("torch/serialization.py", "load")], ("checkpoint", "torch")),
    "a checkpoint that is saved is none": ([("torch/serialization.py", "save")], None),
    "a model's weights": (LOADING, ("checkpoint", "transformers")),
    "a module that is imported for it": (
        [("transformers/models/x.py", "<module>"), *IMPORTING, *LOADING],
        ("checkpoint", "transformers"),
    ),
    "weights that are drawn": (
        [("torch/nn/init.py", "kaiming_uniform_"), ("torch/nn/modules/linear.py", "reset_parameters")],
        ("new weights", "torch"),
    ),
    "weights that a checkpoint replaces": (
        [("torch/nn/init.py", "normal_"), ("transformers/models/x.py", "_init_weights"), *LOADING],
        ("checkpoint", "transformers"),
    ),
    "a move": (
        [("torch/nn/modules/module.py", "_apply"), ("torch/nn/modules/module.py", "to")],
        ("model to GPU", "torch"),
    ),
    "a forward is no move": ([("torch/nn/modules/module.py", "_call_impl")], None),
    "workers": (
        [("multiprocessing/popen_fork.py", "_launch"), ("multiprocessing/process.py", "start"), (LOADER, "__iter__")],
        ("workers", "multiprocessing"),
    ),
    "the first batch": ([("multiprocessing/queues.py", "get"), (LOADER, "_next_data")], ("first batch", "torch")),
    "a download in the data set": (
        [*HUB, ("/home/me/data.py", "__getitem__"), (LOADER, "__next__")],
        ("download", "huggingface_hub"),
    ),
    "the process group": (INIT, ("ranks", "init_process_group")),
    "its rendezvous": (
        [("torch/distributed/rendezvous.py", "_create_c10d_store"), *INIT],
        ("ranks", "init_process_group"),
    ),
    "a barrier": ([("torch/distributed/distributed_c10d.py", "barrier")], ("ranks", "collective")),
    "torch.compile": (
        [("torch/_inductor/codecache.py", "compile"), ("torch/_dynamo/convert_frame.py", "_compile")],
        ("compile", "torch.compile"),
    ),
    "an import of the compiler": ([("torch/_inductor/codecache.py", "<module>"), *IMPORTING], ("import", "torch")),
    "compiled code that runs": ([("torch/_dynamo/eval_frame.py", "compile_wrapper")], None),
    "nothing that is known": ([("numpy/linalg.py", "svd")], None),
}


@pytest.mark.parametrize("name", STACKS)
def test_a_stack_tells_what_is_waited_for(name: str) -> None:
    frames, told = STACKS[name]
    assert start_wait([*frames, PROGRAM]) == told


def test_a_lock_by_a_call_that_has_no_frame() -> None:
    assert start_wait([PROGRAM], "fcntl.flock") == (start_waits.LOCK_FILE, "")
    assert start_wait([PROGRAM], "flocks.count") is None


@pytest.mark.parametrize("path", ["torch/utils/data/_utils/worker.py", "torch/distributed/elastic/agent/server/api.py"])
def test_helpers_are_told_from_trainings_that_import_them(path: str) -> None:
    assert is_helper([(path, "run"), PROGRAM])
    assert not is_helper([(path, "<module>"), *IMPORTING, PROGRAM])

"""What a program waits for before its first step, by the stack of its main thread. Pure.

A name for people and readers, and what it is about: ("download", "huggingface_hub"), ("import", "sklearn").
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Tuple

from trainhooks.protocol.calls import TRACKER, Frame

IMPORT, DOWNLOAD, CHECKPOINT, DATA_SET = "import", "download", "checkpoint", "data set"
WEIGHTS, TO_GPU, WORKERS, FIRST_BATCH = "new weights", "model to GPU", "workers", "first batch"
COMPILE, RANKS, LOCK_FILE = "compile", "ranks", "lock file"

INIT_GROUP = "init_process_group"
_C10D = "torch/distributed/distributed_c10d.py"


class _Row(NamedTuple):
    """Frames that show a wait: by the begin of their path inside their library, and by that of the function's name."""

    what: str
    of: str  # what it is about; empty: the package
    paths: Tuple[str, ...]
    functions: Tuple[str, ...] = ()  # begins of names; empty: all


# The first row with a frame in the stack counts: what waits for others says more than what it is a part of. A download
# may be a part of reading a checkpoint, which may be a part of an import.
_ROWS = (
    _Row(TRACKER, "", ("wandb/", "mlflow/", "comet_ml/", "neptune/", "clearml/")),
    _Row(LOCK_FILE, "", ("filelock/", "portalocker/", "torch/utils/_filelock.py", "torch/utils/file_baton.py")),
    _Row(DOWNLOAD, "", ("huggingface_hub/file_download.py", "huggingface_hub/utils/_http.py")),
    _Row(DOWNLOAD, "", ("torch/hub.py",), ("download_url_to_file",)),
    _Row(DOWNLOAD, "", ("requests/", "urllib3/", "httpx/", "httpcore/", "urllib/request.py", "http/client.py")),
    _Row(RANKS, INIT_GROUP, (_C10D,), (INIT_GROUP, "_store_based_barrier", "_new_process_group_helper")),
    _Row(RANKS, INIT_GROUP, ("torch/distributed/rendezvous.py",)),
    _Row(RANKS, "collective", (_C10D,), ("barrier", "all_", "broadcast", "gather", "scatter", "reduce", "monitored_")),
    _Row(RANKS, "collective", ("torch/distributed/utils.py",), ("_verify_param_shape", "_sync_")),
    _Row(COMPILE, "torch.compile", ("torch/_dynamo/convert_frame.py", "torch/_inductor/")),
    _Row(COMPILE, "triton", ("triton/compiler/",)),
    _Row(COMPILE, "C++ extension", ("torch/utils/cpp_extension.py",)),
    _Row(CHECKPOINT, "", ("torch/serialization.py",), ("load", "_load")),
    _Row(CHECKPOINT, "", ("safetensors/", "torch/distributed/checkpoint/")),
    _Row(CHECKPOINT, "", ("transformers/modeling_utils.py", "diffusers/models/"), ("from_pretrained", "_load", "load")),
    _Row(DATA_SET, "", ("datasets/load.py", "datasets/builder.py", "datasets/arrow_dataset.py")),
    _Row(WEIGHTS, "", ("torch/nn/init.py",)),
    _Row(WEIGHTS, "", ("torch/nn/modules/",), ("reset_parameters", "_reset_parameters", "init_weights")),
    _Row(TO_GPU, "", ("torch/nn/modules/module.py",), ("to", "cuda", "_apply")),
    _Row(TO_GPU, "", ("torch/cuda/__init__.py",), ("_lazy_init",)),
    _Row(WORKERS, "", ("multiprocessing/process.py",), ("start",)),
    _Row(FIRST_BATCH, "", ("torch/utils/data/dataloader.py",)),
)
_CALLS = {"fcntl.flock": LOCK_FILE, "fcntl.lockf": LOCK_FILE, "flock": LOCK_FILE, "lockf": LOCK_FILE}
_IMPORT_SYSTEM = "<frozen importlib._bootstrap"
_MODULE = "<module>"

# Processes beside a training, by their frames: launchers, loader workers, compile workers.
_HELPERS = ("torch/utils/data/_utils/worker.py", "torch/distributed/elastic/", "torch/_inductor/compile_worker/")


def is_helper(frames: List[Frame]) -> bool:
    """Return whether a stack is that of a process that trains nothing itself. `frames` are as in `start_wait`."""
    return any(path.startswith(_HELPERS) and function != _MODULE for path, function in frames)


def start_wait(frames: List[Frame], call: str = "") -> Optional[Tuple[str, str]]:
    """Return what a program waits for and what that is about; None where its stack shows nothing known.

    Args:
        frames: file inside its library and function, of the whole stack, innermost first.
        call: the dotted name of what the innermost line calls; empty: unknown.
    """
    known = _CALLS.get(call)
    if known is not None:
        return known, ""
    found: Dict[_Row, str] = {}
    for path, function in reversed(frames):  # the outermost frame of a row names the package
        for row in _ROWS:
            if row not in found and function != _MODULE and _shows(row, path, function):
                found[row] = row.of or path.partition("/")[0]
    for row in _ROWS:
        if row in found:
            return row.what, found[row]
    module = _imported(frames)
    return None if module is None else (IMPORT, module)


def _shows(row: _Row, path: str, function: str) -> bool:
    return path.startswith(row.paths) and (not row.functions or function.startswith(row.functions))


def _imported(frames: List[Frame]) -> Optional[str]:
    """Return the outermost module that is being imported, empty where it shows no frame yet; None: none is."""
    is_within = False
    for path, function in reversed(frames):
        if path.startswith(_IMPORT_SYSTEM):
            is_within = True
        elif is_within and function == _MODULE:
            return _module_name(path)
        else:
            is_within = False
    return "" if is_within else None


def _module_name(path: str) -> str:
    """Return `sklearn` of a library's file, `mydata` of `/home/me/mydata.py`."""
    parts = path.split("/")
    name = parts[-2] if parts[-1] == "__init__.py" and len(parts) > 1 else parts[-1]
    return (parts[0] if parts[0] and len(parts) > 1 else name).partition(".")[0]

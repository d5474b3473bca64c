"""Name what a stack sample shows a library doing: fsync, plotting, a tokenizer, a lock. By names of files and calls.

Pure. An activity is a noun for people and readers; None is better than a guess.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Dict, FrozenSet, List, Optional, Tuple

FSYNC, CSV, JSON, PICKLE, TORCH_SAVE, TORCH_LOAD = "fsync", "CSV", "JSON", "pickle", "torch.save", "torch.load"
PLOT, METRICS, TOKENIZER, TENSOR_READ, TENSOR_TEXT = "plot", "metrics", "tokenizer", "tensor read", "tensor as text"
HTTP, SUBPROCESS, LOCK, QUEUE, SLEEP = "HTTP", "subprocess", "lock", "queue", "sleep"
COLLECTION, DEEPCOPY, PRINT, LOGGING, TRACKER = "garbage collection", "deepcopy", "print", "logging", "tracker"
PROGRESS_BAR, FILE, IMAGE, COMPRESSION, LOADING = "progress bar", "file", "image", "compression", "data loading"
COLLECTIVE, PROCESS, CONCATENATION, DATA_FRAME = "collective", "wait for a process", "concatenation", "data frame"
POOL = "worker pool"
# The training waits there for other threads or processes of the program.
FOR_WORKERS = frozenset((QUEUE, PROCESS, POOL))
# What a training computes outside of its model's call and its optimizer's step.
LOSS, DISTRIBUTION, CLIPPING, OPTIMIZER = "loss", "distribution", "gradient clipping", "optimizer"
MODEL = "model"  # layers that are called one by one, or as functions
COMPUTED = frozenset((LOSS, DISTRIBUTION, CLIPPING, OPTIMIZER, MODEL))

# By the begin of a file's path inside its library: its longest entry counts.
_FILES: Dict[str, str] = {
    "matplotlib": PLOT,
    "seaborn": PLOT,
    "plotly": PLOT,
    "sklearn/metrics": METRICS,
    "torchmetrics": METRICS,
    "sacrebleu": METRICS,
    "evaluate": METRICS,
    "rouge_score": METRICS,
    "transformers/tokenization_": TOKENIZER,
    "tokenizers": TOKENIZER,
    "tiktoken": TOKENIZER,
    "sentencepiece": TOKENIZER,
    "requests": HTTP,
    "urllib3": HTTP,
    "httpx": HTTP,
    "aiohttp": HTTP,
    "urllib/request": HTTP,
    "http/client": HTTP,
    "subprocess.py": SUBPROCESS,
    "wandb": TRACKER,
    "mlflow": TRACKER,
    "tensorboard": TRACKER,
    "tensorboardX": TRACKER,
    "torch/utils/tensorboard": TRACKER,
    "comet_ml": TRACKER,
    "neptune": TRACKER,
    "clearml": TRACKER,
    "trackio": TRACKER,
    "swanlab": TRACKER,
    "aim": TRACKER,
    "logging": LOGGING,
    "loguru": LOGGING,
    "tqdm": PROGRESS_BAR,
    "csv.py": CSV,
    "json": JSON,
    "pickle.py": PICKLE,
    "dill": PICKLE,
    "cloudpickle": PICKLE,
    "joblib/numpy_pickle": PICKLE,
    "pandas": DATA_FRAME,
    "PIL": IMAGE,
    "imageio": IMAGE,
    "torch/_tensor_str.py": TENSOR_TEXT,
    "torch/nn/modules": MODEL,
    "torch/nn/modules/loss.py": LOSS,
    "torch/distributions": DISTRIBUTION,
    "torch/nn/utils/clip_grad.py": CLIPPING,
    "torch/optim": OPTIMIZER,
    "torch/utils/data": LOADING,
    "torch/distributed/distributed_c10d.py": COLLECTIVE,
    "transformers/integrations/integration_utils": TRACKER,
    "lightning/pytorch/loggers": TRACKER,
    "pytorch_lightning/loggers": TRACKER,
    "gzip.py": COMPRESSION,
    "zipfile": COMPRESSION,
    "shutil.py": FILE,
    "multiprocessing/connection.py": PROCESS,
    "multiprocessing/pool.py": POOL,
    "concurrent/futures": POOL,
}

# In files that do several things, by function.
_FUNCTIONS: Dict[str, Tuple[FrozenSet[str], str]] = {
    "threading.py": (frozenset(("wait", "wait_for", "acquire", "join", "_wait_for_tstate_lock")), LOCK),
    "queue.py": (frozenset(("get", "put", "join")), QUEUE),
    "copy.py": (frozenset(("deepcopy",)), DEEPCOPY),
    "torch/nn/modules/module.py": (frozenset(("_wrapped_call_impl", "_call_impl")), MODEL),
}
_TORCH_SERIALIZATION = "torch/serialization.py"
_TORCH_FUNCTIONAL = "torch/nn/functional.py"
_FUNCTIONAL = ("F", "functional")  # what programs call it; most of it is no Python
_LOSSES = ("_loss", "_loss_with_distance", "cross_entropy", "cross_entropy_with_logits", "kl_div")  # ends of names

# Calls of a user's line, by their last name where it is unambiguous, else with the name before it.
_CALLS: Dict[str, str] = {
    "fsync": FSYNC,
    "fdatasync": FSYNC,
    "time.sleep": SLEEP,
    "sleep": SLEEP,
    "item": TENSOR_READ,
    "tolist": TENSOR_READ,
    "cpu": TENSOR_READ,
    "synchronize": TENSOR_READ,
    "gc.collect": COLLECTION,
    "acquire": LOCK,
    "print": PRINT,
    "writerow": CSV,
    "writerows": CSV,
    "to_csv": CSV,
    "json.dump": JSON,
    "json.dumps": JSON,
    "pickle.dump": PICKLE,
    "pickle.dumps": PICKLE,
    "torch.save": TORCH_SAVE,
    "torch.load": TORCH_LOAD,
    "deepcopy": DEEPCOPY,
    "flush": FILE,
    "write": FILE,
    "writelines": FILE,
    "open": FILE,
    "os.system": SUBPROCESS,
    "subprocess.run": SUBPROCESS,
    "subprocess.check_output": SUBPROCESS,
    "urlopen": HTTP,
    "savefig": PLOT,
    "add_scalar": TRACKER,
    "add_scalars": TRACKER,
    "add_histogram": TRACKER,
    "set_postfix": PROGRESS_BAR,
    "torch.cat": CONCATENATION,
    "torch.stack": CONCATENATION,
    "np.concatenate": CONCATENATION,
    "numpy.concatenate": CONCATENATION,
}
# What `with` waits for, by the user's own name for it.
_LOCKS = ("lock", "mutex", "semaphore", "condition")

_PACKAGES = f"-packages{os.sep}"
_files: Dict[str, Optional[str]] = {}  # inside path -> activity
MAX_FILES = 2000  # kept; a program's stack shows a few hundred

Frame = Tuple[str, str]  # file inside its library, function


@lru_cache(maxsize=MAX_FILES)
def inside(path: str, libraries: Tuple[str, ...]) -> str:
    """Return a path inside its package directory or the standard library, with forward slashes."""
    place = path.rfind(_PACKAGES)
    if place >= 0:
        path = path[place + len(_PACKAGES) :]
    else:
        home = max((library for library in libraries if path.startswith(library)), key=len, default="")
        path = path[len(home) :]
    return path.replace(os.sep, "/")


def of_libraries(frames: List[Frame]) -> Optional[str]:
    """Return the activity of the library frames below a user's line, innermost first; the outermost known one counts.

    What was called says more than what it calls in turn: a plot encodes an image, which compresses.
    """
    for path, function in reversed(frames):
        found = _of_frame(path, function)
        if found is not None:
            return found
    return None


def _of_frame(path: str, function: str) -> Optional[str]:
    if path == _TORCH_SERIALIZATION:
        return TORCH_LOAD if "load" in function else TORCH_SAVE
    if path == _TORCH_FUNCTIONAL:
        return LOSS if function.endswith(_LOSSES) else MODEL
    several = _FUNCTIONS.get(path)
    if several is not None:
        return several[1] if function in several[0] else None
    if path not in _files:
        if len(_files) >= MAX_FILES:
            _files.clear()
        _files[path] = _of_file(path)
    return _files[path]


def _of_file(path: str) -> Optional[str]:
    fits = [begin for begin in _FILES if path.startswith(begin) and _ends_a_part(begin, path)]
    return _FILES[max(fits, key=len)] if fits else None


def _ends_a_part(begin: str, path: str) -> bool:
    rest = path[len(begin) :]
    return not rest or begin.endswith("_") or rest.startswith(("/", "."))


def of_call(name: Optional[str], is_innermost: bool = False) -> Optional[str]:
    """Return the activity of a call by its dotted name; None where the name is unknown or may mean anything.

    Args:
        is_innermost: whether what is called has no frame: it is no Python.
    """
    if name is None:
        return None
    if name == "collect":  # of `gc`: one of the program's own has a frame of its own
        return COLLECTION if is_innermost else None
    head, _, last = name.rpartition(".")
    owner = head.rpartition(".")[2]
    if owner in _FUNCTIONAL and is_innermost:  # torchvision's has frames
        return LOSS if last.endswith(_LOSSES) else MODEL
    return _CALLS.get(f"{owner}.{last}") or _CALLS.get(last)


def of_context(name: Optional[str]) -> Optional[str]:
    """Return the activity of entering `with NAME:`."""
    last = (name or "").rpartition(".")[2].lower()
    return LOCK if last.endswith(_LOCKS) else None

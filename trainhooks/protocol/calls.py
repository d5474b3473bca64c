"""What calls do, by names: wait for the device, copy, log, save, compute... And what a library does in a stack sample.

Pure. An activity is a noun for people and readers: fsync, plot, lock. None is better than a guess.
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
POOL, INPUT, EVENT_LOOP, LOCK_FILE, EXIT = "worker pool", "input", "event loop", "lock file", "exit"
MESSAGE = "message"  # over a socket
THREAD = "thread"  # another one is to end, or to set an event
RAISED = "raised"  # an exception has ended the main thread, and others keep the process alive
# The training waits there for other threads or processes of the program.
FOR_WORKERS = frozenset((QUEUE, PROCESS, POOL))
# What a training computes outside of its model's call and its optimizer's step.
LOSS, DISTRIBUTION, CLIPPING, OPTIMIZER = "loss", "distribution", "gradient clipping", "optimizer"
MODEL = "model"  # layers that are called one by one, or as functions
COMPUTED = frozenset((LOSS, DISTRIBUTION, CLIPPING, OPTIMIZER, MODEL))

Frame = Tuple[str, str]  # file inside its library, function

# Files by the begin of their path inside their library: the longest one that fits counts.
_FILE_ROWS = (
    (PLOT, "matplotlib seaborn plotly"),
    (METRICS, "sklearn/metrics torchmetrics sacrebleu evaluate rouge_score"),
    (TOKENIZER, "transformers/tokenization_ tokenizers tiktoken sentencepiece"),
    (HTTP, "requests urllib3 httpx aiohttp urllib/request http/client"),
    (SUBPROCESS, "subprocess.py"),
    (
        TRACKER,
        "wandb mlflow tensorboard tensorboardX torch/utils/tensorboard comet_ml neptune clearml trackio swanlab aim",
    ),
    (TRACKER, "transformers/integrations/integration_utils lightning/pytorch/loggers pytorch_lightning/loggers"),
    (LOGGING, "logging loguru"),
    (PROGRESS_BAR, "tqdm"),
    (CSV, "csv.py"),
    (JSON, "json"),
    (PICKLE, "pickle.py dill cloudpickle joblib/numpy_pickle"),
    (DATA_FRAME, "pandas"),
    (IMAGE, "PIL imageio"),
    (TENSOR_TEXT, "torch/_tensor_str.py"),
    (MODEL, "torch/nn/modules"),
    (LOSS, "torch/nn/modules/loss.py"),
    (DISTRIBUTION, "torch/distributions"),
    (CLIPPING, "torch/nn/utils/clip_grad.py"),
    (OPTIMIZER, "torch/optim"),
    (LOADING, "torch/utils/data"),
    (COLLECTIVE, "torch/distributed/distributed_c10d.py torch/distributed/_functional_collectives.py"),
    (COLLECTIVE, "torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py"),
    (COMPRESSION, "gzip.py zipfile"),
    (FILE, "shutil.py"),
    (PROCESS, "multiprocessing/connection.py multiprocessing/process.py multiprocessing/popen_fork.py"),
    (POOL, "multiprocessing/pool.py concurrent/futures"),
    (QUEUE, "multiprocessing/queues.py"),
    (INPUT, "pdb.py bdb.py ipdb IPython debugpy pydevd prompt_toolkit"),
    (EVENT_LOOP, "asyncio selectors.py"),
    (MESSAGE, "zmq grpc redis websocket websockets socket.py ssl.py"),
    (LOCK_FILE, "filelock portalocker torch/utils/file_baton.py torch/utils/_filelock.py"),
)
_FILES: Dict[str, str] = {path: activity for activity, paths in _FILE_ROWS for path in paths.split()}

# In files that do several things, by function.
_FUNCTION_ROWS = (
    ("threading.py", LOCK, "acquire"),
    ("threading.py", THREAD, "wait wait_for join _wait_for_tstate_lock"),
    ("threading.py", EXIT, "_shutdown"),  # the main thread is done, and waits for others
    ("queue.py", QUEUE, "get put join"),
    ("copy.py", DEEPCOPY, "deepcopy"),
    ("torch/nn/modules/module.py", MODEL, "_wrapped_call_impl _call_impl"),
)
_FUNCTIONS: Dict[Frame, str] = {(path, name): does for path, does, names in _FUNCTION_ROWS for name in names.split()}
_BY_FUNCTION = frozenset(path for path, _, _ in _FUNCTION_ROWS)
_TORCH_SERIALIZATION = "torch/serialization.py"
_TORCH_FUNCTIONAL = "torch/nn/functional.py"
_FUNCTIONAL = ("F", "functional")  # what programs call it; most of it is no Python
_LOSSES = ("_loss", "_loss_with_distance", "cross_entropy", "cross_entropy_with_logits", "kl_div")  # ends of names

# What a call does, as bits.
SYNCHRONIZES = 1  # waits until the device has done all that is queued
COPIES = 2  # between host and device
WAITS = 4  # for something else than the device
LOGS = 8
SAVES = 16  # a checkpoint
COMPUTES = 32  # with tensors, and makes none of Python's numbers
IS_MODEL = 64  # by a common name of models, in a program's own rollout or decoder
RUNS_PROCESS = 128  # starts one process and waits for its end
EMPTIES_CACHE = 256  # returns the allocator's memory to the driver
TORCH_SYNCHRONIZES, TORCH_COPIES = 512, 1024  # torch's function of that name does, whatever others of that name do

# Calls by their last name where it is unambiguous, else with the name before it: activity, what they do, names.
_ROWS: Tuple[Tuple[str, int, str], ...] = (
    (TENSOR_READ, SYNCHRONIZES | TORCH_SYNCHRONIZES, "item tolist"),
    (TENSOR_READ, SYNCHRONIZES | TORCH_SYNCHRONIZES | COPIES | TORCH_COPIES, "cpu"),
    (TENSOR_READ, SYNCHRONIZES, "synchronize"),
    ("", SYNCHRONIZES, "float int bool"),
    ("", SYNCHRONIZES | TORCH_SYNCHRONIZES, "numpy nonzero masked_select unique"),
    ("", TORCH_SYNCHRONIZES, "nonzero_numpy argwhere _unique2 unique_dim unique_consecutive bincount"),
    ("", TORCH_SYNCHRONIZES, "is_nonzero equal allclose"),
    ("", COPIES | TORCH_COPIES, "to cuda copy_"),
    ("", COPIES, "pin_memory to_device send_to_device move_data_to_device"),
    ("", TORCH_COPIES, "tensor as_tensor"),
    ("", EMPTIES_CACHE, "empty_cache"),
    (SLEEP, WAITS, "sleep"),
    (LOCK, WAITS, "acquire"),
    (LOCK_FILE, WAITS, "flock lockf"),
    (MESSAGE, WAITS, "recv recvfrom recv_into recvmsg"),
    ("", WAITS, "wait join result select poll barrier"),
    (SUBPROCESS, RUNS_PROCESS, "os.system subprocess.run subprocess.call subprocess.check_call"),
    (SUBPROCESS, RUNS_PROCESS, "subprocess.check_output subprocess.getoutput subprocess.getstatusoutput"),
    (SUBPROCESS, 0, "stdout.read stdout.readline stdout.readlines stderr.read stderr.readline stderr.readlines"),
    (INPUT, 0, "stdin.read stdin.readline stdin.readlines"),
    (HTTP, 0, "urlopen"),
    (COLLECTION, 0, "gc.collect"),
    (DEEPCOPY, 0, "deepcopy"),
    (CONCATENATION, 0, "torch.cat torch.stack np.concatenate numpy.concatenate"),
    (PRINT, LOGS | SYNCHRONIZES, "print"),
    (CSV, LOGS, "writerow writerows to_csv"),
    (JSON, LOGS, "json.dump json.dumps"),
    (PLOT, LOGS, "savefig"),
    (TRACKER, LOGS, "add_scalar add_scalars add_histogram"),
    (PROGRESS_BAR, LOGS, "set_postfix"),
    (FILE, LOGS, "flush write writelines"),
    (FSYNC, LOGS, "fsync fdatasync"),
    ("", LOGS, "pprint yaml.dump yaml.safe_dump log_metrics set_postfix_str set_description set_description_str"),
    ("", LOGS, "add_image add_images add_figure add_text add_embedding add_video add_audio add_pr_curve"),
    (FILE, 0, "open"),
    (TORCH_LOAD, 0, "torch.load"),
    (TORCH_SAVE, SAVES, "torch.save"),
    (PICKLE, SAVES, "pickle.dump pickle.dumps"),
    ("", SAVES, "joblib.dump dill.dump dill.dumps cloudpickle.dump cloudpickle.dumps marshal.dump marshal.dumps"),
    ("", SAVES, "np.save np.savez np.savez_compressed numpy.save numpy.savez numpy.savez_compressed"),
    ("", SAVES, "save_file save_model save_pretrained save_checkpoint save_state save_weights"),
    ("", COMPUTES, "clamp softmax log_softmax logsumexp gather scatter scatter_add scatter_reduce index_select"),
    ("", COMPUTES, "masked_fill einsum matmul bmm sigmoid tanh relu square exp log pow cumsum topk unsqueeze"),
    ("", COMPUTES, "expand detach norm mean sum log_prob rsample"),
    ("", IS_MODEL, "model net network policy policy_net actor critic agent generator decoder student teacher"),
    ("", IS_MODEL, "forward generate get_action get_action_and_value"),
)
_CALLS: Dict[str, Tuple[str, int]] = {name: row[:2] for row in _ROWS for name in row[2].split()}
# All calls of the first log, and those of the others whose names begin with `log`.
_LOGGERS = ("logging", "logger", "log", "LOG", "_logger", "self.logger")
_TRACKERS = ("wandb", "mlflow", "run", "tracker", "experiment", "accelerator", "fabric", "trainer", "aim_run", "task")
# Modules of functions that compute with tensors, and how those others of theirs begin that make, read or set up.
_TENSOR_MODULES = ("torch", "F", "nn.functional", "torch.nn.functional", "torch.linalg", "torch.special", "torch.fft")
_NOT_COMPUTING = ("from_", "save", "load", "manual")
# What is logging whatever it is called for.
LOGGED = frozenset((FSYNC, CSV, PRINT, LOGGING, PLOT, TRACKER, PROGRESS_BAR, TENSOR_TEXT, FILE))
# `gc.collect` and `input`: a program's own functions of these names have frames of their own.
_BUILT_IN = {"collect": COLLECTION, "input": INPUT}

_PACKAGES = f"-packages{os.sep}"
MAX_CACHED = 2000  # files and calls; a program's stack shows a few hundred


@lru_cache(maxsize=MAX_CACHED)
def package_path(path: str, libraries: Tuple[str, ...]) -> str:
    """Return a path inside its package directory or the standard library, with forward slashes."""
    place = path.rfind(_PACKAGES)
    if place >= 0:
        path = path[place + len(_PACKAGES) :]
    else:
        home = max((library for library in libraries if path.startswith(library)), key=len, default="")
        path = path[len(home) :]
    return path.replace(os.sep, "/")


def library_activity(frames: List[Frame]) -> Optional[str]:
    """Return the activity of the library frames below a user's line, innermost first; the outermost known one counts.

    What was called says more than what it calls in turn: a plot encodes an image, which compresses. But a collective is
    one wherever it is called: a sharded model waits for its weights inside its layers.
    """
    known = [found for frame in frames if (found := _frame_activity(*frame)) is not None]
    return COLLECTIVE if COLLECTIVE in known else known[-1] if known else None


def _frame_activity(path: str, function: str) -> Optional[str]:
    if path == _TORCH_SERIALIZATION:
        return TORCH_LOAD if "load" in function else TORCH_SAVE
    if path == _TORCH_FUNCTIONAL:
        return LOSS if function.endswith(_LOSSES) else MODEL
    return _FUNCTIONS.get((path, function)) if path in _BY_FUNCTION else _file_activity(path)


@lru_cache(maxsize=MAX_CACHED)
def _file_activity(path: str) -> Optional[str]:
    fits = [begin for begin in _FILES if path.startswith(begin) and _ends_a_part(begin, path)]
    return _FILES[max(fits, key=len)] if fits else None


def _ends_a_part(begin: str, path: str) -> bool:
    rest = path[len(begin) :]
    return not rest or begin.endswith("_") or rest.startswith(("/", "."))


def call_activity(name: Optional[str], is_innermost: bool = False) -> Optional[str]:
    """Return the activity of a call by its dotted name; None where the name is unknown or may mean anything.

    Args:
        is_innermost: whether what is called has no frame: it is no Python.
    """
    if name is None:
        return None
    if name in _BUILT_IN:
        return _BUILT_IN[name] if is_innermost else None
    head, _, last = name.rpartition(".")
    owner = head.rpartition(".")[2]
    if owner in _FUNCTIONAL and is_innermost:  # torchvision's has frames
        return LOSS if last.endswith(_LOSSES) else MODEL
    return _known(owner, last)[0] or None


@lru_cache(maxsize=MAX_CACHED)
def effects_of(call: str) -> int:
    """Return the bits of what a call does, by its dotted name; 0 where nothing is known."""
    owner, dot, last = call.rpartition(".")
    found = _known(owner.rpartition(".")[2], last)[1]
    if owner in _LOGGERS or (owner in _TRACKERS and (last == "log" or last.startswith("log_"))):
        return LOGS
    if not dot:  # a function of the program's own may be called `mean`
        return found & ~COMPUTES
    if owner in _TENSOR_MODULES and not found & TORCH_COPIES and not last.startswith(_NOT_COMPUTING):
        found |= COMPUTES
    is_in_place = last.endswith("_") and last[:1].isalpha() and last[-2:-1].isalpha()
    return found | COMPUTES if is_in_place else found


def torch_functions(what: int) -> FrozenSet[str]:
    """Return the names in torch of functions that do one of `what`."""
    return frozenset(name for name, (_, does) in _CALLS.items() if does & what)


def _known(owner: str, last: str) -> Tuple[str, int]:
    return _CALLS.get(f"{owner}.{last}") or _CALLS.get(last) or ("", 0)


# Of the CUDA runtime and driver, by a part of a call's name: the first one that is found counts.
SYNCHRONIZING, LAUNCHING = "synchronizing", "launching"
_CUDA_CALLS = (
    ("Synchronize", SYNCHRONIZING),
    ("Memcpy", "copying"),
    ("Malloc", "allocating"),
    ("Free", "allocating"),
    ("Launch", LAUNCHING),
    ("Memset", "setting memory"),
)


def cuda_call_activity(name: str) -> str:
    """Return what the host does in a call of the CUDA runtime or driver."""
    return next((activity for part, activity in _CUDA_CALLS if part in name), "calling CUDA")

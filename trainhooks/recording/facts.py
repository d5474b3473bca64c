"""Facts about this process: what runs, of which version, on which machine. Standard library only.

Nothing is imported and no program is started to learn a fact: what is not available stays unknown. Secrets are masked,
and the environment is recorded by an allow-list.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from typing import Any, Callable, Dict, List, Optional

from trainhooks.device import cuda
from trainhooks.protocol import environment, job_key
from trainhooks.protocol.limits import MAX_NAME, clean
from trainhooks.protocol.secrets import mask_argv

_gpu_memory_figures: Dict[str, int] = {}  # as read last


def torch_flags() -> Dict[str, Any]:
    """Return the settings of the loaded torch that affect speed; empty where it is not loaded. Never starts CUDA."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "get_num_threads"):
        return {}
    readings: Dict[str, Callable[[], Any]] = {
        "threads": torch.get_num_threads,
        "detect_anomaly": lambda: _detects_anomaly(torch),
        "profiler": lambda: _profiler(torch),
        "matmul_precision": torch.get_float32_matmul_precision,
        "deterministic": torch.are_deterministic_algorithms_enabled,
        "cudnn_benchmark": lambda: torch.backends.cudnn.benchmark,
        "default_dtype": lambda: str(torch.get_default_dtype()),
        "cuda": lambda: torch.version.cuda,
        "gpu_memory": lambda: _gpu_memory(torch),
        "graph_captures": _graph_captures,
    }
    flags = {}
    for name, read in readings.items():
        try:
            flags[name] = read()
        except Exception:  # an older or a trimmed torch lacks some of them, in ways of its own
            continue
    if not flags.get("gpu_memory"):
        flags.pop("gpu_memory", None)
    return flags


def _detects_anomaly(torch: Any) -> bool:
    """Return whether the program detects anomalies: torch's compiler traces with it on, without the check for nan."""
    return bool(torch.is_anomaly_enabled() and torch.is_anomaly_check_nan_enabled())


def _profiler(torch: Any) -> bool:
    """Return whether a profiler runs: torch's function knows of the calling thread, its module of all."""
    known = getattr(torch.autograd.profiler, "_is_profiler_enabled", False)
    return bool(known or torch.autograd._profiler_enabled())


def _graph_captures() -> Optional[int]:
    """Return how many CUDA graphs were captured, rounded down so that few events tell it; None: none."""
    return 1 << cuda.captured.bit_length() - 1 if cuda.captured else None


def _gpu_memory(torch: Any) -> Dict[str, int]:
    """Return the allocator's figures, in bytes, of the device on which most is reserved.

    They are as they were when one had last changed by much: a peak by 2%, a current one by 2% of the device's memory,
    a count to another power of two. While a CUDA graph is captured the last figures are returned.
    """
    global _gpu_memory_figures
    if cuda.captures:
        return _gpu_memory_figures
    if not torch.cuda.is_initialized() or torch.version.cuda is None:
        return {}
    # The current device is each thread's own, and this thread is not the training's.
    devices = [(torch.cuda.memory_stats_as_nested_dict(index), index) for index in cuda.devices(torch)]
    if not devices:
        return {}
    stats, index = max(devices, key=lambda row: row[0]["reserved_bytes"]["all"]["peak"])
    total = int(torch.cuda.get_device_properties(index).total_memory)
    allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
    new = {
        "total": total,
        "allocated": int(allocated["current"]),
        "reserved": int(reserved["current"]),
        "peak_allocated": int(allocated["peak"]),
        "peak_reserved": int(reserved["peak"]),
        "retries": _power_of_two(int(stats["num_alloc_retries"])),
        "ooms": _power_of_two(int(stats["num_ooms"])),
    }
    if any(_has_changed(name, size, total) for name, size in new.items()):
        _gpu_memory_figures = new
    return _gpu_memory_figures


MEMORY_GRAIN = 0.02


def _has_changed(name: str, size: int, total: int) -> bool:
    before = _gpu_memory_figures.get(name)
    if before is None or name in ("total", "retries", "ooms"):
        return before != size
    return abs(size - before) > MEMORY_GRAIN * (before if name.startswith("peak") else total)


def _power_of_two(count: int) -> int:
    """Return the greatest power of two that is not above `count`."""
    return 1 << (count.bit_length() - 1) if count > 0 else 0


MAX_ELASTIC = 1000  # restarts that torchrun makes in one start of the job
DEVICES_SECONDS = 10.0  # between two queries, once a device is known: a process may begin to use another one


class Devices:
    """The GPUs that this process uses, by UUID: the one name that containers and reordering leave alone."""

    def __init__(self) -> None:
        self._uuids: List[str] = []
        self._due = 0.0

    def in_use(self, now: float) -> List[str]:
        """Return the UUIDs of the devices in use, in torch's order; empty while unknown."""
        if now >= self._due and not cuda.captures:
            found = device_uuids()
            if found:
                self._uuids = found
                self._due = now + DEVICES_SECONDS
        return self._uuids


def device_uuids() -> List[str]:
    """Return the UUIDs of the devices on which this process has a CUDA context; empty where torch does not say."""
    try:
        found = cuda.started_cuda()
        if found is None or cuda.is_rocm():
            return []
        visible = visible_devices(os.environ.get("CUDA_VISIBLE_DEVICES"))
        named = [
            _uuid(found.get_device_properties(index), index, visible) for index in cuda.devices(sys.modules["torch"])
        ]
    except Exception:  # a torch that is half loaded, old or trimmed lacks some of them, in ways of its own
        return []
    return [uuid for uuid in named if uuid is not None]


def visible_devices(variable: Optional[str]) -> List[str]:
    """Return the words of CUDA_VISIBLE_DEVICES: indices, UUIDs or their beginnings, MIG ids."""
    return [word.strip() for word in (variable or "").split(",") if word.strip()]


def _uuid(properties: Any, index: int, visible: List[str]) -> Optional[str]:
    """Return the UUID of torch's device `index`, as the driver's tools write it."""
    word = visible[index] if index < len(visible) else ""
    if word.startswith("MIG-"):  # the properties of a MIG instance may carry the UUID of its card
        return clean(word, MAX_NAME)
    known = getattr(properties, "uuid", None)  # since torch 2.4
    if known is not None:
        text = clean(known, MAX_NAME)
        return text if text.startswith(("GPU-", "MIG-")) else "GPU-" + text
    return clean(word, MAX_NAME) if word.startswith("GPU-") else None


# Libraries whose version is read where they are loaded already.
LIBRARIES = (
    "torch", "transformers", "trl", "peft", "accelerate", "lightning", "datasets", "numpy", "deepspeed", "keras", "jax",
    "tensorflow",
)  # fmt: skip


def process_facts() -> Dict[str, Any]:
    """Return what is known about this process now."""
    argv = mask_argv(getattr(sys, "orig_argv", None) or [sys.executable, *sys.argv])
    facts: Dict[str, Any] = {
        "command": [clean(word, 512) for word in argv[:64]],
        "cwd": clean(_cwd()),
        "python": platform.python_version(),
        "versions": library_versions(),
        "environment": environment.recorded(),
        "cpus": _usable_cpus(),
    }
    commit = git_commit(_cwd())
    if commit is not None:
        facts["git_commit"] = commit
    return facts


def library_versions() -> Dict[str, str]:
    """Return the versions of the training libraries that are loaded."""
    found = {}
    for name in LIBRARIES:
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            found[name] = clean(version, 64)
    return found


def git_commit(directory: str) -> Optional[str]:
    """Return the commit checked out in `directory` or above it; None where unknown. Never starts git."""
    while True:
        dot_git = os.path.join(directory, ".git")
        if os.path.exists(dot_git):
            return _commit_of(dot_git)
        above = os.path.dirname(directory)
        if above == directory:
            return None
        directory = above


def _commit_of(dot_git: str) -> Optional[str]:
    try:
        if os.path.isfile(dot_git):  # a worktree: the file names the real directory
            with open(dot_git, encoding="utf-8") as source:
                dot_git = os.path.join(os.path.dirname(dot_git), source.read(4096).partition("gitdir:")[2].strip())
        with open(os.path.join(dot_git, "HEAD"), encoding="utf-8") as source:
            head = source.read(4096).strip()
        if not head.startswith("ref:"):
            return head[:12] if re.fullmatch("[0-9a-f]{40,64}", head) else None
        ref = head[4:].strip()
        shared = dot_git
        common = os.path.join(dot_git, "commondir")
        if os.path.exists(common):
            with open(common, encoding="utf-8") as source:
                shared = os.path.join(dot_git, source.read(4096).strip())
        loose = os.path.join(shared, ref)
        if os.path.exists(loose):
            with open(loose, encoding="utf-8") as source:
                return source.read(64).strip()[:12] or None
        with open(os.path.join(shared, "packed-refs"), encoding="utf-8") as source:
            for line in source:
                commit, _, name = line.strip().partition(" ")
                if name == ref:
                    return commit[:12]
    except (OSError, ValueError):
        return None
    return None


def rank_facts(group: Optional[Dict[str, int]] = None) -> Dict[str, int]:
    """Return rank, local_rank, world_size and restart, as torchrun or Slurm set them; what is unknown is left out.

    Args:
        group: this process's place in torch's process group, where it was asked before.
    """
    found = {}
    for name, variables in (
        ("rank", ("RANK", "SLURM_PROCID")),
        ("local_rank", ("LOCAL_RANK", "SLURM_LOCALID")),
        ("world_size", ("WORLD_SIZE", "SLURM_NTASKS")),
        ("restart", ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")),
    ):
        for variable in variables:
            text = os.environ.get(variable, "")
            if text.isascii() and text.isdigit() and len(text) < 8:
                found[name] = int(text)
                break
    if "TORCHELASTIC_RESTART_COUNT" in os.environ and job_key.restart(os.environ):  # where torchrun counts from 0 again
        found["restart"] = found.get("restart", 0) + MAX_ELASTIC * job_key.restart(os.environ)
    return found if "rank" in found else {**found, **(group or cuda.process_group())}


def program_name() -> str:
    """Return the name of this program: its script or notebook without the suffix, or its module.

    Empty where a library's own script runs: what a launcher starts to run functions of the program in it.
    """
    if "ipykernel" in sys.modules:  # Jupyter's server names the file; other front ends do not
        notebook, ending = os.path.splitext(os.path.basename(os.environ.get("JPY_SESSION_NAME", "")))
        return clean(notebook, MAX_NAME) if notebook and ending == ".ipynb" else "notebook"
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name:
        name: str = spec.name
        return name[: -len(".__main__")] if name.endswith(".__main__") else name
    path = sys.argv[0] if sys.argv and sys.argv[0] not in ("", "-c", "-") else "python"
    if f"-packages{os.sep}" in path:
        return ""
    script = os.path.splitext(os.path.basename(path))[0]
    if script == "__main__":  # a package run by its path
        script = os.path.basename(os.path.dirname(path)) or script
    return clean(script, MAX_NAME) or "python"


def _cwd() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return ""


def _usable_cpus() -> Optional[int]:
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return os.cpu_count()

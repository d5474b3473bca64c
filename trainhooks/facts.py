"""Facts about this process: what runs, of which version, on which machine. Standard library only.

Nothing is imported and no program is started to learn a fact: what is not available stays unknown. Secrets are masked,
and the environment is recorded by an allow-list.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from typing import Any, Callable, Dict, List, Optional, Sequence

from trainhooks import cuda
from trainhooks.events import MAX_NAME, MAX_TEXT, clean, number

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


def _gpu_memory(torch: Any) -> Dict[str, int]:
    """Return the allocator's figures, in bytes, of the device on which most is reserved.

    Peaks in steps of 1% of the device's memory, current figures in steps of 2%, counts as powers of two, so that they
    seldom change. While a CUDA graph is captured the last figures are returned.
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
    grain = max(1, total // 100)
    allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
    _gpu_memory_figures = {
        "total": total,
        "allocated": _rounded_up(int(allocated["current"]), 2 * grain),
        "reserved": _rounded_up(int(reserved["current"]), 2 * grain),
        "peak_allocated": _rounded_up(int(allocated["peak"]), grain),
        "peak_reserved": _rounded_up(int(reserved["peak"]), grain),
        "retries": _power_of_two(int(stats["num_alloc_retries"])),
        "ooms": _power_of_two(int(stats["num_ooms"])),
    }
    return _gpu_memory_figures


def _rounded_up(size: int, grain: int) -> int:
    """Return the least multiple of `grain` that is not below `size`."""
    return -(-size // grain) * grain


def _power_of_two(count: int) -> int:
    """Return the greatest power of two that is not above `count`."""
    return 1 << (count.bit_length() - 1) if count > 0 else 0


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
        found = cuda.started()
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


MASK = "***"
MAX_CONFIG = 200  # entries of a configuration that are kept

_SECRET_NAME = re.compile(
    r"(?:^|[_\-.])(?:[a-z]*api[_\- ]?keys?|(?:hf|hub|wandb|git|access|secret|private|signing|encryption|account|"
    r"service|storage|ssh|subscription|openai|anthropic|azure|aws|gcp|google|mistral|cohere|groq|together|replicate|comet|"
    r"neptune|mlflow|clearml|modal|runpod|vast|lambda|ngc|nvidia|kaggle|github|gitlab)[_\-]?key(?:[_\-](?:id|pem))?|"
    r"auth|authorization|bearer|cookie|jwt|credentials?|[a-z]*passw(?:or)?ds?|pwd|passphrase|[a-z]*secrets?|[a-z]*token|"
    r"(?:db|smtp|mail|mysql|pg|postgres|redis|mongo|user|admin|root|ftp|proxy)[_\-]?pass|pw)(?:[_\-]?\d+)?$|"
    r"^(?:pass|sig|x-amz-signature)$",
    re.IGNORECASE,
)
# Names of secrets and of much else (`sort_key`, `license`): the value decides, by whether it looks drawn at random.
_POSSIBLE_NAME = re.compile(
    r"(?:^|[_\-.])(?:[a-z0-9]*keys?|(?:key|store)pass|pat|webhook|tokens|license|hmac|mnemonic|otp|salt)$",
    re.IGNORECASE,
)
_RANDOM = re.compile(r"(?=[^0-9]*[0-9])(?=[^A-Za-z]*[A-Za-z])[A-Za-z0-9_\-+/=.]{8,}")
# Tokens of a vocabulary, which are no secrets, and which every tokenizer's configuration names.
_VOCABULARY = re.compile(
    r"(?:^|[_\-.])(?:pad|eos|bos|unk|sep|cls|mask|image|video|audio|stop|start|end|begin|first|last|next|new|special|"
    r"additional|per|think|tool|user|assistant|system|max|min|num|input|output)(?:ning|ed)?[_\-]?token(?:[_\-]?\d+)?$",
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_\-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w\-]{16,}|"
    r"xox[abp]-[A-Za-z0-9\-]{10,}|(?:AKIA|ASIA)[0-9A-Z]{12,}|AIza[\w\-]{30,}|nvapi-[\w\-]{16,}|wandb_v1_\w{16,}|"
    r"(?:gsk|npm|r8|[sr]k_live|[sr]k_test)_[A-Za-z0-9]{16,}|(?:pypi|xai|pplx)-[\w\-]{16,}|SG\.[\w\-]{16,}\.[\w\-]{16,}|"
    r"ya29\.[\w\-]{16,}|dapi[0-9a-f]{32}|dop_v1_[0-9a-f]{32,}|dckr_pat_[\w\-]{16,}|hvs\.[\w\-]{16,}|tskey-[\w\-]{16,}|"
    r"eyJ[A-Za-z0-9_\-]{10,}\.[A-Za-z0-9_\-]{10,}\.[A-Za-z0-9_\-]+|[0-9a-f]{40})\b"
    r"|(?<=://)[^/\s:@]*:[^/\s]+(?=@)"  # user:password@, to the last @ before the path
    r"|(?:(?<=http://)|(?<=https://)|(?<=ftp://))[^/\s@]+(?=@)"  # a token in the user's place
    r"|(?:(?<=hooks\.slack\.com/)|(?<=/api/webhooks/)|(?<=api\.telegram\.org/bot))[^\s\"'?]+"  # whoever has it may post
)
# Commands that take a password without a name for it. Words of a command line are separated by \0 here, or by spaces.
_COMMAND_SECRET = re.compile(
    r"(?P<before>(?:^|(?<=[\s\0/;&|(\"'`]))(?:"
    r"(?:sshpass|7z[ar]?|mysql(?:dump|admin)?|mariadb)[\s\0](?:[^;&|]{0,200}?[\s\0])?-p[\s\0]?|"
    r"zip[\s\0](?:[^;&|]{0,200}?[\s\0])?-P[\s\0]?|docker[\s\0]+login[\s\0](?:[^;&|]{0,200}?[\s\0])?-p[\s\0]?|"
    r"wandb[\s\0]+login[\s\0]+(?:--[^\s\0]+[\s\0]+)*|"
    r"curl[\s\0](?:[^;&|]{0,200}?[\s\0])?(?:-[uU]|--(?:proxy-)?user)[\s\0=]?[^\s\0:]*:|"
    r"(?:curl|wget)[\s\0](?:[^;&|]{0,200}?[\s\0])?(?:-x|--proxy)[\s\0=][^\s\0:/]*:"
    r"))(?!-)(?P<secret>[^\s\0@]+)"
)
# What shell, Python, JSON, a query string or a command line gives a name: `HF_TOKEN=x python`, `login(token='x')`.
_ASSIGNED_NAME = re.compile(r"""(?<![\w.])([A-Za-z_][\w.\-]*)(\\?["']?\]?)\s{0,40}[=:](?:\\?\s){0,40}""")
_QUOTED_NAME = re.compile(r"""(?<=["'])([A-Za-z][A-Za-z ]{1,40})(\\?["'])\s{0,40}:\s{0,40}""")  # {"API key": "x"}
_OPTION_NAME = re.compile(r"(?<!\S)--?([A-Za-z][\w.\-]*)(?:\\?\s){1,40}(?!--[a-z])")
# A list or a table as a whole, or the pieces that a shell puts together to one word: "a"'b'\\ c
_VALUE = re.compile(
    r"""(?:bearer|basic|token)\s+[^\s"']+|\\?[\[{(][^\]})]*[\]})]?|"""
    r"""(?:\\"[^"]*"?|"(?:[^"\\]|\\.)*"?|\$?'[^']*'?|(?:[^\s"',;&|)}\]\\]|\\.|\\)+)+""",
    re.IGNORECASE,
)
_HEADER = re.compile(r"(?:proxy-)?authorization|(?:set-)?cookie", re.IGNORECASE)  # of several words, to its end
_UPTO = {"'": re.compile(r"[^'\n]*"), '"': re.compile(r'(?:[^"\\\n]|\\.)*'), "": re.compile(r"[^\n]*")}
_IS_OPTION = re.compile(r"--[a-z][a-z0-9]*(?:[-_.][a-z0-9]+)*(?:=.*)?", re.DOTALL)

# The environment that explains speed or identity, and holds no secrets.
ENVIRONMENT = (
    "CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "CUDA_DEVICE_MAX_CONNECTIONS", "OMP_NUM_THREADS",
    "MKL_NUM_THREADS", "TOKENIZERS_PARALLELISM", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "NCCL_DEBUG",
    "NCCL_P2P_DISABLE", "NCCL_IB_DISABLE", "TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE", "TORCH_LOGS",
    "NVIDIA_TF32_OVERRIDE", "HF_HUB_OFFLINE", "CONDA_DEFAULT_ENV", "SLURM_JOB_ID", "SLURM_JOB_NAME", "SLURM_NTASKS",
    "TORCHELASTIC_RUN_ID", "KERAS_BACKEND", "JAX_PLATFORMS", "TORCH_DISTRIBUTED_DEBUG",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
)  # fmt: skip

# Libraries whose version is read where they are loaded already.
LIBRARIES = (
    "torch", "transformers", "trl", "peft", "accelerate", "lightning", "datasets", "numpy", "deepspeed", "keras", "jax",
    "tensorflow",
)  # fmt: skip


def names_a_secret(name: str) -> bool:
    """Return whether a name is likely that of a password, a key or an access token."""
    return bool(_SECRET_NAME.search(name)) and not _VOCABULARY.search(name)


def is_secret(name: str, value: Any) -> bool:
    """Return whether a value is likely a secret, by its name or, where that may mean anything, by both."""
    if names_a_secret(name):
        return value is not None
    return isinstance(value, str) and bool(_POSSIBLE_NAME.search(name)) and bool(_RANDOM.fullmatch(value))


def _without_passwords(command: str) -> str:
    return _COMMAND_SECRET.sub(lambda found: found["before"] + MASK, command)


def masked(text: str) -> str:
    """Return `text` with everything masked that looks like a secret: known shapes, and values with a telling name."""
    text = _without_passwords(text)
    for pattern in (_ASSIGNED_NAME, _QUOTED_NAME, _OPTION_NAME):
        text = _without_values(pattern, text)
    return _SECRET_VALUE.sub(MASK, text)


def _without_values(pattern: "re.Pattern[str]", text: str) -> str:
    """Return `text` with the values masked whose names `pattern` finds to be those of secrets."""
    out, at = [], 0
    for found in pattern.finditer(text):
        if found.start() < at or not (names_a_secret(found[1]) or _POSSIBLE_NAME.search(found[1])):
            continue
        value = _value_of(found, text).match(text, found.end())
        if value is not None and is_secret(found[1], value[0].strip("\"'\\")):
            out += [text[at : found.end()], MASK]
            at = value.end()
    return "".join([*out, text[at:]])


def _value_of(found: "re.Match[str]", text: str) -> "re.Pattern[str]":
    """Return the pattern of the value after this name. A header ends with its line, or with the quotes around it."""
    if not _HEADER.fullmatch(found[1]) or ":" not in found[0] or found[2]:
        return _VALUE
    before = text[found.start() - 1] if found.start() else ""
    return _UPTO.get(before, _UPTO[""])


def masked_argv(argv: Sequence[str]) -> List[str]:
    """Return a command line without secrets: ``--hf-token X``, ``--password=X``, ``API_KEY=X`` and known key shapes.

    A word after ``--hf-token`` is its value, even with a dash before it, unless it reads like an option.
    """
    out: List[str] = []
    option = ""  # the word before, where this one may be its value
    line = "\0".join([word.replace("\0", " ") for word in argv])
    for word in _without_passwords(line).split("\0") if argv else ():
        name, equals, value = word.partition("=")
        flag = name.lstrip("-")
        if option and is_secret(option, word) and not _IS_OPTION.fullmatch(word):
            out.append(MASK)
        elif equals and is_secret(flag, value) and not re.search(r"\s", name):
            out.append(f"{name}={MASK}")
        else:
            out.append(masked(word))
        option = flag if word.startswith("-") and not equals else ""
    return out


def masked_config(config: Dict[Any, Any], depth: int = 3) -> Dict[str, Any]:
    """Return a configuration as it is sent: plain values, cleaned and cut, secrets masked."""
    out: Dict[str, Any] = {}
    for key, value in list(config.items())[:MAX_CONFIG]:
        name = clean(key, MAX_NAME)
        if isinstance(value, dict) and depth > 0 and _POSSIBLE_NAME.search(name):  # {"tokens": {"hub": "x"}}
            out[name] = {key: MASK if is_secret("key", inner) else inner for key, inner in _plain(value, depth).items()}
        else:
            out[name] = MASK if is_secret(name, value) else _plain(value, depth)
    return out


def _plain(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if type(value) in (int, float):
        return number(value)
    if isinstance(value, dict) and depth > 0:
        return masked_config(value, depth - 1)
    if isinstance(value, (list, tuple)) and depth > 0:
        if len(value) == 2 and isinstance(value[0], str) and names_a_secret(value[0]):  # a header or an item
            return [clean(value[0], MAX_NAME), MASK]
        if all(isinstance(item, str) for item in value[:50]):  # it may be a command line
            return [clean(word, MAX_TEXT // 16) for word in masked_argv([item[:MAX_TEXT] for item in value[:50]])]
        return [_plain(item, depth - 1) for item in value[:50]]
    try:
        if hasattr(value, "detach"):  # printing a tensor on a device waits for it
            return f"<{type(value).__name__}>"
        return clean(masked(str(value)[:MAX_TEXT]), MAX_TEXT // 16)
    except Exception:  # a foreign __str__ may raise anything
        return f"<{type(value).__name__}>"


def process_facts() -> Dict[str, Any]:
    """Return what is known about this process now."""
    argv = masked_argv(getattr(sys, "orig_argv", None) or [sys.executable, *sys.argv])
    facts: Dict[str, Any] = {
        "command": [clean(word, 512) for word in argv[:64]],
        "cwd": clean(_cwd()),
        "python": platform.python_version(),
        "versions": library_versions(),
        "environment": {name: clean(masked(os.environ[name]), 256) for name in ENVIRONMENT if name in os.environ},
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
        ("restart", ("TORCHELASTIC_RESTART_COUNT",)),
    ):
        for variable in variables:
            text = os.environ.get(variable, "")
            if text.isascii() and text.isdigit() and len(text) < 8:
                found[name] = int(text)
                break
    return found if "rank" in found else {**found, **(group or cuda.process_group())}


def program_name() -> str:
    """Return the name of this program: its script without the suffix, or its module."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name:
        name: str = spec.name
        return name[: -len(".__main__")] if name.endswith(".__main__") else name
    path = sys.argv[0] if sys.argv and sys.argv[0] not in ("", "-c", "-") else "python"
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

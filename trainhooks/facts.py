"""One-shot facts about this process: what runs, of which version, on which machine. Standard library only.

Nothing is imported and no program is started to learn a fact: what is not at hand stays unknown. Secrets are masked,
and the environment is recorded by an allow-list.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from typing import Any, Dict, List, Optional, Sequence

from trainhooks.events import MAX_NAME, MAX_TEXT, clean, number
from trainhooks.process_group import process_group

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
    r"ya29\.[\w\-]{16,}|"
    r"eyJ[A-Za-z0-9_\-]{10,}\.[A-Za-z0-9_\-]{10,}\.[A-Za-z0-9_\-]+|[0-9a-f]{40})\b"
    r"|(?<=://)[^/\s:@]*:[^/\s]+(?=@)"  # user:password@, to the last @ before the path
    r"|(?:(?<=http://)|(?<=https://)|(?<=ftp://))[^/\s@]+(?=@)"  # a token in the user's place
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
    "TORCHELASTIC_RUN_ID",
)  # fmt: skip

# Libraries whose version is read where they are loaded already.
LIBRARIES = ("torch", "transformers", "trl", "peft", "accelerate", "lightning", "datasets", "numpy", "deepspeed")


def names_a_secret(name: str) -> bool:
    """Whether what goes by this name is likely a password, a key or an access token."""
    return bool(_SECRET_NAME.search(name)) and not _VOCABULARY.search(name)


def masked(text: str) -> str:
    """`text` with everything in it that looks like a secret replaced: known shapes, and what has a telling name."""
    for pattern in (_ASSIGNED_NAME, _QUOTED_NAME, _OPTION_NAME):
        text = _without_values(pattern, text)
    return _SECRET_VALUE.sub(MASK, text)


def _without_values(pattern: "re.Pattern[str]", text: str) -> str:
    """`text` without the values of the secrets that `pattern` finds the names of."""
    out, at = [], 0
    for found in pattern.finditer(text):
        if found.start() < at or not names_a_secret(found[1]):
            continue
        value = _value_of(found, text).match(text, found.end())
        if value is not None:
            out += [text[at : found.end()], MASK]
            at = value.end()
    return "".join([*out, text[at:]])


def _value_of(found: "re.Match[str]", text: str) -> "re.Pattern[str]":
    """What a value looks like after this name: a header that stands bare, or in quotes as a whole, ends with them."""
    if not _HEADER.fullmatch(found[1]) or ":" not in found[0] or found[2]:
        return _VALUE
    before = text[found.start() - 1] if found.start() else ""
    return _UPTO.get(before, _UPTO[""])


def masked_argv(argv: Sequence[str]) -> List[str]:
    """A command line without its secrets: ``--hf-token X``, ``--password=X``, ``API_KEY=X`` and known key shapes.

    A word after ``--hf-token`` is its value, also one with a dash before it, unless it reads like an option of its own.
    """
    out: List[str] = []
    secret_follows = False
    for word in argv:
        name, equals, _ = word.partition("=")
        flag = name.lstrip("-")
        if secret_follows and not _IS_OPTION.fullmatch(word):
            out.append(MASK)
        elif equals and names_a_secret(flag) and not re.search(r"\s", name):
            out.append(f"{name}={MASK}")
        else:
            out.append(masked(word))
        secret_follows = word.startswith("-") and not equals and names_a_secret(flag)
    return out


def masked_config(config: Dict[Any, Any], depth: int = 3) -> Dict[str, Any]:
    """A configuration as it travels: plain values, cleaned and cut, secrets masked."""
    out: Dict[str, Any] = {}
    for key, value in list(config.items())[:MAX_CONFIG]:
        name = clean(key, MAX_NAME)
        out[name] = MASK if names_a_secret(name) and value is not None else _plain(value, depth)
    return out


def _plain(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if type(value) in (int, float):
        return number(value)
    if isinstance(value, dict) and depth > 0:
        return masked_config(value, depth - 1)
    if isinstance(value, (list, tuple)) and depth > 0:
        if len(value) == 2 and isinstance(value[0], str) and names_a_secret(value[0]):  # a header, or an item
            return [clean(value[0], MAX_NAME), MASK]
        if all(isinstance(item, str) for item in value[:50]):  # it may be a command line
            return [clean(word, MAX_TEXT // 16) for word in masked_argv([item[:MAX_TEXT] for item in value[:50]])]
        return [_plain(item, depth - 1) for item in value[:50]]
    try:
        if hasattr(value, "detach"):  # a tensor on a device: to print it is to wait for it
            return f"<{type(value).__name__}>"
        return clean(masked(str(value)[:MAX_TEXT]), MAX_TEXT // 16)
    except Exception:  # a foreign __str__ may raise anything
        return f"<{type(value).__name__}>"


def process_facts() -> Dict[str, Any]:
    """What this process knows of itself now."""
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
    """Versions of the training libraries that are loaded."""
    found = {}
    for name in LIBRARIES:
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            found[name] = clean(version, 64)
    return found


def git_commit(directory: str) -> Optional[str]:
    """The commit that is checked out in `directory` or above it, read from .git without starting git."""
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
    """This process's place among its peers: rank, local_rank, world_size, restart; as torchrun or Slurm set it.

    Args:
        group: what torch's process group told of it before, if it did.
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
    return found if "rank" in found else {**found, **(group or process_group())}


def program_name() -> str:
    """What people call this program: its script's name without the ending, or its module."""
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
    except OSError:  # it was removed under us
        return ""


def _usable_cpus() -> Optional[int]:
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return os.cpu_count()

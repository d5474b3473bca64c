"""What Hugging Face programs do before the first step: downloads, loading, tokenising. Spans, told apart by name."""

from __future__ import annotations

import os
import re
import sys
from types import ModuleType
from typing import Any, Callable, Dict, Optional, Tuple

from trainhooks import facts, rundir, session
from trainhooks.auto import sections
from trainhooks.clocks import NANOSECOND, host_clock
from trainhooks.entries import FACTS

LOAD_MODEL = "load model"
DOWNLOAD = "download"

# module -> class -> method -> span
LOADERS: Dict[str, Dict[str, Dict[str, str]]] = {
    "transformers.modeling_utils": {
        "PreTrainedModel": {"from_pretrained": LOAD_MODEL, "_load_pretrained_model": "load weights"},
    },
    "transformers.models.auto.auto_factory": {"_BaseAutoModelClass": {"from_pretrained": LOAD_MODEL}},
    "transformers.tokenization_utils_base": {"PreTrainedTokenizerBase": {"from_pretrained": "load tokenizer"}},
    "transformers.models.auto.tokenization_auto": {"AutoTokenizer": {"from_pretrained": "load tokenizer"}},
    "transformers.models.auto.configuration_auto": {"AutoConfig": {"from_pretrained": "load config"}},
    "transformers.processing_utils": {"ProcessorMixin": {"from_pretrained": "load processor"}},
    "peft.peft_model": {"PeftModel": {"__init__": "add adapters", "from_pretrained": "load adapters"}},
}
SHARD = re.compile(r"-0*(\d+)-of-0*(\d+)\.\w+$")  # model-00003-of-00004.safetensors


def install(module: ModuleType) -> None:
    """Called after one of these modules has been imported."""
    for class_name, methods in LOADERS.get(module.__name__, {}).items():
        owner = getattr(module, class_name, None)
        for method, label in methods.items() if owner is not None else ():
            if label == LOAD_MODEL:
                sections.replace(owner, method, _loading_model)
            else:
                sections.timed(owner, method, label)
    if module.__name__ == "transformers.modeling_utils":
        sections.replace(module, "load_shard_file", _loading_shard)  # transformers 4
    elif module.__name__ == "huggingface_hub.file_download":
        sections.replace(module, "http_get", _downloading)
        sections.replace(module, "xet_get", _downloading)
    elif module.__name__ == "datasets.arrow_dataset":
        sections.replace(module.Dataset, "map", _mapping)


def _loading_model(from_pretrained: Callable[..., Any]) -> Callable[..., Any]:
    def ours(*args: Any, **kwargs: Any) -> Any:
        with sections.span(LOAD_MODEL):
            if sections.harmless(_is_alone):
                session.announce()  # so that it is seen while it lasts
            return from_pretrained(*args, **kwargs)

    return ours


def _is_alone() -> bool:
    """Whether this looks like the training itself: launched to report, no worker, and nobody reports as this rank yet.

    A process that a training starts (a judge, a reward model's server) is told by its steps, if it does any.
    """
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None and "RANK" not in os.environ:
        return False
    run = os.environ.get(rundir.RUN_VARIABLE)
    if not run:
        return False
    rank = facts.rank_facts().get("rank", 0)
    return not any(name.startswith(f"rank-{rank}-") for name in os.listdir(run))


def _loading_shard(load_shard_file: Callable[..., Any]) -> Callable[..., Any]:
    def ours(args: Any, *rest: Any, **kwargs: Any) -> Any:
        with sections.span(sections.harmless(shard_name, args) or "load shard"):
            return load_shard_file(args, *rest, **kwargs)

    return ours


def shard_name(args: Tuple[Any, ...]) -> Optional[str]:
    """`load shard 3/4` from the arguments of `load_shard_file`, of which one is the shard's path."""
    for each in args:
        found = SHARD.search(each) if isinstance(each, str) else None
        if found:
            return f"load shard {found[1]}/{found[2]}"
    return None


def _mapping(run: Callable[..., Any]) -> Callable[..., Any]:
    def ours(self: Any, function: Any = None, *args: Any, **kwargs: Any) -> Any:
        told = f"{kwargs.get('desc')} {getattr(function, '__name__', '')}".lower()
        with sections.span("tokenize" if "token" in told else "dataset map"):
            return run(self, function, *args, **kwargs)

    return ours


class _Downloads:
    """All downloads of this process so far."""

    files = 0
    bytes = 0
    seconds = 0.0

    def add(self, size: int, seconds: float) -> Dict[str, Any]:
        self.files += 1
        self.bytes += size
        self.seconds += seconds
        return {"files": self.files, "bytes": self.bytes, "seconds": round(self.seconds, 3)}


_downloads = _Downloads()


def _downloading(get: Callable[..., Any]) -> Callable[..., Any]:
    def ours(*args: Any, **kwargs: Any) -> Any:
        if sections.is_open(DOWNLOAD):  # it tries again by calling itself
            return get(*args, **kwargs)
        began = host_clock()
        before = sections.harmless(_size, args, kwargs) or 0
        with sections.span(DOWNLOAD):
            result = get(*args, **kwargs)
        size = max(0, (sections.harmless(_size, args, kwargs) or 0) - before)
        told = _downloads.add(size, (host_clock() - began) / NANOSECOND)
        session.quiet_put()((FACTS, {"facts": {"download": told}}))
        return result

    return ours


def _size(args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> int:
    """Bytes that the file which is written holds now: `http_get` gets it open, `xet_get` its path."""
    path = kwargs.get("incomplete_path")
    if path is not None:
        return os.path.getsize(path) if os.path.exists(path) else 0
    file = kwargs.get("temp_file") or args[1]
    return int(file.tell())

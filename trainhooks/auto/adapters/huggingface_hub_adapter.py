"""huggingface_hub: downloads as spans, and their files, bytes and seconds as facts."""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any, Callable, Dict, Tuple

from trainhooks.auto.imports import when_imported
from trainhooks.auto.instrumentation import call_safely, is_open, put_facts, span, wrap
from trainhooks.lane_entries import NANOSECOND, host_clock

DOWNLOAD = "download"


class Downloads:
    """All downloads of this process so far."""

    def __init__(self) -> None:
        self.files = 0
        self.bytes = 0
        self.seconds = 0.0

    def add(self, size: int, seconds: float) -> None:
        self.files += 1
        self.bytes += size
        self.seconds += seconds
        put_facts(download={"files": self.files, "bytes": self.bytes, "seconds": round(self.seconds, 3)})


downloads = Downloads()


@when_imported("huggingface_hub.file_download")
def wrap_downloads(module: ModuleType) -> None:
    wrap(module, "http_get", _download)
    wrap(module, "xet_get", _download)


def _download(original: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if is_open(DOWNLOAD):  # a retry calls the function again
            return original(*args, **kwargs)
        began = host_clock()
        before = call_safely(_size, args, kwargs) or 0
        with span(DOWNLOAD):
            result = original(*args, **kwargs)
        size = max(0, (call_safely(_size, args, kwargs) or 0) - before)
        downloads.add(size, (host_clock() - began) / NANOSECOND)
        return result

    return wrapper


def _size(args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> int:
    """Return the current bytes of the written file: `http_get` is passed the open file, `xet_get` its path."""
    path = kwargs.get("incomplete_path")
    if path is not None:
        return os.path.getsize(path) if os.path.exists(path) else 0
    file = kwargs.get("temp_file") or args[1]
    return int(file.tell())

"""The collectives that this process has called last, by torch's flight recorder: on in current torch, read as JSON."""

from __future__ import annotations

import json
import sys
from typing import Any, Dict, List, Optional, Tuple

from trainhooks.protocol.limits import MAX_COLLECTIVES, clean

MAX_GROUP, MAX_CALL = 40, 80  # characters
DEFAULT = "default_pg"  # the name that torch gives to the group of all ranks
ENTRY = b'{"collective_seq_id"'  # how the record of a collective begins

Called = Tuple[str, int, str]  # process group, its count in it, and what was called


def newest_collectives() -> Optional[List[Called]]:
    """Return the newest calls, the newest first; None where torch records none, or no process group exists."""
    exists = getattr(sys.modules.get("torch.distributed"), "is_initialized", bool)
    dump = getattr(sys.modules.get("torch._C._distributed_c10d"), "_dump_fr_trace_json", None)
    recorded = dump(True, False) if dump is not None and exists() else b""
    found: List[Called] = []
    at, decoder = len(recorded), json.JSONDecoder()
    while len(found) < MAX_COLLECTIVES and (at := recorded.rfind(ENTRY, 0, at)) >= 0:
        end = recorded.find(ENTRY, at + 1)  # read one by one: that makes few containers
        entry = decoder.raw_decode(recorded[at : end if end > 0 else None].decode("utf-8", "replace"))[0]
        if not entry.get("is_p2p"):
            found.append(_called(entry))
    return found or None


def _called(entry: Dict[str, Any]) -> Called:
    number, name = entry["process_group"]
    group = name if name == DEFAULT else f"{name} {number}"
    operation = entry["profiling_name"].rpartition(":")[2]  # `gloo:all_reduce`
    sizes = ", ".join(str(size) for size in entry["input_sizes"][:2])
    call = f"{operation} {sizes} {' '.join(sorted(set(entry['input_dtypes']))).lower()}".strip()
    return clean(group, MAX_GROUP), int(entry["collective_seq_id"]), clean(call, MAX_CALL)

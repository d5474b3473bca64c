"""The collectives that this process has called last, by torch's flight recorder: on in current torch, read as JSON."""

from __future__ import annotations

import json
import sys
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from trainhooks.protocol.limits import MAX_COLLECTIVES, clean

MAX_GROUP, MAX_CALL = 40, 80  # characters
DEFAULT = "default_pg"  # the name that torch gives to the group of all ranks
ENTRY = b'{"collective_seq_id"'  # how the record of a collective begins
GLOO = "gloo"  # its calls are made where the training thread is; others are put into a device's queue
SLICE = 32  # records that are read before the interpreter is released: less than a millisecond

Called = Tuple[str, int, str]  # process group, its count in it, and what was called
_BYTES = {"Float": 4, "Double": 8, "Half": 2, "BFloat16": 2, "Long": 8, "Int": 4, "Short": 2}  # of an element; else 1


class Call(NamedTuple):
    """A collective of the CPU, when it was called."""

    group: str
    number: int  # in its group
    call: str  # with sizes
    size: int  # bytes of its input
    created: int  # nanoseconds of the wall clock


def newest_collectives() -> Optional[List[Called]]:
    """Return the newest calls, the newest first; None where torch records none, or no process group exists."""
    found: List[Called] = []
    for entry in _recorded():
        found.append(_called(entry))
        if len(found) == MAX_COLLECTIVES:
            break
    return found or None


def calls_since(wall: int, release: Callable[[], None]) -> List[Call]:
    """Return the calls of gloo since a time of the wall clock, in nanoseconds, the oldest first.

    Args:
        release: called between slices of the work.
    """
    found: List[Call] = []
    for entry in _recorded():
        created = int(entry["time_created_ns"])
        if created < wall:
            break
        if entry["profiling_name"].startswith(GLOO):
            size = sum(map(_bytes, entry["input_sizes"], entry["input_dtypes"]))
            found.append(Call(*_called(entry), size, created))
        if len(found) % SLICE == 0:
            release()
    return found[::-1]


def _recorded() -> Iterator[Dict[str, Any]]:
    """Yield the records of collectives, the newest first: read one by one, which makes few containers."""
    exists = getattr(sys.modules.get("torch.distributed"), "is_initialized", bool)
    dump = getattr(sys.modules.get("torch._C._distributed_c10d"), "_dump_fr_trace_json", None)
    recorded = dump(True, False) if dump is not None and exists() else b""
    at, decoder = len(recorded), json.JSONDecoder()
    while (at := recorded.rfind(ENTRY, 0, at)) >= 0:
        end = recorded.find(ENTRY, at + 1)
        entry = decoder.raw_decode(recorded[at : end if end > 0 else None].decode("utf-8", "replace"))[0]
        if not entry.get("is_p2p"):
            yield entry


def _called(entry: Dict[str, Any]) -> Called:
    number, name = entry["process_group"]
    group = name if name == DEFAULT else f"{name} {number}"
    operation = entry["profiling_name"].rpartition(":")[2]  # `gloo:all_reduce`
    sizes = ", ".join(str(size) for size in entry["input_sizes"][:2])
    call = f"{operation} {sizes} {' '.join(sorted(set(entry['input_dtypes']))).lower()}".strip()
    return clean(group, MAX_GROUP), int(entry["collective_seq_id"]), clean(call, MAX_CALL)


def _bytes(size: List[int], dtype: str) -> int:
    total = _BYTES.get(dtype, 1)
    for length in size:
        total *= length
    return total

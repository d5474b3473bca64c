"""Where a forward pass waits for the device, and what it copies between host and device: by the user's own lines."""

from __future__ import annotations

import os
import sys
from typing import Any, Dict, List, Optional, Tuple

from trainhooks import cuda, frames, session
from trainhooks.auto import sections
from trainhooks.entries import FACTS

MAX_ROWS = 8  # places that are told
MAX_PLACES = 200  # that are counted
ASKED = 4  # copies whose source is asked whether it is pinned: the driver is asked then
MAX_FRAMES = 60

# Calls that give the host a number, or a shape that depends on numbers: the host waits until the device knows them.
_WAITING = {
    **{name: "." + name for name in (
        "item", "tolist", "cpu", "numpy", "nonzero", "nonzero_numpy", "argwhere", "masked_select", "unique",
        "_unique2", "unique_dim", "unique_consecutive", "bincount", "is_nonzero", "equal", "allclose",
    )},
    "__bool__": "bool()", "__int__": "int()", "__float__": "float()", "__complex__": "complex()",
    "__index__": "index()", "__array__": "numpy()", "__contains__": "in", "__format__": "format()",
    "__repr__": "repr()",
}  # fmt: skip
_COPYING = frozenset(("to", "cuda", "cpu", "copy_", "tensor", "as_tensor"))
LOOKED_AT = _COPYING.union(_WAITING, ("__getitem__", "__setitem__", "where", "repeat_interleave"))

_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class Transfers:
    """Counts them during one forward pass. Made with torch at hand."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._masks = (torch.bool, torch.uint8)
        self._passed = (_OWN, os.path.dirname(os.path.abspath(torch.__file__)) + os.sep)
        self._names: Dict[str, str] = {}
        self._waits: Dict[Tuple[str, str], int] = {}
        self._copies: Dict[str, int] = {}  # bytes by place
        self._asked = 0
        self._pageable = 0  # bytes of those that were asked
        self._known = 0
        self.h2d = self.h2d_calls = self.d2h = self.d2h_calls = 0

    def saw(self, name: str, args: Tuple[Any, ...], kwargs: Dict[str, Any], result: Any) -> None:
        """One call of torch of a name in LOOKED_AT."""
        if name in _COPYING:
            self._copied(name, args, kwargs, result)
        elif self._waits_in(name, args, kwargs):
            self._waited(_WAITING.get(name) or ("[mask]" if name.endswith("item__") else "." + name))

    def _waits_in(self, name: str, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> bool:
        tensor = self._torch.Tensor
        given = args[0] if args else kwargs.get("input")
        if name == "__contains__" and len(args) > 1 and isinstance(args[1], tensor):
            return bool(args[1].is_cuda)
        if not (isinstance(given, tensor) and given.is_cuda):
            return False
        if name == "where":
            return len(args) + len(kwargs) == 1
        if name == "repeat_interleave":
            repeats = args[1] if len(args) > 1 else kwargs.get("repeats", given)
            return isinstance(repeats, tensor) and kwargs.get("output_size") is None
        if name in ("__getitem__", "__setitem__"):
            index = args[1] if isinstance(args[1], tuple) else (args[1],)
            if not any(isinstance(each, tensor) and each.dim() and each.dtype in self._masks for each in index):
                return False
            # One number put where a mask is true needs no shape.
            value = args[2] if name == "__setitem__" else None
            return name == "__getitem__" or (isinstance(value, tensor) and value.numel() != 1)
        return True

    def _waited(self, call: str) -> None:
        key = (self.place(), call)
        if key in self._waits or len(self._waits) < MAX_PLACES:
            self._waits[key] = self._waits.get(key, 0) + 1

    def _copied(self, name: str, args: Tuple[Any, ...], kwargs: Dict[str, Any], result: Any) -> None:
        tensor = self._torch.Tensor
        if name in ("tensor", "as_tensor"):  # from Python's numbers, or an array
            source = args[0] if args else None
            if isinstance(result, tensor) and result.is_cuda and not (isinstance(source, tensor) and source.is_cuda):
                self._to_device(result, None)
            return
        if name == "copy_":
            target, source = args[0], args[1] if len(args) > 1 else kwargs.get("src")
            on_device: Optional[bool] = bool(target.is_cuda)
        else:
            source = args[0] if args else None
            on_device = {"cuda": True, "cpu": False}.get(name) if name != "to" else self._target(args, kwargs)
        if not isinstance(source, tensor) or on_device is None or bool(source.is_cuda) == on_device:
            return
        if on_device:
            self._to_device(source, source)
            return
        self.d2h += _bytes(source)
        self.d2h_calls += 1
        self._from(source)
        if not (kwargs.get("non_blocking") or (name == "copy_" and len(args) > 2 and args[2])):
            self._waited("." + name)

    def _target(self, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Optional[bool]:
        """Whether `.to` goes to the device; None where it goes nowhere."""
        torch = self._torch
        for each in (*args[1:2], kwargs.get("device"), kwargs.get("other")):
            if isinstance(each, torch.Tensor):
                return bool(each.is_cuda)
            if isinstance(each, (str, torch.device)):
                return str(each).partition(":")[0] not in ("cpu", "meta")
            if type(each) is int:
                return True
        return None

    def _to_device(self, moved: Any, source: Any) -> None:
        size = _bytes(moved)
        self.h2d += size
        self.h2d_calls += 1
        if self._asked < ASKED and (cuda.started() is None or cuda.is_quiet()):
            self._asked += 1
            self._known += size
            self._pageable += size if source is None or not source.is_pinned() else 0
        self._from(moved)

    def _from(self, moved: Any) -> None:
        place = self.place()
        if place in self._copies or len(self._copies) < MAX_PLACES:
            self._copies[place] = self._copies.get(place, 0) + _bytes(moved)

    def place(self) -> str:
        """`model.py:88`: the innermost line that is neither torch's nor ours."""
        frame = sys._getframe(1)
        for _ in range(MAX_FRAMES):
            code = frame.f_code
            path = code.co_filename
            if not path.startswith(self._passed) and not path.startswith("<"):
                name = self._names.get(path)
                if name is None:
                    inside = os.sep.join(path.split(os.sep)[-2:]) if "-packages" + os.sep in path else path
                    name = self._names[path] = inside if inside is not path else frames._short(path)
                return f"{name}:{frame.f_lineno}"
            if frame.f_back is None:
                break
            frame = frame.f_back
        return "?"

    def waits(self) -> List[Dict[str, Any]]:
        """Calls that wait for the device, the most frequent ones first."""
        rows = sorted(self._waits.items(), key=lambda row: -row[1])[:MAX_ROWS]
        return [{"place": f"{place} ({call})", "call": call, "count": count} for (place, call), count in rows]

    def copies(self) -> Dict[str, Any]:
        """What was copied. The pageable part is as that of the first copies."""
        pageable = self.h2d * self._pageable // self._known if self._known else 0
        places = sorted(self._copies, key=lambda place: -self._copies[place])[:MAX_ROWS]
        return {
            "h2d": self.h2d,
            "h2d_pageable": pageable,
            "h2d_calls": self.h2d_calls,
            "d2h": self.d2h,
            "d2h_calls": self.d2h_calls,
            "places": places,
        }


def _bytes(tensor: Any) -> int:
    return int(tensor.numel()) * int(tensor.element_size())


# A batch as it comes from the loader

BATCHES = 3  # that are looked at, at most
_DEPTH, _ITEMS = 3, 64


class BatchLook:
    """Tells how many bytes a batch has, and whether they lie in pinned memory. Of the first batches only."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._left = BATCHES

    def look(self, batch: Any) -> None:
        if self._left:
            self._left -= 1
            sections.harmless(self._tell, batch)

    def _tell(self, batch: Any) -> None:
        tensors: List[Any] = []
        self._collect(batch, tensors, _DEPTH)
        if not tensors:
            return
        told: Dict[str, Any] = {"bytes": sum(map(_bytes, tensors))}
        if cuda.started() is not None:
            if not cuda.is_quiet():
                return
            told["pinned"] = bool(max(tensors, key=_bytes).is_pinned())
            self._left = 0
        elif self._left < BATCHES - 1:  # said already; what is missing may yet come
            return
        session.quiet_put()((FACTS, {"facts": {"batch": told}}))

    def _collect(self, value: Any, found: List[Any], depth: int) -> None:
        """The tensors on the host, among the first items of what a batch is made of."""
        if isinstance(value, self._torch.Tensor):
            if not value.is_cuda and value.device.type == "cpu":
                found.append(value)
        elif depth and isinstance(value, (list, tuple)):
            for item in value[:_ITEMS]:
                self._collect(item, found, depth - 1)
        elif depth and hasattr(value, "keys") and hasattr(value, "get"):
            for name in list(value.keys())[:_ITEMS]:
                self._collect(value.get(name), found, depth - 1)
        elif depth and type(value).__module__ not in ("builtins", "numpy"):
            self._collect(list(vars(value).values()) if hasattr(value, "__dict__") else None, found, depth - 1)

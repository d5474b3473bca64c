"""Mixed precision: whether the program ever asks torch for it, wherever in its code, and for which dtype.

What runs inside a model or a framework cannot be seen from a model's call, so the one class that all of them use is
watched until it is used for the first time; from then on it is as torch made it.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any, Optional

from trainhooks import session
from trainhooks.entries import FACTS

OFF = "off"
UNKNOWN = None


class Watched:
    """What has been seen so far: a dtype, "off" while it was never asked for, None where nobody watches."""

    dtype: Optional[str] = UNKNOWN


watched = Watched()


def install(module: ModuleType) -> None:
    """Called after `torch.amp.autocast_mode` has been imported."""
    autocast: Any = module.autocast
    make = autocast.__init__

    @functools.wraps(make)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        if getattr(self, "_enabled", False):
            autocast.__init__ = make
            _seen(getattr(self, "fast_dtype", None))

    autocast.__init__ = __init__
    watched.dtype = OFF


def _seen(dtype: Any) -> None:
    watched.dtype = str(dtype).rpartition(".")[2]
    session.quiet_put()((FACTS, {"facts": {"autocast": watched.dtype}}))

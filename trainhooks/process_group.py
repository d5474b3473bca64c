"""This process's place among its peers, as torch's process group has it: nobody gives mp.spawn's an environment."""

from __future__ import annotations

import sys
from typing import Dict


def process_group() -> Dict[str, int]:
    """Its rank and world_size; empty where there is no group, or none any more."""
    distributed = sys.modules.get("torch.distributed")
    try:
        if distributed is None or not distributed.is_available() or not distributed.is_initialized():
            return {}
        return {"rank": int(distributed.get_rank()), "world_size": int(distributed.get_world_size())}
    except Exception:  # torch is half imported, or of a version that knows no such calls
        return {}

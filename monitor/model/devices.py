"""Which GPUs a run uses: joined by UUID, never by index or process id, which differ inside containers. Pure."""

from __future__ import annotations

from monitor.model.state import RunState


def ours(state: RunState) -> frozenset[str] | None:
    """UUIDs of the GPUs that the training's processes use; None where they have not told, or none of theirs is seen."""
    used = [_bare(uuid) for uuid in state.devices]
    found = set()
    for uuid, readings in state.gpus.items():
        if any(_bare(uuid).startswith(each) for each in used if each):  # a user may have abbreviated it
            found.add(uuid)
            card = readings[-1].mig_of
            if card is not None:  # what slows the card slows its parts
                found.add(card)
    return frozenset(found) or None


def _bare(uuid: str) -> str:
    return uuid.lower().removeprefix("gpu-").removeprefix("mig-")

"""Which GPUs a run uses: joined by UUID, never by index or process id, which differ inside containers. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from monitor.model.state import RunState


def ours(state: RunState) -> frozenset[str] | None:
    """UUIDs of the GPUs that the training's processes use; None where they have not told, or none of theirs is seen."""
    used = found(state, state.devices)
    cards = {state.gpus[uuid][-1].mig_of for uuid in used}  # what slows the card slows its parts
    return used | {card for card in cards if card is not None} or None


def found(state: RunState, used: Iterable[str]) -> frozenset[str]:
    """UUIDs of the GPUs and MIG instances, as the driver writes them, that go by these UUIDs."""
    bare = [_bare(uuid) for uuid in used]
    # A user may have abbreviated it.
    return frozenset(uuid for uuid in state.gpus if any(each and _bare(uuid).startswith(each) for each in bare))


def _bare(uuid: str) -> str:
    return uuid.lower().removeprefix("gpu-").removeprefix("mig-")

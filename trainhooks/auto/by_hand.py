"""Training with no optimizer and no loader: parameters changed by the program's own lines, `p.data -= lr * p.grad`.

All that torch is told of is the backward pass. One parameter of the loss shows the rest: its gradient was dropped or
emptied since, so it was used; and its values changed, so it was used to learn (and not to look at a model).
"""

from __future__ import annotations

import weakref
from typing import Any, Optional

MAX_NODES = 256  # of a loss's graph that are gone through for a parameter: the last layer's are a few nodes away
MAX_KEPT = 65_536  # elements that are copied to be compared
PROOFS = 3  # updates that are looked for in the values; after that nobody pays for the comparison


class ByHand:
    """One parameter, watched from one backward pass to the next."""

    __slots__ = ("_kept", "_leaf", "_proofs", "_version", "_was", "ended")

    def __init__(self, leaf: Any) -> None:
        self._leaf = weakref.ref(leaf)
        self._proofs = 0
        self._version = -1  # of the gradient after the last backward pass
        self.ended = 0  # when that was
        self._keep(leaf)

    @property
    def alive(self) -> bool:
        return self._leaf() is not None

    def backward_ended(self, t: int) -> None:
        leaf = self._leaf()
        gradient = None if leaf is None else leaf.grad
        self._version = -1 if gradient is None else gradient._version
        self.ended = t

    def updated(self) -> bool:
        """Whether the last backward pass ended a step: asked as the next one begins."""
        leaf = self._leaf()
        if leaf is None or self._version < 0:
            return False
        gradient = leaf.grad
        if gradient is not None and gradient._version == self._version:
            return False  # the next one adds to it
        if self._proofs < PROOFS:
            if not self._changed(leaf):
                return False
            self._proofs += 1
            self._keep(leaf)
        return True

    def _keep(self, leaf: Any) -> None:
        self._was = (leaf._version, leaf.data_ptr())
        at_hand = leaf.is_cpu and leaf.numel() <= MAX_KEPT  # to compare values on a GPU is to wait for it
        self._kept = leaf.detach().clone() if at_hand and self._proofs < PROOFS else None

    def _changed(self, leaf: Any) -> bool:
        if (leaf._version, leaf.data_ptr()) != self._was:
            return True
        return self._kept is not None and not leaf.detach().equal(self._kept)


def watch(loss: Any) -> Optional[ByHand]:
    """Watch a parameter that this loss depends on; None where none is near."""
    nodes, seen = [loss.grad_fn], 0
    while nodes and seen < MAX_NODES:
        node = nodes.pop()
        if node is None:
            continue
        seen += 1
        leaf = getattr(node, "variable", None)
        if leaf is not None:
            return ByHand(leaf)
        nodes.extend(inner for inner, _ in reversed(node.next_functions))
    return None

"""Attention written out by hand: a product of two batches, its softmax, and the product of that with the values.

Between them the matrix of scores is scaled, masked, cast and dropped out; each of these writes it to memory once more.
Results are followed by weak references, so nothing lives longer for being followed.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

from trainhooks.auto.op_flops import Product
from trainhooks.auto.op_wants import Followed

LARGE = 128 * 128  # positions times positions: below that a fused kernel saves nothing that counts
_SOFTMAX = frozenset(("softmax", "_softmax", "_safe_softmax", "softmax_", "exp", "exp_"))
_INNER = 3  # arguments among which scores are looked for


class Scores:
    """One matrix of scores on its way."""

    __slots__ = ("bytes", "flops", "place", "shape", "softmaxed", "used")

    def __init__(self, flops: int, size: int, shape: Tuple[int, int], place: str) -> None:
        self.flops = flops  # forward and backward
        self.bytes = size  # of all tensors that hold it
        self.shape = shape
        self.place = place
        self.softmaxed = False
        self.used = False


class Attention:
    """Follows scores through one forward pass.

    Attributes:
        flops: forward and backward, of all attention that was made out, fused or not.
        fused: calls of a fused kernel.
    """

    def __init__(self, torch: Any) -> None:
        self._tensor = torch.Tensor
        self._followed = Followed()
        self.flops = 0
        self.fused = 0
        self._count = 0
        self._bytes = 0
        self._length = 0
        self._place = ""

    def multiplied(self, found: Product, flops: int, result: Any, factors: List[Any], place: str) -> None:
        """A product; `flops` is what it takes forward and backward."""
        if found.attends:
            self.flops += flops
            return
        for each in factors:
            scores = self._followed.get(each)
            if scores is not None and scores.softmaxed:
                self.flops += flops
                self._confirm(scores)
                return
        if found.scores and isinstance(result, self._tensor) and result.dim() > 2:
            queries, keys = int(result.shape[-2]), int(result.shape[-1])
            if queries > 1 and keys > 1:
                self._followed.put(result, Scores(flops, _size(result), (queries, keys), place))

    def passed(self, name: str, args: Tuple[Any, ...], kwargs: Dict[str, Any], result: Any) -> None:
        """Any other call: what it makes of scores are scores."""
        if not self._followed or not isinstance(result, self._tensor):
            return
        given = args[:_INNER] if args else (kwargs.get("input"),)
        for each in given:
            scores = self._followed.get(each)
            if scores is None:
                continue
            if result is not each:
                if result.numel() != each.numel():
                    return
                if not result._is_view():
                    scores.bytes += _size(result)
                self._followed.put(result, scores)
            scores.softmaxed = scores.softmaxed or name in _SOFTMAX
            return

    def whole(self, size: int, length: int, place: str) -> None:
        """Attention that torch itself writes out."""
        if length * length >= LARGE:
            self._count += 1
            self._bytes += size
            self._length, self._place = max(self._length, length), self._place or place

    def told(self) -> Optional[Dict[str, Any]]:
        """What was written out; None where nothing was that is worth it."""
        if not self._count:
            return None
        return {"count": self._count, "bytes": self._bytes, "length": self._length, "place": self._place}

    def _confirm(self, scores: Scores) -> None:
        if scores.used:
            return
        scores.used = True
        self.flops += scores.flops
        queries, keys = scores.shape
        if queries * keys >= LARGE:
            self._count += 1
            self._bytes += scores.bytes
            self._length, self._place = max(self._length, keys), self._place or scores.place


def _size(tensor: Any) -> int:
    return int(tensor.numel()) * int(tensor.element_size())

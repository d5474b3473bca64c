"""Tokens and samples of a batch, as far as they can be told on the CPU without waiting for anything."""

from __future__ import annotations

from typing import Any, Optional, Tuple

Counts = Tuple[Optional[int], Optional[int], Optional[int]]  # tokens, padded tokens, samples

SEQUENCES = frozenset((list, tuple))
MAX_LOOKED_AT = 16  # items of a batch


class Batches:
    """Counts batches. Made with torch at hand, which this package never imports by itself."""

    def __init__(self, torch: Any) -> None:
        self._tensor = torch.Tensor
        self._last: Counts = (None, None, 0)
        self._ids = frozenset((torch.int64, torch.int32))
        self._masks = frozenset((torch.int64, torch.int32, torch.bool, torch.uint8, torch.int8))

    def counts(self, batch: Any) -> Optional[Counts]:
        """What a batch holds: a tensor, the tuple or list of a dataset, a mapping; None where that cannot be told."""
        tensor = self._tensor
        item = batch if type(batch) is tensor else batch[0] if type(batch) in SEQUENCES and batch else batch
        if type(item) is tensor and item.dtype not in self._ids:  # the usual cases first
            shape = item.shape
            if shape:
                if shape[0] != self._last[2]:
                    self._last = (None, None, shape[0])
                return self._last
        if isinstance(batch, self._tensor):
            return self._of_tensor(batch)
        if isinstance(batch, (tuple, list)):
            for item in batch[:MAX_LOOKED_AT]:
                if isinstance(item, self._tensor):
                    return self._of_tensor(item)
                if isinstance(item, dict):
                    return self.counts(item)
            return None
        if hasattr(batch, "keys") and hasattr(batch, "get"):
            return self._of_mapping(batch)
        return None

    def called_on(self, inputs: Any) -> Optional[Counts]:
        """The same of a model's inputs. A row of numbers may be one sample as well as many, and is not counted."""
        first = inputs[0] if isinstance(inputs, tuple) and inputs else None
        if isinstance(first, self._tensor) and first.dim() == 1 and first.is_floating_point():
            return None
        return self.counts(inputs)

    def _of_tensor(self, tensor: Any) -> Optional[Counts]:
        shape = tensor.shape
        if len(shape) == 2 and not tensor.is_floating_point() and tensor.dtype in self._ids:
            return shape[0] * shape[1], None, shape[0]
        return (None, None, shape[0]) if shape else None

    def _of_mapping(self, batch: Any) -> Optional[Counts]:
        ids = batch.get("input_ids")
        if isinstance(ids, self._tensor) and len(ids.shape) == 2:
            rows, columns = ids.shape
            mask = batch.get("attention_mask")
            if isinstance(mask, self._tensor) and mask.shape == ids.shape and mask.dtype in self._masks:
                if mask.is_cpu:
                    return int(mask.count_nonzero()), rows * columns, rows
                return None, rows * columns, rows  # how much of it is padding, only the device knows
            return rows * columns, None, rows
        for name in list(batch.keys())[:MAX_LOOKED_AT]:
            item = batch.get(name)
            if isinstance(item, self._tensor) and item.shape:
                return None, None, item.shape[0]
        return None

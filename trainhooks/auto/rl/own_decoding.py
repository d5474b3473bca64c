"""Recognize a loop of the program's own that writes sequences token by token, as nanoGPT's `generate` does.

It calls the model without gradients, on one position more each time, or with a cache on one position after the prompt.
An evaluation calls it on batches of its data, whose shapes do not grow so.
"""

from __future__ import annotations

from typing import Any, Optional, Tuple

CACHE_ARGUMENTS = ("past_key_values", "past", "cache", "kv_cache")  # arguments
MIN_DECODED = 4  # calls in a row: batches of an evaluation may grow by one, sorted by length, once or twice


class OwnDecoding:
    """The calls of one model without gradients.

    Attributes:
        began: when the first call of the row began, on the host's clock.
    """

    __slots__ = ("_decoded", "_from_prompt", "_last", "began")

    def __init__(self) -> None:
        self.began = 0
        self._decoded = 0
        self._from_prompt = False  # the row began with several positions: single ones then come from a cache
        self._last: Optional[Tuple[int, int]] = None

    def is_decoding(self, given: Any, t: int, has_cache: bool = False) -> bool:
        """Take a call; return whether it is the one that shows that a row of them decodes: once for each row.

        Args:
            given: the tensor that the model is called on.
            t: when the call began.
            has_cache: whether the call is given a cache by one of the usual names.
        """
        shape = given.shape
        if len(shape) != 2 or given.is_floating_point():
            self._last = None
            return False
        rows, length = int(shape[0]), int(shape[1])
        last, self._last = self._last, (rows, length)
        before = last[1] if last is not None and last[0] == rows else 0
        if before and (length == before + 1 or (length == 1 and (before > 1 or self._from_prompt or has_cache))):
            self._from_prompt = self._from_prompt or before > 1
            self._decoded += 1
            return self._decoded == MIN_DECODED
        self.began, self._decoded, self._from_prompt = t, 0, False
        return False

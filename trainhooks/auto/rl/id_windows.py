"""Windows of token ids, as numbers that are equal where the ids are: by them what was generated is known again.

Ids come back padded, cut off, shifted, and in other batches than they were generated in. The begin of an answer may be
a habit of the model, and so may a phrase in it. So a row has come back where two windows behind its begin have, in one
input. All is computed where the ids are, and nothing waits for a device.
"""

from __future__ import annotations

import sys
from typing import Any, Sequence, Tuple

WIDTH, NARROW = 16, 8  # ids in a window, and in answers of fewer than LONG
LONG = 64
MIN_LENGTH = 12  # new ids: of fewer, different answers may well be the same
MAX_ROWS = 64  # of a call, spread over it
MAX_IDS = 1 << 15  # of an input that are looked at: two milliseconds on a host
MIN_BACK = 2  # windows of a row
# Odd numbers, one for each doubling of a window; products wrap around.
MIXERS = (0x1E3779B97F4A7C15, 0x3F58476D1CE4E5B9, 0x14D049BB133111EB, 0x2545F4914F6CDD1D)
UNIT = 1 << 20  # three counts in one number, as one number is copied from a device


def hashes(ids: Any, width: int) -> Any:
    """Return a number for each window of `width` ids, a power of two, along the last dimension."""
    found, held = ids, 1
    for mixer in MIXERS:
        if held < width:
            found = found[..., :-held] * mixer + found[..., held:]
            held *= 2
    return found


def input_hashes(ids: Any, width: int) -> Any:
    """Return the numbers of an input's windows in ascending order: of as many rows as are looked at."""
    rows = ids.detach().reshape(-1, ids.shape[-1])
    rows = rows[: max(1, MAX_IDS // rows.shape[1]), :MAX_IDS].long()
    return hashes(rows, width).flatten().sort().values


class GeneratedRows:
    """Windows of some rows of a call's new ids: at their begin, and at a quarter, half and three quarters of them.

    Args:
        new: whole numbers, of shape (rows, new ids), with at least MIN_LENGTH columns. Rows may end with padding.

    Attributes:
        width: ids in a window.
        are_all: no row was left out.
    """

    __slots__ = ("_keys", "_usable", "are_all", "width")

    def __init__(self, new: Any) -> None:
        self.are_all = new.shape[0] <= MAX_ROWS
        new = new.detach()[:: -(-new.shape[0] // MAX_ROWS)].long()
        columns = new.shape[1]
        self.width = width = WIDTH if columns >= LONG else NARROW
        places = sys.modules["torch"].arange(columns, device=new.device)
        # Up to the last id that differs from the row's last one: padding tells nothing, and a learner is seldom given
        # the end, which only has to be foretold.
        lengths = ((new != new[:, -1:]) * places).amax(1, keepdim=True) + 1
        starts = lengths * places[:4] // 4
        starts = starts.minimum(lengths - width).clamp(min=0)
        windows = new.unfold(1, width, 1).gather(1, starts.unsqueeze(2).expand(-1, -1, width))
        self._keys = hashes(windows, width).squeeze(2)
        ordered = windows.sort(2).values
        differing = (ordered[..., 1:] != ordered[..., :-1]).sum(2) + 1  # repeated ids are equal by chance
        self._usable = (differing * 2 >= width) & (lengths >= max(MIN_LENGTH - 1, width))

    def is_near(self, ids: Any) -> bool:
        """Return whether ids are on the same device; from the host the windows are sent there."""
        if self._keys.device != ids.device and self._keys.is_cpu and ids.is_cuda:
            self._keys = self._keys.to(ids.device, non_blocking=True)
            self._usable = self._usable.to(ids.device, non_blocking=True)
        return bool(self._keys.device == ids.device)

    def forget(self, seen: Any) -> None:
        """Pass over windows among these numbers: the model has learned them before it wrote them."""
        self._usable = self._usable & ~self._are_among(seen)

    def found_in(self, seen: Any) -> Any:
        """Return, in one number on their device, what is found among these numbers: see `split`."""
        found = self._are_among(seen) & self._usable
        back = (found[:, 1:].sum(1) >= MIN_BACK).sum()
        told = (self._usable[:, 1:].sum(1) >= MIN_BACK).sum()
        return (back * UNIT + found[:, 0].sum()) * UNIT + told

    def _are_among(self, seen: Any) -> Any:
        return seen[sys.modules["torch"].searchsorted(seen, self._keys).clamp(max=len(seen) - 1)] == self._keys


def padded_rows(rows: Sequence[Sequence[int]]) -> Any:
    """Return a tensor of some of these rows, padded at their end."""
    taken = rows[:: -(-len(rows) // MAX_ROWS) or 1]
    longest = max(map(len, taken), default=0)
    return sys.modules["torch"].tensor([[*row, *[-1] * (longest - len(row))] for row in taken], device="cpu")


def split(number: int) -> Tuple[int, int, int]:
    """Return rows that have come back, rows whose begin has, and rows that could be told, from a sum of numbers."""
    rest, told = divmod(int(number), UNIT)
    return (*divmod(rest, UNIT), told)

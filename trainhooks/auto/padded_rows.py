"""Padding that no mask tells of: rows of token ids that all end, or all begin, with the same id again and again."""

from __future__ import annotations

from typing import Any, Optional, Tuple

MIN_COLUMNS = 8  # with fewer, columns are features, and rows that end alike have the same ones
MAX_LOOKS = 32  # batches in which padding is looked for and checked; a loop that pads does so from the start
# Equal ids at a row's end or begin: two are an accident of small vocabularies, four are none.
MIN_RUN = 4
LAST, FIRST = slice(-MIN_RUN, None), slice(MIN_RUN)  # columns of a row's end, and of its begin


class PaddedRows:
    """Count the tokens of rows whose padding is known by its id.

    The id is what a row ends in several times, while none ends in another one as often. It is padding as long as it is
    found nowhere else: an id that also stands among the others is a word, a class, a zero.
    """

    def __init__(self) -> None:
        self._looks = 0
        self._id: Optional[int] = None  # the padding's
        self._side = LAST

    def tokens(self, ids: Any) -> Optional[int]:
        """Return how many of these ids are none of padding; None where there is no padding, or it is unknown.

        Args:
            ids: integers in host memory, of shape (rows, columns).
        """
        is_looked_at = self._looks < MAX_LOOKS
        if not (is_looked_at or self._id is not None) or ids.shape[1] < MIN_COLUMNS:
            return None
        self._looks += is_looked_at
        if self._id is None:
            found = self._found(ids, LAST) or self._found(ids, FIRST)
            if found is None:
                return None
            self._id, self._side = found
        real = ids != self._id
        if is_looked_at and self._stands_elsewhere(real):
            self._looks, self._id = MAX_LOOKS, None
            return None
        return int(real.count_nonzero())

    def _stands_elsewhere(self, real: Any) -> bool:
        """Return whether ids of another kind stand beyond those of the padding's."""
        inner, outer = (real[:, :-1], real[:, 1:]) if self._side == LAST else (real[:, 1:], real[:, :-1])
        return bool((outer > inner).any())

    def _found(self, ids: Any, columns: slice) -> Optional[Tuple[int, slice]]:
        alike = {row[0] for row in ids[:, columns].tolist() if row.count(row[0]) == MIN_RUN}
        return (alike.pop(), columns) if len(alike) == 1 else None

"""Recognize a loop of the program's own that writes sequences token by token, as nanoGPT's `generate` does.

It calls the model without gradients, on one position more each time, or on one position after the prompt, which takes a
cache or a state. An evaluation calls it on batches of its data, whose shapes do not grow so. Single positions without a
prompt may be an evaluation of single numbers: a row of them is known once the model learns from sequences as long.

What was written is counted when the model learns from sequences of such a length. `generations` says whether it learns
from these, by their ids, which are kept for it.
"""

from __future__ import annotations

import sys
from typing import Any, Dict, List, Optional, Tuple

from trainhooks.protocol.vocabulary import UNCACHED_CALLS

MAX_POSITIONS = 64  # single ones that are kept in mind
MIN_DECODED = 4  # calls in a row: batches of an evaluation may grow by one, sorted by length, once or twice
MAX_ROWS = 4096  # that wait to be learned from; programs that never learn from theirs are not counted

Figures = Tuple[Dict[str, int], Dict[str, float]]


class DecodedRow:
    """Calls of a model that write the same sequences.

    Attributes:
        place: where the program writes them, of `generations`; None: not asked for.
        began: when the first call began, on the host's clock.
        sequences: how many are written.
        prompt: positions of the first call.
        calls: each of which gives every sequence a token.
        tokens: of all calls together; sequences may end before others.
        last: rows and positions of the last call.
        grows: calls are given all positions so far; None: not known after one call.
        learned: positions of what the model learned from next; 0: nothing so far.
    """

    __slots__ = (
        "_kept", "began", "calls", "grows", "last", "learned", "place", "prompt", "sequences", "tokens",
    )  # fmt: skip

    def __init__(self, rows: int, length: int, t: int) -> None:
        self.began = t
        self.sequences = self.tokens = rows
        self.prompt = length
        self.calls = 1
        self.last = rows, length
        self.grows: Optional[bool] = None
        self.learned = 0
        self.place: Any = None
        self._kept: Optional[List[Any]] = None

    @property
    def is_single(self) -> bool:
        """Return whether it is one of single positions without a prompt."""
        return self.prompt == 1 and not self.grows

    def takes(self, rows: int, length: int) -> bool:
        """Take the next call, if it goes on where the last one ended. Return whether it does."""
        before_rows, before = self.last
        if self.grows is None and (length == before + 1 or length == 1):
            if not before_rows or rows % before_rows:  # else the beams of each prompt
                return False
            self.grows = length > 1
            self.sequences = rows
        elif not (rows == before_rows and length == before + 1 if self.grows else rows <= before_rows and length == 1):
            return False
        self.last = rows, length
        self.calls += 1
        self.tokens += rows
        return True

    def times(self, length: int) -> int:
        """Return how many rounds of sequences were written that the model is given with this length; 0: not known.

        Without prompts one round follows another unseen. What a model learns from may lack its first or last token.
        """
        if not self.is_single:
            return int(self.calls - 1 <= length <= self.prompt + self.calls)
        return next((self.calls // one for one in (length, length - 1, length + 1) if one and not self.calls % one), 0)

    @property
    def is_kept(self) -> bool:
        """Return whether its ids are."""
        return self._kept is not None

    def keep(self) -> None:
        """Keep what the next calls are given."""
        self._kept = []

    def drop(self) -> None:
        """Keep nothing any longer."""
        self._kept = None

    def add(self, ids: Any) -> None:
        """Take what the last call was given."""
        kept = self._kept
        if kept is None:
            return
        if self.grows:
            kept[:] = [ids]
        elif len(kept) < MAX_POSITIONS and (not kept or len(kept[0]) == len(ids)):  # else some have ended
            kept.append(ids)

    def new_ids(self) -> Any:
        """Return the new ids that were kept, of shape (sequences, ids), of one round; None where there are none."""
        if not self._kept:
            return None
        if self.grows:
            return self._kept[0][:, self.prompt :]
        ids = sys.modules["torch"].cat(self._kept, 1)
        return ids[:, : max(0, self.learned - MIN_DECODED - 2)] if self.is_single and self.learned else ids


class OwnDecoding:
    """The calls of one model, as far as they write sequences.

    Attributes:
        began: when the first call of the row began, on the host's clock.
        row: the calls since then; None: the last call wrote nothing.
        rows: those that have ended, and that the model has not learned from.
    """

    __slots__ = ("_writes_singly", "began", "row", "rows")

    def __init__(self) -> None:
        self.began = 0
        self.row: Optional[DecodedRow] = None
        self.rows: List[DecodedRow] = []
        self._writes_singly = False  # it is known to write without a prompt, position by position

    @property
    def is_pending(self) -> bool:
        """Return whether there is something that the model may learn from."""
        return self.row is not None or bool(self.rows)

    @property
    def sequences(self) -> int:
        """Return how many sequences the row writes; 0: it is too short to tell."""
        row = self.row
        return row.sequences if row is not None and row.calls > MIN_DECODED else 0

    def is_decoding(self, given: Any, t: int) -> bool:
        """Take a call without gradients; return whether it shows that a row of them decodes: once for each row."""
        return self.makes_row(given, t) is not None and self.goes_on()

    def makes_row(self, given: Any, t: int) -> Optional[DecodedRow]:
        """Take a call without gradients; return the row that it belongs to when that is long enough: once for each.

        Args:
            given: the tensor that the model is called on.
            t: when the call began.
        """
        shape = given.shape
        if len(shape) != 2 or given.is_floating_point():
            self._end_row()
            return None
        rows, length = int(shape[0]), int(shape[1])
        row = self.row
        if row is not None and row.takes(rows, length):
            row.add(given)
            return row if row.calls == MIN_DECODED + 1 else None
        self._end_row()
        self.row = DecodedRow(rows, length, t)
        self.began = t
        return None

    def goes_on(self) -> bool:
        """Return whether the last call was part of a row that is known to decode."""
        row = self.row
        return row is not None and row.calls > MIN_DECODED and self._is_known(row)

    def learns(self, given: Any) -> Tuple[Optional[DecodedRow], List[Tuple[Any, Figures]]]:
        """Take a call with gradients.

        Returns:
            A row that is known to decode only now, if there is one; and for each place the metrics of what was written
            since the last such call, to add up and to average.
        """
        self._end_row()
        rows, self.rows = self.rows, []
        shape = given.shape
        if len(shape) != 2 or given.is_floating_point():
            return None, []
        length = int(shape[1])
        newly = None
        if length > 1 and not self._writes_singly:
            newly = next((row for row in rows if row.is_single and row.calls + 1 >= length), None)
            self._writes_singly = newly is not None
        counted: Dict[Any, List[Tuple[DecodedRow, int]]] = {}
        for row in rows:
            row.learned = length
            if self._is_known(row) and (times := row.times(length)):
                counted.setdefault(row.place, []).append((row, times))
        return newly, [(place, _figures(written)) for place, written in counted.items()]

    def _is_known(self, row: DecodedRow) -> bool:
        return not row.is_single or self._writes_singly

    def _end_row(self) -> None:
        row, self.row = self.row, None
        if row is not None and row.calls > MIN_DECODED and len(self.rows) < MAX_ROWS:
            if self.rows and not self._is_known(row):
                row.drop()  # the ids of one are enough
            self.rows.append(row)


def _figures(counted: List[Tuple[DecodedRow, int]]) -> Figures:
    calls = sum(times for _, times in counted)
    answers = sum(row.sequences * times for row, times in counted)
    sums = {"generate_calls": calls, "completions": answers, "new_tokens": sum(row.tokens for row, _ in counted)}
    uncached = sum(bool(row.grows) for row, _ in counted)
    if uncached:
        sums[UNCACHED_CALLS] = uncached
    return sums, {"generate_batch": answers / calls}

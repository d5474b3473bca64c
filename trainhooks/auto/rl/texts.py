"""Texts that a program makes of generated ids, and gives to its tokenizer again.

A tokenizer need not split a text into the ids that it was made of. So where the text of a place comes back to the
tokenizer, the ids that it becomes there are looked for in what is learned from, too.
"""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple

PIECES = 8  # of a text: programs strip it, cut it off, and take code out of it
MIN_PIECE = 8  # characters: of shorter texts, different ones may well be the same
MIN_FOUND = 2  # pieces, one after the other
MAX_TEXTS, MAX_GIVEN = 4, 16  # that are kept in mind, and of one call of the tokenizer


class Texts:
    """The texts of one place's newest call.

    Args:
        columns: new ids of the call.
    """

    __slots__ = ("_columns", "_pieces")

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._pieces: List[List[str]] = []

    def add(self, text: str, count: int, prompts: Sequence[str]) -> None:
        """Take a text that was made of `count` ids: of new ones alone, or with one of these prompts before them."""
        prompt = next((prompt for prompt in prompts if prompt and text.startswith(prompt)), "")
        if (count > self._columns and not prompt) or len(self._pieces) >= MAX_TEXTS:
            return
        text = text[len(prompt) :].strip()
        size = len(text) // PIECES
        if size >= MIN_PIECE:
            self._pieces.append([text[at : at + size] for at in range(0, PIECES * size, size)])

    def ids_in(self, given: Sequence[str], encodings: Sequence[Any]) -> List[List[int]]:
        """Return the ids which these texts have become, for each one found in what was given to a tokenizer."""
        found = []
        for text, encoding in zip(given, encodings):
            for pieces in self._pieces:
                part = _span(pieces, text)
                if part is not None:
                    first, last = encoding.char_to_token(part[0]), encoding.char_to_token(part[1] - 1)
                    if first is not None:  # it was not cut off
                        found.append(encoding.ids[first : None if last is None else last + 1])
        return found


def texts_of(given: Any) -> List[str]:
    """Return the texts that a tokenizer was given, if they are few."""
    if isinstance(given, str):
        return [given]
    if isinstance(given, (list, tuple)) and len(given) <= MAX_GIVEN and all(isinstance(one, str) for one in given):
        return list(given)
    return []


def _span(pieces: Sequence[str], text: str) -> Optional[Tuple[int, int]]:
    """Return from where to where the pieces lie in a text, one after the other, at least some of them."""
    first, end, count = -1, 0, 0
    for piece in pieces:
        at = text.find(piece, end)
        if at >= 0:
            first, end, count = at if first < 0 else first, at + len(piece), count + 1
    return (first, end) if count >= MIN_FOUND else None

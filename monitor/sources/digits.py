"""Numbers told in decimal digits at many places of a text, made out together: each as a decoder of JSON has it.

Eight bytes are one word of the processor; their digits are found and added up in some steps for all places at once.
A whole number of up to 2**53 divided by a power of ten up to 22 is rounded once, and so rightly (Clinger, PLDI 1990).
What has more digits, or an exponent, is left to the decoder.
"""

from __future__ import annotations

import math
import re
from functools import cache
from typing import Any

import msgspec

from monitor.columns import numpy
from trainhooks.events import MAX_INTEGER

Array = Any

PAD = 40  # bytes beyond the end of a text that are looked at
PIECE = 1 << 16  # bytes: what is made of them on the way stays in the processor's own memory
EXACT = 2**53  # whole numbers up to here are floats

_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_LONGEST = 40  # bytes; longer numbers are none of ours
_FRAME = 32  # bytes, in which nearly all numbers have room
_floats = msgspec.json.Decoder(list[float])
_MINUS, _POINT, _ZERO = b"-.0"
_ZEROS = 0x3030303030303030
_BEYOND_NINE = 0x7676767676767676  # added to a byte above nine, it sets the byte's highest bit
_HIGHEST = 0x8080808080808080
# Neighbours put together: digits to pairs, pairs to fours, fours to eight; what to keep of the word after each.
_PAIRS = (
    (10 * 2**8 + 1, 8, 0x00FF00FF00FF00FF),
    (100 * 2**16 + 1, 16, 0x0000FFFF0000FFFF),
    (10000 * 2**32 + 1, 32, 0xFFFFFFFF),
)


class Text:
    """A block of bytes, to be looked at in many places at once."""

    def __init__(self, data: bytes, end: int, spare: int = 0) -> None:
        """
        Args:
            end: where it ends in `data`. What lies behind it may be looked at, and is never taken for a part of it.
            spare: bytes behind its end that are looked at, besides those of a number.
        """
        self.block = data if len(data) >= end + spare + PAD else data[:end] + bytes(spare + PAD)
        self.end = end
        self.bytes = numpy().frombuffer(self.block, numpy().uint8)
        self._words = self._pieces(8, "<u8")

    def line_ends(self) -> Array:
        line_end, found = numpy().uint8(ord("\n")), []
        for at in range(0, self.end, PIECE):
            found.append(numpy().flatnonzero(self.bytes[at : min(at + PIECE, self.end)] == line_end) + at)
        return numpy().concatenate(found)

    def words(self, at: Array) -> Array:
        """The eight bytes from each of the places on: the first of them the least significant."""
        return self._words[at]

    def same(self, at: Array, text: bytes) -> Array | None:
        """At which of these places a text stands; None: at all of them."""
        found = self._pieces(len(text), f"V{len(text)}")[at]
        if found.tobytes() == text * len(at):
            return None
        alike = found.view(numpy().uint8).reshape(len(at), -1) == numpy().frombuffer(text, numpy().uint8)
        return alike.all(axis=1)

    def frames(self, at: Array) -> Array:
        """What stands at each of the places, as rows of bytes."""
        return self._pieces(_FRAME, f"V{_FRAME}")[at].view(numpy().uint8).reshape(len(at), -1)

    def _pieces(self, length: int, kind: str) -> Array:
        return numpy().ndarray((len(self.block) - length + 1,), kind, self.block, strides=(1,))


@cache
def _in_numbers() -> Array:
    """Of each byte whether a number may go on with it."""
    return numpy().array([byte in b"0123456789.eE+-" for byte in range(256)])


@cache
def _beyond_digits() -> Array:
    """Of each byte whether a number with it is a float."""
    return numpy().array([byte in b".eE" for byte in range(256)])


def _digits(word: Array) -> tuple[Array, Array, Array]:
    """The digits that a word begins with: their number, their count; and how far to shift them to the word's end."""
    whole = numpy().uint64
    word ^= whole(_ZEROS)
    others = word + whole(_BEYOND_NINE)
    others |= word
    others &= whole(_HIGHEST)
    before = others - whole(1)  # every bit below the first that is set
    others ^= whole(2**64 - 1)
    before &= others
    count = numpy().bitwise_count(before) >> 3
    shift = (numpy().uint8(64) - (count << 3)).astype(whole)
    word <<= shift
    return word, count, shift


def _added(word: Array) -> Array:
    """A word of eight digits as a number."""
    for times, bits, pairs in _PAIRS:
        word *= numpy().uint64(times)
        word >>= numpy().uint64(bits)
        word &= numpy().uint64(pairs)
    return word


def naturals(text: Text, at: Array) -> tuple[Array, Array, Array]:
    """Digits as whole numbers, the places where they end, and where that is none within its limits."""
    first = text.bytes[at] - numpy().uint8(_ZERO)
    after = at + 1
    more = text.bytes[after] - numpy().uint8(_ZERO) <= 9
    if not more.any():
        return first.astype(numpy().int64), after, first > 9
    word, count, _ = _digits(text.words(at))
    value, end = _added(word).view(numpy().int64), at + count
    wrong = (count == 0) | ((first == 0) & more)
    if count.max() == 8:
        word, rest, _ = _digits(text.words(at + 8))
        rest[count < 8] = 0
        long = rest > 0
        longer = value * 10 ** rest.astype(numpy().int64) + _added(word).view(numpy().int64)
        value = numpy().where(long, longer, value)
        end = end + rest
        wrong |= (rest == 8) | (value > MAX_INTEGER)
    return value, end, wrong


def _wholes(text: Text, at: Array) -> tuple[Array, Array, Array]:
    """The same, with a sign or without one."""
    minus = text.bytes[at] == _MINUS
    if not minus.any():
        return naturals(text, at)
    value, end, wrong = naturals(text, at + minus)
    value[minus] *= -1
    return value, end, wrong | (minus & (value == 0))


def floats(text: Text, at: Array, pointed: bool) -> tuple[Array, Array, Array]:
    """Numbers as floats, the places where they end, and where there is none.

    Args:
        pointed: whether most have a point.
    """
    if pointed:
        found, end, wrong = _decimals(text, at)
    else:
        value, end, wrong = _wholes(text, at)
        found = value.astype(float)
    odd = _in_numbers()[text.bytes[end]]
    odd |= wrong
    if odd.any():
        places = numpy().flatnonzero(odd)
        together = _together(text, at[places]) if len(places) > 1 else None
        if together is not None:
            found[places], end[places], wrong[places] = together
            return found, end, wrong
        for place in places.tolist():
            begin = int(at[place])
            told = _NUMBER.match(text.block, begin, begin + _LONGEST)
            value = None if told is None else _alone(told)
            wrong[place] = value is None
            if told is not None and value is not None:
                found[place], end[place] = value, told.end()
    return found, end, wrong


def _together(text: Text, at: Array) -> tuple[Array, Array, Array] | None:
    """Numbers that the decoder reads at once, each in a frame of its own; None where it cannot."""
    told = text.frames(at)
    other = ~_in_numbers()[told]
    count = other.argmax(axis=1)
    wrong = count == 0  # none there, or one too long
    told[numpy().arange(_FRAME) >= count[:, None]] = ord(" ")
    told[wrong, 0] = ord("0")
    whole = ~(_beyond_digits()[told].any(axis=1))
    negative = told[:, 0] == _MINUS
    told[:, -1] = ord(",")
    try:
        found = numpy().array(_floats.decode(b"[" + told.tobytes()[:-1] + b"]"))
    except ValueError:
        return None
    wrong |= whole & ((abs(found) >= EXACT) | (negative & (found == 0.0)))
    return found, at + count, wrong | ~numpy().isfinite(found)


def _alone(told: re.Match[bytes]) -> float | None:
    if told.group(1) or told.group(2):
        number = float(told.group())
        return number if math.isfinite(number) else None
    value = int(told.group())
    return float(value) if -MAX_INTEGER <= value <= MAX_INTEGER and told.group() != b"-0" else None


def _decimals(text: Text, at: Array) -> tuple[Array, Array, Array]:
    minus = text.bytes[at] == _MINUS
    negative = minus.any()
    whole, point, wrong = naturals(text, at + minus if negative else at)
    wrong |= text.bytes[point] != _POINT
    at = point + 1
    word, count, shift = _digits(text.words(at))
    word >>= shift  # as many digits in all
    number, behind, end = _added(word), 8, at + count
    wrong |= count == 0
    if count.max() == 8:
        ninth = text.bytes[end] - numpy().uint8(_ZERO)
        more = (ninth <= 9) & (count == 8)
        ninth *= more
        end += more
        number *= numpy().uint64(10)
        number += ninth
        behind = 9
    number += whole.view(numpy().uint64) * numpy().uint64(10**behind)
    if whole.max() >= EXACT // 10**behind:
        wrong |= whole >= EXACT // 10**behind
    found = number.astype(float)
    found /= 10.0**behind
    if negative:
        found[minus] *= -1.0
    return found, end, wrong

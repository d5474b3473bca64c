"""A state as bytes, and back."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from monitor.columns import Floats, Integers
from monitor.lasting import BLOCK

ROOM = 4 * BLOCK  # bytes; most states find room in it

T = TypeVar("T")


def packed(thing: Any) -> bytearray:
    """Its bytes, in a buffer that is large from the beginning.

    So its memory comes from the system, and goes back whole. One that grows to its size takes its first pieces out of
    the heap, which stays larger by them.
    """
    content = bytearray(ROOM)
    _encoder.encode_into(thing, content)
    return content


def unpacker(kind: type[T]) -> msgspec.msgpack.Decoder[T]:
    """What reads things of this kind. Bytes that are none raise a ValueError."""
    return msgspec.msgpack.Decoder(kind, dec_hook=_numbers)


def _bytes(numbers: Floats | Integers) -> bytes:
    return numbers.tobytes()


def _numbers(kind: type[Floats | Integers], content: bytes) -> Floats | Integers:
    numbers = kind()
    numbers.frombytes(content)
    return numbers


_encoder = msgspec.msgpack.Encoder(enc_hook=_bytes)

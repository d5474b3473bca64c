"""A state as bytes, and back."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from monitor.columns import Floats, Integers

T = TypeVar("T")


def packed(thing: Any) -> bytes:
    return _encoder.encode(thing)


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

"""A command line taken apart: the program, and the arguments that it was given. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

GIVEN = "given"  # the value of an option that has none

_PYTHON = re.compile(r"(?:python|pypy)[0-9.]*t?$")
_NUMBER = re.compile(r"-\.?[0-9]")
_LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "torch.distributed.run", "torch.distributed.launch")


@dataclass(frozen=True, slots=True)
class Arguments:
    program: str  # the script without its directory, the module, or the program
    options: dict[str, str] = field(default_factory=dict)  # `--lr` -> "1e-4"; of one that is repeated the last
    others: tuple[str, ...] = ()  # what belongs to no option


def parse(command: Sequence[str]) -> Arguments:
    """Take a command apart. A word after an option is its value, unless it is an option itself."""
    words = list(command)
    if not words:
        return Arguments("")
    program, rest = _program(words)
    options: dict[str, str] = {}
    others = []
    at = 0
    while at < len(rest):
        word = rest[at]
        at += 1
        if not _is_option(word):
            others.append(word)
            continue
        name, equals, value = word.partition("=")
        if not equals and at < len(rest) and not _is_option(rest[at]):
            value = rest[at]
            at += 1
        options[name] = value or GIVEN
    return Arguments(program, options, tuple(others))


def _program(words: list[str]) -> tuple[str, list[str]]:
    """What is run, and all the other words: also those of a launcher or an interpreter before it."""
    first = _name(words[0])
    if not (_PYTHON.match(first) or first in _LAUNCHERS):
        script = next((at for at, word in enumerate(words) if at and word.endswith((".py", ".sh"))), 0)
        return _name(words[script]), [word for at, word in enumerate(words) if at not in (0, script)]
    at = 1
    while at < len(words):
        word = words[at]
        module = word == "-m" and at + 1 < len(words)
        if module and words[at + 1] not in _LAUNCHERS:
            return words[at + 1], words[1:at] + words[at + 2 :]
        if not module and word.endswith(".py"):
            return _name(word), words[1:at] + words[at + 1 :]
        if word == "-c" and _PYTHON.match(first):
            return " ".join(words[at : at + 2]), words[1:at] + words[at + 2 :]
        at += 2 if module else 1
    return first, words[1:]


def _name(word: str) -> str:
    return word.rpartition("/")[2]


def _is_option(word: str) -> bool:
    return len(word) > 1 and word.startswith("-") and not _NUMBER.match(word)

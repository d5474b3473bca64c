"""The argument of a command that sets the batch size of a training. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

# `--batch-size`, `-b`, `per_device_train_batch_size`; not that of an evaluation.
_NAME = re.compile(r"(?:per_device_)?(?:train(?:ing)?_)?(?:micro_)?(?:batch_?size|bs)(?:_per_gpu)?|b", re.IGNORECASE)
_WORD = re.compile(r"(?P<option>(?P<dashes>-{0,2})(?:[A-Za-z_]\w*\.)*(?P<name>[A-Za-z][\w-]*))(?:=(?P<value>\d{1,7}))?")


def batch_argument(command: Sequence[str]) -> tuple[int, str, int] | None:
    """Return where the batch size stands in the command, what precedes it in that word, and its value.

    None where no argument sets it, or more than one may.
    """
    found = []
    for at, word in enumerate(command):
        match = _WORD.fullmatch(word)
        if match is None or not _NAME.fullmatch(match["name"].replace("-", "_")):
            continue
        after = command[at + 1] if at + 1 < len(command) else ""
        if match["value"] is not None:
            found.append((at, f"{match['option']}=", int(match["value"])))
        elif match["dashes"] and re.fullmatch(r"\d{1,7}", after):
            found.append((at + 1, "", int(after)))
    return found[0] if len(found) == 1 and found[0][2] > 0 else None


def with_batch(command: Sequence[str], size: int) -> list[str] | None:
    """Return the command with another batch size; None where none of its arguments sets it."""
    found = batch_argument(command)
    if found is None:
        return None
    at, before, _ = found
    return [*command[:at], f"{before}{size}", *command[at + 1 :]]

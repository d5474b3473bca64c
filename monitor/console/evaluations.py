"""Read what a line reports of an evaluation: `Validation | Loss: 2.9` is `val_loss`, and moves no training on.

Its printed settings are none of the training's, which is as long as they say only by chance.
"""

from __future__ import annotations

import re

from monitor.console.configuration import is_result
from monitor.console.reading import Reading

_WORDS = {"validation": "val", "valid": "val", "val": "val", "evaluation": "eval", "eval": "eval"}
_WORD = r"(?P<word>validation|valid|val|testing|test|evaluation|eval)"
# A word of its own between separators, followed by names: `Val: loss 2.9`, `Test: [ 10/48]`, `| Validation | Loss 2.9`
_MARK = re.compile(
    rf"(?:^|[|>·•\t\[\]:]|\s[-–—]|\w(?=\())[ \t(]{{0,12}}\b{_WORD}\b(?: (?:set|epoch|results?|metrics?|phase))?"
    r"(?:\)[ \t]{1,4}(?=\[)|[ \t]{0,4}(?:\]:?|\||:|->|\t|[-–—](?= ))[ \t]{0,12}(?=[A-Za-z@\[])(?!(?i:nan|inf)\b))",
    re.IGNORECASE,
)
_ABBREVIATED = re.compile(r"\b(val|valid)\.(?= [a-z])", re.IGNORECASE)
_AVERAGE = re.compile(r"^(?:average|avg|mean)_")  # over the set, as every result is
_PREFIX = re.compile(r"(?:val|valid|validation|test|eval)_")
_OTHER = re.compile(r"train|val|test|eval|.*/")  # names that say themselves what they are of
_OWN = re.compile(r"(?:val|valid|validation|test|eval)[_/]|.*/")  # names that say it themselves

# `evaluation: Evaluation(interval=600,`, `eval:` over indented lines, `{'eval': {'max_iters': 100,`
_SETTINGS = re.compile(
    r"(?<![\w.])(?P<name>['\"]?(?:\w{1,20}_)?(?:eval|valid|val|test|predict|inference|generat|sampl)[a-z]{0,12}"
    r"(?:_\w{1,20})?)['\"]?\s?(?:[:=]\s{0,4}(?:\w{0,40}[({]|$)|\()",
    re.IGNORECASE,
)
_CLOSED = re.compile(r"[^(){}]{0,2000}[)}]?")


class EvaluationSettings:
    """Leave out what a printed configuration says of an evaluation, on a line or on indented lines below its name."""

    def __init__(self) -> None:
        self._column: int | None = None  # of the name above

    def without(self, text: str) -> str:
        """Return the line without them; empty where the whole line is of an evaluation."""
        line = text.strip()
        if self._column is not None and line and len(text) - len(text.lstrip()) > self._column:
            return ""
        self._column = None
        if not ("(" in text or "{" in text or line.endswith((":", "="))):
            return text
        for match in reversed(list(_SETTINGS.finditer(text))):
            closed = _CLOSED.match(text, match.end())
            end = closed.end() if closed is not None else match.end()
            if end == len(text) and text[-1:] not in (")", "}"):
                self._column = match.start()
            text = text[: match.start()] + " " + text[end:]
        return text


def evaluation_parts(text: str) -> tuple[str, str, str] | None:
    """Return the text before the word that introduces an evaluation, that word as a prefix, the text behind it."""
    lower = text.lower()
    match = _MARK.search(text) if "val" in lower or "test" in lower else None
    if match is None:
        return None
    word = match["word"].lower()
    return text[: match.start("word")], _WORDS.get(word, "test"), text[match.end() :]


def with_whole_words(text: str) -> str:
    """Return the text with `Val. Loss` as `Val Loss`: a dot would end the name."""
    return _ABBREVIATED.sub(r"\1", text) if "al" in text.lower() and ". " in text else text


def with_prefix_of_first(reading: Reading) -> Reading:
    """Name all results of a line by the evaluation that its first one names: `val Loss: 0.5 Acc: 0.8`."""
    first = next(iter(reading.metrics), "")
    match = _PREFIX.match(first)
    if match is None or reading.step is not None:
        return reading
    for name in [name for name in reading.metrics if is_result(name) and _OTHER.match(name) is None]:
        if match.group() + name not in reading.metrics:
            reading.metrics[match.group() + name] = reading.metrics.pop(name)
    return reading


def with_evaluation(reading: Reading, evaluated: Reading, prefix: str) -> Reading:
    """Add the results of an evaluation, under names of their own. Its position and its times are not the training's."""
    for name, value in evaluated.metrics.items():
        reading.metrics.setdefault(name if _OWN.match(name) else f"{prefix}_{_AVERAGE.sub('', name)}", value)
    if reading.epoch is None:
        reading.epoch, reading.epochs = evaluated.epoch, evaluated.epochs
    reading.impossible += evaluated.impossible
    if reading.step is None:
        reading.family = "metrics" if reading.epoch is None else "epoch"
    return reading

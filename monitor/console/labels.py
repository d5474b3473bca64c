"""The words that say where a training stands: `Step 3/10`, `iter 120`, `Epoch [1/3]`, `[12][ 10/1251]`. Pure."""

from __future__ import annotations

import re

from monitor.console.reading import ROLES, Reading, words
from trainhooks.events import clean

_INT = r"\d{1,3}(?:,\d{3}){1,4}|\d{1,15}"
_STEP = re.compile(
    r"(?:(?P<before>[A-Za-z]{1,20})[ _-])?(?<![A-Za-z0-9_/])"
    r"(?P<word>global[ _]step|steps?|iter(?:ation)?s?|updates?|batch(?:es)?|minibatch)\b(?!/)"
    rf"[ \t:=#]{{0,12}}\[?[ \t]{{0,12}}(?P<step>{_INT})(?![\d.]?\d|[\w%])"
    rf"(?:[ \t]{{0,12}}(?:/|of)[ \t]{{0,12}}(?P<total>{_INT}))?\]?",
    re.IGNORECASE,
)
# An episode of RL is to its steps what an epoch is: where a program numbers nothing finer, it is the step.
_EPOCH = re.compile(
    r"(?<![A-Za-z0-9_])(?:epochs?|episode|ep)(?![A-Za-z0-9_])[ \t:=#]{0,12}\[?[ \t]{0,12}"
    r"(?P<epoch>\d{1,7}(?:\.\d{1,9})?)(?![\w%])"
    r"(?:[ \t]{0,12}(?:/|of)[ \t]{0,12}(?P<epochs>\d{1,7}))?\]?",
    re.IGNORECASE,
)
_IN_EPOCH = re.compile(
    r"(?:\[[ \t]{0,8}|^[ \t]{0,8}train(?:ing)?: (?=\d{1,7} \[))(?P<epoch>\d{1,7})(?:\]|(?<=\d)(?= ))"
    r"[ \t]{0,4}\[[ \t]{0,8}(?P<step>\d{1,12})/(?P<total>\d{1,12})(?: \([ \d.]{1,6}%\))?\]",
    re.IGNORECASE,
)
_BOTH = re.compile(r"\[[ \t]{0,8}(?P<epoch>\d{1,7}),[ \t]{1,12}(?P<step>\d{1,12})\](?=[ \t:])")  # of torch's tutorial
_FRACTION = re.compile(
    rf"[ \t|]{{0,12}}(?:\[[ \t|]{{1,12}}\]?)?[ \t]{{0,8}}"  # where an epoch stood
    rf"(?:[\[(]|(?<=\|):[ \t])[ \t]{{0,8}}(?P<step>{_INT})[ \t]{{0,4}}/[ \t]{{0,4}}(?P<total>{_INT})[\])]?(?=[ \t:|,-])"
)
_LEARNS = re.compile(
    r"(?:loss|reward|acc(?:uracy)?|ppl|perplexity|score)\w{0,20}[ \t]{0,4}[:=]?[ \t]{0,4}[-+]?\.?\d", re.IGNORECASE
)
_METERS = re.compile(r"\b(Time|Data)[ \t]{1,8}(?=\d)")  # of torch's ImageNet example and its descendants
_TOTALS = re.compile(
    rf"\b(?:total|max|num|number of|maximum)[ _](?:training |optimi[sz]ation |train )?(?:steps|iterations|iters)"
    rf"(?:[ \t]{{0,4}}[:=][ \t]{{0,4}}|[ \t])(?P<total>{_INT})(?![\w.])",
    re.IGNORECASE,
)
# `skipped=0` is a count of them, as DeepSpeed prints it beside each step.
_SKIPPING = re.compile(r"\bskip(?:ping|ped|s)?\b(?!\s?[:=]?\s?\d{1,12}\s?(?:[,;|)\]]|$))", re.IGNORECASE)
_REASON = re.compile(r"\s*(?::|-|–|—|\(|\bbecause\b|\bdue to\b)\s*(?P<reason>.{1,400})")

_WORDS = ("step", "iter", "update", "batch")
_NO_POSITION = words("every max total num warmup save eval logging log for in accumulation per next last")
_MENTIONS = words("at from to until after before by resuming since")


def read_labels(text: str, into: Reading) -> str:
    """Take epoch and step; returns the text with a separator in their place."""
    lower = text.lower()
    both = _IN_EPOCH.search(text) if "][" in text or "] [" in text or "train" in lower else None
    if both is not None:
        into.epoch, into.per_epoch = float(both["epoch"]), True
        into.step, into.total, into.key = int(both["step"]), int(both["total"]), "batch"
        return _METERS.sub(lambda found: "step_time " if found[1] == "Time" else "data_time ", _cut(text, both))
    tutorial = _BOTH.match(text)
    if tutorial is not None and _LEARNS.search(text, tutorial.end()) is not None:
        into.epoch, into.per_epoch = float(tutorial["epoch"]), True
        into.step, into.key = int(tutorial["step"]), "batch"
        return text[tutorial.end() :]
    epoch = _EPOCH.search(text) if "ep" in lower else None
    if epoch is not None:
        into.epoch = float(epoch["epoch"])
        into.epochs = int(epoch["epochs"]) if epoch["epochs"] else None
        text = _cut(text, epoch)
    if not any(word in lower for word in _WORDS):
        return _read_fraction(text, into)
    totals = _TOTALS.search(text)
    if totals is not None:
        into.total = _int(totals["total"])
        return _cut(text, totals)
    for found in _STEP.finditer(text):
        if _take(found, text, into):
            return _cut(text, found)
    return _read_fraction(text, into)


def _read_fraction(text: str, into: Reading) -> str:
    """`[12/60] loss: 2.31`: a fraction at the head of a line that tells of learning; build logs have them, too."""
    found = _FRACTION.match(text)
    if found is None or _int(found["step"]) > _int(found["total"]) or _LEARNS.search(text, found.end()) is None:
        return text
    into.step, into.total = _int(found["step"]), _int(found["total"])
    into.per_epoch = into.epoch is not None
    into.key = "batch" if into.per_epoch else "step"
    return text[found.end() :]


def _take(found: re.Match[str], text: str, into: Reading) -> bool:
    before = (found["before"] or _word_before(text, found.start())).lower()
    word = found["word"].lower()
    plural = word.endswith("s") and word != "s"
    heads = found.start() == 0 and _LEARNS.search(text, found.end()) is not None
    if before in _NO_POSITION or (plural and found["total"] is None and not heads):
        return False
    into.step = _int(found["step"])
    into.total = _int(found["total"]) if found["total"] else into.total
    into.mention = before in _MENTIONS
    into.per_epoch = word.startswith(("batch", "mini"))
    into.key = "batch" if into.per_epoch else "step"
    if before in ROLES:
        into.role = before
    return True


def _word_before(text: str, at: int) -> str:
    return (text[max(0, at - 24) : at].split() or [""])[-1].strip(":(-,")


def _cut(text: str, found: re.Match[str]) -> str:
    return text[: found.start()] + " | " + text[found.end() :]


def _int(text: str) -> int:
    return int(text.replace(",", ""))


def read_skip(text: str, into: Reading) -> bool:
    """`Skipping generator step 1/10: empty code`, `Step 7 skipped: loss is not finite`."""
    word = _SKIPPING.search(text) if "skip" in text.lower() else None
    if word is None:
        return False
    for found in _STEP.finditer(text):
        if word.start() > found.end() + 12 or word.end() < found.start() - 60 or not _take(found, text, into):
            continue
        reason = _REASON.match(text, max(found.end(), word.end()))
        told = clean(reason["reason"], 400).strip(" ().") if reason else ""
        into.reason = told or "skipped, the program does not say why"
        into.mention = False
        between = text[word.end() : found.start()].lower().split()
        into.role = next((each for each in [*between, into.role] if each in ROLES), None)
        return True
    return False

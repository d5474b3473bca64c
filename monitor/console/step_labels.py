"""Read the labels that say where a training is: `Step 3/10`, `iter 120`, `Epoch [1/3]`."""

from __future__ import annotations

import re

from monitor.console.field_mapping import ROLES, words
from monitor.console.reading import Reading

_INT = r"\d{1,3}(?:,\d{3}){1,4}|\d{1,15}"
STEP_LABEL = re.compile(
    r"(?:(?P<before>[A-Za-z]{1,20})[ _-])?(?<![A-Za-z0-9_/])"
    r"(?P<word>global[ _]step|steps?|iter(?:ation)?s?|updates?|batch(?:es)?|minibatch)\b(?!/)"
    rf"[ \t:=#]{{0,12}}\[?[ \t]{{0,12}}(?P<step>{_INT})(?![\d.]?\d|[\w%])(?:-(?P<until>{_INT})(?=\]))?"
    rf"(?:[ \t]{{0,12}}(?:/|of)[ \t]{{0,12}}(?P<total>{_INT}))?\]?",
    re.IGNORECASE,
)
# An episode of RL is like an epoch: where a program numbers nothing finer, it is the step.
_EPOCH = re.compile(
    r"(?<![A-Za-z0-9_])(?:epochs?|episode|ep)(?![A-Za-z0-9_])[ \t:=#]{0,12}\[?[ \t]{0,12}"
    r"(?P<epoch>\d{1,7}(?:\.\d{1,9})?)(?![\w%])"
    r"(?:[ \t]{0,12}(?:/|of)[ \t]{0,12}(?P<epochs>\d{1,7}))?\]?",
    re.IGNORECASE,
)
_GENERATION = re.compile(  # of an evolution strategy, as an epoch: `generation 12 mean_return 31.4`, `Gen 3/50: best 7`
    r"(?<!\w)gen(?:eration)?[ #]{1,3}(?P<epoch>\d{1,7})(?:[ ]?(?:/|of)[ ]?(?P<epochs>\d{1,7}))?"
    r"(?=[ \t]{0,4}[:,|-]?[ \t]{0,4}(?:best|mean|avg|average|max|median|fit|return|reward|score))",
    re.IGNORECASE,
)
_IN_EPOCH = re.compile(
    r"(?:\[[ \t]{0,8}|^[ \t]{0,8}train(?:ing)?: (?=\d{1,7} \[))(?P<epoch>\d{1,7})(?:/(?P<epochs>\d{1,7}))?"
    r"(?:\]|(?<=\d)(?= ))"
    r"[ \t]{0,4}\[[ \t]{0,8}(?P<step>\d{1,12})/(?P<total>\d{1,12})(?: \([ \d.]{1,6}%\))?\]",
    re.IGNORECASE,
)
_BEHIND_EPOCH = re.compile(  # `Epoch  1, 50/37527; acc: 4.5`, where the epoch was removed
    rf"[ \t|]{{1,12}}[,:;-]?[ \t]{{0,4}}(?P<step>{_INT})[ \t]{{0,2}}/[ \t]{{0,2}}(?P<total>{_INT})"
    r"(?=[ \t]{0,3}[;:|,]|[ \t]{1,8}(?:loss|acc|lr|ppl|reward|train)\b)",
    re.IGNORECASE,
)
_BEFORE_EPOCH = re.compile(rf"[ \t]{{0,8}}(?P<step>{_INT})/(?P<total>{_INT})(?= \( )")  # `1/21200 (epoch 0.002)`
_CELL = re.compile(
    rf"\|[ \t]{{0,4}}(?P<step>{_INT})/(?P<total>{_INT})[ \t]{{0,4}}(?=\|)"
)  # `Train | Epoch 1 | 100/2000 |`
_ESPNET = re.compile(r"(?<![\w])(?P<epoch>\d{1,7})epoch:train:\d{1,9}-(?P<step>\d{1,9})batch:")
_BOTH = re.compile(r"\[[ \t]{0,8}(?P<epoch>\d{1,7}),[ \t]{1,12}(?P<step>\d{1,12})\](?=[ \t:])")  # of torch's tutorial
_FRACTION = re.compile(
    rf"[ \t|]{{0,12}}(?:\[[ \t|]{{1,12}}\]?)?[ \t]{{0,8}}"  # where an epoch was removed
    rf"(?:[\[(]|(?<=\|):[ \t])[ \t]{{0,8}}(?P<step>{_INT})[ \t]{{0,4}}/[ \t]{{0,4}}(?P<total>{_INT})[\])]?(?=[ \t:|,-])"
)
_COUNT_OF = re.compile(  # |   200/ 2983 batches |
    rf"(?<![\w./,])(?P<step>{_INT})[ \t]{{0,4}}/[ \t]{{0,4}}(?P<total>{_INT}) "
    r"(?P<word>batches|steps|iter(?:ation)?s|updates)\b",
    re.IGNORECASE,
)
_TRAINING_VALUE = re.compile(
    r"(?:loss|reward|acc(?:uracy)?|ppl|perplexity|score|\b[fs]ps\b)\w{0,20}[ \t]{0,4}[:=]?[ \t]{0,4}[-+]?\.?\d",
    re.IGNORECASE,
)
_METERS = re.compile(r"\b(Time|Data)[ \t]{1,8}(?=\d)")  # of torch's ImageNet example and its descendants
_TOTALS = re.compile(
    rf"\b(?:total|max|num|number of|maximum)[ _](?:training |optimi[sz]ation |train )?(?:steps|iterations|iters)"
    rf"(?:[ \t]{{0,4}}[:=][ \t]{{0,4}}|[ \t])(?P<total>{_INT})(?![\w.])",
    re.IGNORECASE,
)
_EPOCHS = re.compile(
    r"(?:(?<![A-Za-z0-9_])(?:(?:num|n|max|total)[_ ](?:train[_ ])?)?epochs['\"]?[ \t]{0,4}[:=][ \t]{0,4}"
    r"(?P<epochs>\d{1,7})(?![\w./%]|[ \t]?[/:])"
    r"|\btrain(?:ing)? for (?P<of>\d{1,7}) epochs\b)",
    re.IGNORECASE,
)

_WORDS = ("step", "iter", "update", "batch")
_NO_POSITION = words(
    "every max total num warmup save eval logging log for in accumulation per next last val valid validation test fps"
    " sps"
)
_MENTIONS = words("at from to until after before by resuming since")


def read_labels(text: str, into: Reading) -> str:
    """Take epoch and step. Return the text with a separator in their place."""
    lower = text.lower()
    both = _IN_EPOCH.search(text) if "][" in text or "] [" in text or "train" in lower else None
    if both is not None:
        into.epoch, into.per_epoch = float(both["epoch"]), True
        into.epochs = int(both["epochs"]) if both["epochs"] else None
        into.step, into.total, into.key = int(both["step"]), int(both["total"]), "batch"
        return _METERS.sub(lambda match: "step_time " if match[1] == "Time" else "data_time ", _cut(text, both))
    espnet = _ESPNET.search(text) if "epoch:train:" in lower else None
    if espnet is not None:
        into.epoch, into.per_epoch = float(espnet["epoch"]), True
        into.step, into.key = int(espnet["step"]), "batch"
        return _cut(text, espnet)
    tutorial = _BOTH.match(text)
    if tutorial is not None and _TRAINING_VALUE.search(text, tutorial.end()) is not None:
        into.epoch, into.per_epoch = float(tutorial["epoch"]), True
        into.step, into.key = int(tutorial["step"]), "batch"
        return text[tutorial.end() :]
    planned = _EPOCHS.search(text) if "epochs" in lower else None
    if planned is not None and _TRAINING_VALUE.search(text) is None:
        into.planned_epochs = int(planned["epochs"] or planned["of"])
        return _cut(text, planned)
    epoch = (_EPOCH.search(text) if "ep" in lower else None) or (_GENERATION.search(text) if "gen" in lower else None)
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
    for match in STEP_LABEL.finditer(text):
        if set_step(match, text, into):
            return _cut(text, match)
    counted = _COUNT_OF.search(text)
    if counted is not None and _int(counted["step"]) <= _int(counted["total"]) and _TRAINING_VALUE.search(text):
        into.step, into.total = _int(counted["step"]), _int(counted["total"])
        into.per_epoch = counted["word"].lower() == "batches" or into.epoch is not None
        into.key = "batch" if into.per_epoch else "step"
        return _cut(text, counted)
    return _read_fraction(text, into)


def read_plan(text: str) -> Reading:
    """Return what a printed configuration says of the length of the training: its steps, its epochs."""
    plan = Reading("metrics")
    totals, epochs = _TOTALS.search(text), _EPOCHS.search(text)
    if totals is not None:
        plan.total = _int(totals["total"])
    if epochs is not None:
        plan.planned_epochs = int(epochs["epochs"] or epochs["of"])
    return plan


def _read_fraction(text: str, into: Reading) -> str:
    """Take a fraction at the start of a line about training, `[12/60] loss: 2.31`; build logs have them too."""
    match = _FRACTION.match(text)
    if match is None and into.epoch is not None:
        match = _BEHIND_EPOCH.match(text) or _BEFORE_EPOCH.match(text) or _CELL.search(text)
    if match is None or _int(match["step"]) > _int(match["total"]) or _TRAINING_VALUE.search(text, match.end()) is None:
        return text
    into.step, into.total = _int(match["step"]), _int(match["total"])
    into.per_epoch = into.epoch is not None and match.re is not _BEFORE_EPOCH
    into.key = "batch" if into.per_epoch else "step"
    return text[match.end() :]


def set_step(match: re.Match[str], text: str, into: Reading) -> bool:
    """Take the step of a match of `STEP_LABEL`; return False where it is no position of the training."""
    before = (match["before"] or _word_before(text, match.start())).lower()
    word = match["word"].lower()
    plural = word.endswith("s") and word != "s"
    reports = _TRAINING_VALUE.search(text, match.end()) is not None
    at_start = match.start() == 0 and reports
    if word == "batch" and match["total"] is None and into.epoch is None and not reports:
        signed = re.search(r"[=:]", text[match.start("word") : match.start("step")]) is not None
        if signed:  # `batch: 32` is the size of one
            return False
    counted = word == "iters" and into.epoch is not None  # CycleGAN's: `(epoch: 1, iters: 100, ...)`
    if before in _NO_POSITION or (plural and not counted and match["total"] is None and not at_start):
        return False
    into.step = _int(match["until"] or match["step"])
    into.total = _int(match["total"]) if match["total"] else into.total
    into.mention = before in _MENTIONS
    into.per_epoch = counted or word.startswith(("batch", "mini"))
    into.key = "batch" if into.per_epoch else "step"
    if before in ROLES:
        into.role = before
    return True


def _word_before(text: str, at: int) -> str:
    return (text[max(0, at - 24) : at].split() or [""])[-1].strip(":(-,")


def _cut(text: str, match: re.Match[str]) -> str:
    return text[: match.start()] + " | " + text[match.end() :]


def _int(text: str) -> int:
    return int(text.replace(",", ""))

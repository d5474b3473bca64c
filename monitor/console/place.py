"""A named figure put in its place in a reading: a step, a time, a rate, a count, a phase, else a metric. Pure."""

from __future__ import annotations

import re
from functools import lru_cache

from monitor.console import reading as names
from monitor.console.reading import MAX_FIGURES, Reading, words
from trainhooks.events import MAX_INTEGER, Number

STEP = words("step global_step iter iteration it global_iter train_step training_step trainer/global_step")
_UPDATES = words("update n_updates num_updates batch batch_idx")
TOTAL = words(
    "total_steps max_steps num_steps num_training_steps total_iters max_iters train_iters num_iterations "
    "total_optimization_steps total_train_steps max_train_steps total_iterations"
)
_EPOCH = words("epoch epochs ep current_epoch episode")
_STEP_TIME = words(
    "dt step_time iter_time batch_time time/step time_per_step time_per_iteration time_per_iter sec/step s/step s/it "
    "ms/step seconds_per_step sec/iter s/iter ms/iter elapsed_time_per_iteration iteration_time train_step_time "
    "step_time_s time/iteration duration took timing_s/step perf/time_per_step"
)
_ELAPSED = words(
    "elapsed elapsed_time time_elapsed time/time_elapsed runtime wall_time walltime wall_clock cum_time time_total_s"
)
_TRAINED = words("train train_time")  # a phase beside other ones; alone it is what has passed
_ALL = words("t total total_time")  # of a step whose phases are told, if they add up to it; else what has passed
TRAINED, ALL = "training", "all"  # times of which the other figures of the line say what they are
ADDS_UP = 0.75, 1.02  # the phases of a step are most of it; the digits that are left out may make them a bit more
VERL_TIMES = "timing_s/"  # before the seconds of a part of the step
_PASSED_OVER = words(
    "eta remaining time_left left time_remaining remaining_time eta_seconds pid port rank local_rank world_size seed "
    "device cuda gpu node worker line timestamp ts date datetime version v_num"
)
_MOMENT = words("time timestamp ts unix_time created_at")
UNIX = 1e9, 4e9  # seconds since 1970 that are a moment of these decades; no training has run for so long
_TOKENS_RATE = re.compile(
    r"(?:(?P<avg>avg|average|mean|overall|cumulative)_)?(?:train_|throughput_|perf/|time/)?"
    r"(?:tok(?:en)?s?(?:/|_per_|p|_)(?:s|sec|second)|tps|wps|tokens_throughput)(?:_avg)?"
)
_SAMPLES_RATE = re.compile(
    r"(?:(?P<avg>avg|average|mean|overall|cumulative)_)?(?:train_|throughput_|perf/)?"
    r"(?:samples?|examples?|seqs?|sequences?|images?|imgs?|img|frames?|ex)(?:/|_per_)(?:s|sec|second)"
    r"|currsamplespersec"  # DeepSpeed's
)
# Of one of several devices: no rate of the run, whose number of devices the line does not tell.
_OF_A_DEVICE = re.compile(
    r"tgs|(?:train_|throughput_|perf/)?(?:tok(?:en)?s?(?:/|_per_|p|_)(?:s|sec|second)|tps)(?:/|_per_)(?:gpu|device|chip|rank)"
)
_STEPS_RATE = re.compile(r"(?:train_)?(?:steps?|its?|iters?|iterations?|batch(?:es)?)(?:/|_per_)(?:s|sec|second)")
_TOKENS_TOTAL = words(
    "tokens tokens_seen total_tokens num_tokens num_input_tokens_seen consumed_tokens tokens_processed "
    "n_tokens cumulative_tokens"
)
_SAMPLES_TOTAL = words(
    "seq seqs sequences samples consumed_samples examples samples_seen total_samples num_samples consumed_train_samples"
)
_TOKENS = words("perf/total_num_tokens tokens/step tokens_per_step batch_tokens tokens_per_batch tokens_in_batch")
_SAMPLES = words("global_batch_size samples/step samples_per_step")
_NEVER_NEGATIVE = re.compile(r"mfu|hfu|perplexity|ppl|accuracy|acc|memory|mem|tflops|tflop/s/gpu|grad_norm")
_AT_MOST_100 = re.compile(r"mfu|hfu")

_HINTS = (
    *(
        "loss",
        "acc",
        "reward",
        "lr",
        "learn",
        "grad",
        "ppl",
        "perpl",
        "kl",
        "entropy",
        "f1",
        "bleu",
        "rouge",
        "score",
    ),
    *(
        "auc",
        "map",
        "precision",
        "recall",
        "fu",
        "tok",
        "sample",
        "mse",
        "mae",
        "r2",
        "iou",
        "fid",
        "wer",
        "cer",
        "bits",
    ),
    *("bpb", "return", "ep_rew", "advantage", "success", "episode", "'s l"),
)

# A line that names no step is taken for a report on the training only if it holds one of these words.
_TELLING = re.compile(
    r"loss|acc(?:uracy)?\b|reward|\blr\b|learning.?rate|\blearn:|grad.?norm|ppl|perplex|\bkl\b|entropy|\bf1\b|bleu|rouge|\bscore"
    r"|\bauc\b|\bmap\b|precision|recall|\bm[fh]?fu\b|tok(?:en)?s?(?:/|\sper\s|_per_)s|samples?/s|\bmse\b|\bmae\b|rmse"
    r"|\br2\b|\biou\b|\bfid\b|\bwer\b|\bcer\b|bits.per|\bbpb\b|\breturn\b|ep_rew|advantage|success|episode|'s l[12]\b",
    re.IGNORECASE,
)


def tells(text: str) -> bool:
    """Whether a line that names no step speaks of a training."""
    lower = text.lower()  # looking for plain words first is ten times as quick
    return any(hint in lower for hint in _HINTS) and _TELLING.search(text) is not None


@lru_cache(maxsize=4096)
def _rates(plain: str) -> tuple[bool, bool, bool, bool]:
    """Whether a name is that of a rate of tokens, of samples, of steps; and whether of an average."""
    tokens, samples = _TOKENS_RATE.fullmatch(plain), _SAMPLES_RATE.fullmatch(plain)
    found = tokens or samples
    average = found is not None and (found["avg"] is not None or plain.endswith("_avg"))
    return tokens is not None, samples is not None, _STEPS_RATE.fullmatch(plain) is not None, average


def figure(into: Reading, raw_name: str, value: Number, unit: str = "", seconds: float | None = None) -> None:
    """Take one figure.

    Args:
        unit: what was printed behind the number, or in brackets behind the name.
        seconds: the value as a time, where its unit says that it is one.
    """
    plain = names.name(raw_name)
    if plain.lstrip("_") in _MOMENT and not isinstance(value, str) and _moment(into, value):
        return
    if not plain or plain in _PASSED_OVER or plain[0].isdigit():
        return
    if isinstance(value, str):
        if plain not in STEP and plain not in _EPOCH:
            _metric(into, plain, value)
        return
    if plain in STEP or plain in _UPDATES or plain in TOTAL or plain in _EPOCH:
        _position(into, plain, value)
    elif not (_time(into, plain, value, seconds) or _flow(into, plain, float(value), unit)):
        _metric(into, plain, value)


def _moment(into: Reading, value: int | float) -> bool:
    """Take the moment at which a line was written, if this is one: in seconds since 1970, or in milliseconds."""
    for told in (float(value), value / 1e3):
        if UNIX[0] <= told < UNIX[1]:
            into.wall = told
            return True
    return False


def settle(into: Reading) -> None:
    """Say what the times are whose names do not: called when all figures of a line are there."""
    trained, whole = into.spare.pop(TRAINED, None), into.spare.pop(ALL, None)
    if trained is not None and into.phases.keys() - {"data"}:
        into.phases[TRAINED] = into.phases.get(TRAINED, 0.0) + trained
        trained = None
    if whole is not None and into.phases and into.seconds is None:
        least, most = (share * whole for share in ADDS_UP)
        if least <= sum(into.phases.values()) <= most:
            into.seconds, whole = whole, None
    passed = trained if trained is not None else whole
    if into.elapsed is None and passed is not None and into.family != "bar":  # a bar has a time of its own, or none
        into.elapsed = passed


def _position(into: Reading, plain: str, value: int | float) -> None:
    if value < 0 or value > MAX_INTEGER:
        _refuse(into, plain, value)
    elif plain in _EPOCH:
        into.epoch = float(value) if into.epoch is None else into.epoch
    elif value != int(value):
        _metric(into, plain, value)
    elif plain in TOTAL:
        into.total = int(value)
    elif plain in STEP:
        if into.step is None:
            into.step, into.key = int(value), "step"
    elif plain == "num_updates" and into.step is None:  # fairseq's word; others name their step beside it
        into.step, into.key = int(value), "step"
    else:
        _metric(into, plain, value)


def _time(into: Reading, plain: str, value: int | float, seconds: float | None) -> bool:
    """Take a time, if this is one."""
    bare = names.PHASE_ENDING.sub("", plain) or plain
    told = (
        seconds if seconds is not None else (value / 1e3 if plain.endswith("_ms") or plain.startswith("ms/") else None)
    )
    if plain.startswith(VERL_TIMES):
        bare, told = plain[len(VERL_TIMES) :], float(value)
    known = None if bare in ("", "time") else names.known_phase(bare)
    if known is not None and (told is not None or plain != bare):
        if value < 0:
            _refuse(into, plain, value)
        else:
            into.phases[known] = into.phases.get(known, 0.0) + (told if told is not None else float(value))
        return True
    if plain == "time" and told is None:
        return True  # of what, and in which unit?
    if plain in _STEP_TIME or plain == "time" or bare in _STEP_TIME:
        if value < 0:
            _refuse(into, plain, value)
        else:
            into.seconds = told if told is not None else float(value)
        return True
    if plain in _TRAINED | _ALL and (told is not None or plain.endswith("time")):
        if value < 0:
            _refuse(into, plain, value)
        else:
            into.spare.setdefault(TRAINED if plain in _TRAINED else ALL, told if told is not None else float(value))
        return True
    if plain in _ELAPSED:
        if value < 0:
            _refuse(into, plain, value)
        elif told is not None or plain != "runtime":
            into.elapsed = told if told is not None else float(value)
        return True
    return False


def _flow(into: Reading, plain: str, value: float, unit: str) -> bool:
    """Take a rate or a count of tokens or samples, if this is one."""
    tokens, samples, steps, average = _rates(plain)
    if value >= 0 and _OF_A_DEVICE.fullmatch(plain):
        into.metrics.setdefault("tokens_per_second_per_device", value)
        return True
    if tokens or samples or steps or plain in _TOKENS or plain in _SAMPLES:
        if value < 0:
            _refuse(into, plain, value)
        elif tokens:
            into.tokens_rate, into.average = value, into.average or average
        elif samples:
            into.samples_rate, into.average = value, into.average or average
        elif steps:
            into.steps_rate = value
        elif plain in _TOKENS:
            into.tokens = int(value)
        elif plain in _SAMPLES:
            into.samples = int(value)
        return True
    if plain in _TOKENS_TOTAL or plain in _SAMPLES_TOTAL:
        if value < 0:
            _refuse(into, plain, value)
        elif plain in _TOKENS_TOTAL:
            into.tokens_total = value
        else:
            into.samples_total = value
        return True
    return False


def _metric(into: Reading, plain: str, value: Number) -> None:
    if not isinstance(value, str):
        if value < 0 and _NEVER_NEGATIVE.fullmatch(plain):
            _refuse(into, plain, value)
            return
        if value > 100 and _AT_MOST_100.fullmatch(plain):
            _refuse(into, plain, value)
            return
    if len(into.metrics) < MAX_FIGURES:
        into.metrics.setdefault(plain, value)


def _refuse(into: Reading, plain: str, value: Number) -> None:
    if len(into.impossible) < MAX_FIGURES:
        into.impossible.append(f"{plain} {value}")

"""Map a named value to the field of a reading that it means."""

from __future__ import annotations

import re
from functools import lru_cache

from monitor.console.reading import MAX_VALUES, Reading
from trainhooks.protocol.limits import MAX_INTEGER, MAX_NAME, Number, clean
from trainhooks.protocol.vocabulary import (
    HIGHER_IS_BETTER,
    LEARNING_SIGNALS,
    LOWER_IS_BETTER,
    SCALER_OVERFLOW,
    phase_name,
)

# Names


def words(text: str) -> frozenset[str]:
    """Return the words of `text` as a set."""
    return frozenset(text.split())


ROLES = words("generator discriminator actor critic policy teacher student solver proposer challenger verifier")
_NOT_NAME = re.compile(r"[^\w@./%-]+")
_PHASE_ENDING = re.compile(r"(?:_(?:time|seconds|secs?|s|ms|latency|duration)|time)$")

# Names that programs print for phases, besides the hooks' own names.
_ALIASES = {
    "data": "data data_time data_load data_wait dataloading load_data batch_loading data_cost reader_cost",
    "h2d": "h2d to_gpu host_to_device",
    "forward": "forward fwd forward_pass forward_compute forward-compute",
    "backward": "backward bwd backward_pass backward_compute backward-compute",
    "optimizer": "optimizer optim opt optimizer_step opt_step optim_step",
    "generation": "generation generate rollouts sampling",
    "reward": "reward reward_computation",
    "test_generation": "test_generation test_gen gen_tests generate_tests",
    "execution": "execution exec execute sandbox run_tests run_code code_execution",
    "log_probs": "log_probs logprob log_prob logp ref_logprobs ref_log_probs old_log_probs",
    "advantage": "advantage",
    "training": "training",
    "weight_sync": "weight_sync",
    "checkpoint": "checkpoint checkpointing",
    "eval": "eval validation",
    "logging": "logging log",
}
_PHASES = {alias: phase for phase, aliases in _ALIASES.items() for alias in aliases.split()}


@lru_cache(maxsize=4096)
def name(text: str) -> str:
    """Return a value's name as it is stored: lower case, words joined by underscores."""
    text = clean(text, MAX_NAME).strip(" '\"`.:-_/*#>%")
    return _NOT_NAME.sub("_", text.lower()).strip("_")


def phase(text: str) -> str:
    """Return the field's word for what a program calls a part of its step, or the program's own."""
    plain = name(text)
    bare = _PHASE_ENDING.sub("", plain) or plain
    return known_phase(bare) or known_phase(plain) or bare


def known_phase(plain: str) -> str | None:
    """Return the field's word for a part of a step; None for an unknown name."""
    return _PHASES.get(plain) or phase_name(plain)


def split_role(plain: str) -> tuple[str | None, str]:
    """Split `discriminator_reward` into the role and the rest."""
    first, _, rest = plain.partition("_")
    return (first, rest) if first in ROLES and rest else (None, plain)


# Meanings of names

STEP = words("step global_step iter iteration it global_iter train_step training_step trainer/global_step")
_UPDATES = words("update n_updates num_updates batch batch_idx")
TOTAL = words(
    "total_steps max_steps num_steps num_training_steps total_iters max_iters train_iters num_iterations "
    "total_optimization_steps total_train_steps max_train_steps total_iterations"
)
_EPOCH = words("epoch epochs ep current_epoch episode")
_STEP_TIME = words(
    "dt iter_dt step_time iter_time batch_time time/step time_per_step time_per_iteration time_per_iter sec/step "
    "s/step s/it ms/batch ms/step seconds_per_step sec/iter s/iter ms/iter elapsed_time_per_iteration iteration_time "
    "train_step_time batch_cost "
    "step_time_s time/iteration time/batch duration took timing_s/step perf/time_per_step"
)
_ELAPSED = words(
    "elapsed elapsed_time time_elapsed time/time_elapsed runtime wall_time walltime wall_clock cum_time time_total_s"
)
_COSTS = words("data_cost reader_cost")  # Paddle's word for seconds
_TRAINED = words("train train_time")  # a phase among other phases; alone the elapsed time
_ALL = words("t tot total total_time")  # of the step if the phases in the line add up to it; else the elapsed time
TRAINING_TIME, TOTAL_TIME = "training", "all"  # times whose meaning depends on the line's other values
# Bounds of the sum of a step's phases, as a share of the step; above 1 only by rounding.
MIN_PHASES_SHARE, MAX_PHASES_SHARE = 0.75, 1.02
VERL_TIMES = "timing_s/"  # prefix of the seconds of a part of the step
_IGNORED = words(
    "eta remaining time_left left time_remaining remaining_time eta_seconds pid port rank local_rank world_size seed "
    "device cuda gpu node worker line lineno line_no line_number timestamp ts date datetime version v_num"
)
_SOURCE_FILE = re.compile(r"\.(?:py|cc|cpp|cu|go|rs)(?:_|$)")  # with the line: where a logger was called
_MOMENT = words("time timestamp ts unix_time created_at")
MIN_UNIX, MAX_UNIX = 1e9, 4e9  # seconds since 1970: years 2001 to 2096; longer than any training runs
_TOKENS_RATE = re.compile(
    r"(?:(?P<avg>avg|average|mean|overall|cumulative)_)?(?:train_|throughput_|perf/|time/)?"
    r"(?:tok(?:en)?s?(?:/|_per_|p|_)(?:s|sec|second)|tps|wps|tokens_throughput)(?:_avg)?"
)
_SAMPLES_RATE = re.compile(
    r"(?:(?P<avg>avg|average|mean|overall|cumulative)_)?(?:train_|throughput_|perf/)?"
    r"(?:samples?|examples?|seqs?|sequences?|images?|imgs?|img|frames?|ex)(?:/|_per_)(?:s|sec|second)"
    r"|currsamplespersec|ips"  # DeepSpeed's; Paddle's
)
# The rate of one device is not the run's: the number of devices is unknown.
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
_SKIPPED = words("number_of_skipped_iterations number_of_nan_iterations")  # since the line before
_NEVER_NEGATIVE = re.compile(r"mfu|hfu|perplexity|ppl|accuracy|acc|memory|mem|tflops|tflop/s/gpu|grad_norm")
_AT_MOST_100 = re.compile(r"mfu|hfu")

# Plain substrings, one of which is in every line that the pattern below matches.
_HINTS = {
    *(*LEARNING_SIGNALS, *LOWER_IS_BETTER, *HIGHER_IS_BETTER),
    *words("lr learn grad perpl kl entropy map precision recall fu tok sample r2 iou fid bits return ep_rew"),
    *words("advantage success episode sps fps"),
    "'s l",
}

# A line without a step counts as a report on the training only with one of these words.
_TRAINING_WORDS = re.compile(
    r"loss|acc(?:uracy)?\b|reward|\blr\b|learning.?rate|\blearn:|grad.?norm|ppl|perplex|\bkl\b|entropy|\bf1\b|bleu|rouge|\bscore"
    r"|\bauc\b|\bmap\b|precision|recall|\bm[fh]?fu\b|tok(?:en)?s?(?:/|\sper\s|_per_)s|samples?/s|\bmse\b|\bmae\b|rmse"
    r"|\br2\b|\biou\b|\bfid\b|\bwer\b|\bcer\b|bits.per|\bbpb\b|\breturn\b|ep_rew|advantage|success|episode|\bsps\b"
    r"|\bfps[ :=]{1,3}\d|'s l[12]\b",
    re.IGNORECASE,
)


def is_about_training(text: str) -> bool:
    """Return whether a line without a step reports on a training."""
    lower = text.lower()  # searching plain words first is ten times as fast
    return any(hint in lower for hint in _HINTS) and _TRAINING_WORDS.search(text) is not None


@lru_cache(maxsize=4096)
def _rates(plain: str) -> tuple[bool, bool, bool, bool]:
    """Return whether a name is a rate of tokens, of samples, of steps, and whether it is an average."""
    tokens, samples = _TOKENS_RATE.fullmatch(plain), _SAMPLES_RATE.fullmatch(plain)
    match = tokens or samples
    average = match is not None and (match["avg"] is not None or plain.endswith("_avg"))
    return tokens is not None, samples is not None, _STEPS_RATE.fullmatch(plain) is not None, average


def set_value(into: Reading, raw_name: str, value: Number, seconds: float | None = None) -> None:
    """Put one value into a reading.

    Args:
        seconds: the value as a time, where its unit is one of time.
    """
    plain = name(raw_name)
    if plain.lstrip("_") in _MOMENT and not isinstance(value, str) and _set_moment(into, value):
        return
    if not plain or plain in _IGNORED or plain[0].isdigit() or _SOURCE_FILE.search(plain):
        return
    if isinstance(value, str):
        if plain not in STEP and plain not in _EPOCH:
            _set_metric(into, plain, value)
    elif plain in _SKIPPED and value > 0:  # Megatron's; those whose loss was nan are among them
        into.skipped = max(into.skipped, int(value))
        into.reason = into.reason or SCALER_OVERFLOW
        _set_metric(into, plain, value)
    elif plain in STEP or plain in _UPDATES or plain in TOTAL or plain in _EPOCH:
        if seconds is None:
            _set_position(into, plain, value)
        elif plain in STEP and into.seconds is None:  # `Step: 57ms` is a time, and no count
            into.seconds = seconds
    elif not (_set_time(into, plain, value, seconds) or _set_amount(into, plain, float(value))):
        _set_metric(into, plain, value)


def _set_moment(into: Reading, value: int | float) -> bool:
    """Take a Unix time in seconds or milliseconds. Return whether the value is one."""
    for moment in (float(value), value / 1e3):
        if MIN_UNIX <= moment < MAX_UNIX:
            into.wall = moment
            return True
    return False


def resolve_ambiguous_times(into: Reading) -> None:
    """Decide the meaning of times with ambiguous names, once all values of a line are known."""
    data = into.metrics.get("data")
    if into.seconds is not None and isinstance(data, float | int) and 0 <= data <= MAX_PHASES_SHARE * into.seconds:
        into.phases.setdefault("data", float(into.metrics.pop("data")))  # timm's: `Time: 0.412s ... Data: 0.290`
    trained, whole = into.ambiguous_times.pop(TRAINING_TIME, None), into.ambiguous_times.pop(TOTAL_TIME, None)
    if trained is not None and into.phases.keys() - {"data"}:
        into.phases[TRAINING_TIME] = into.phases.get(TRAINING_TIME, 0.0) + trained
        trained = None
    adds_up = whole is not None and MIN_PHASES_SHARE * whole <= sum(into.phases.values()) <= MAX_PHASES_SHARE * whole
    if adds_up and into.phases and into.seconds is None:
        into.seconds, whole = whole, None
    elapsed = trained if trained is not None else whole
    if into.elapsed is None and elapsed is not None and into.family != "bar":  # a bar has a time of its own, or none
        into.elapsed = elapsed


def _set_position(into: Reading, plain: str, value: int | float) -> None:
    if value < 0 or value > MAX_INTEGER:
        _refuse(into, plain, value)
    elif plain in _EPOCH:
        into.epoch = float(value) if into.epoch is None else into.epoch
    elif value != int(value):
        _set_metric(into, plain, value)
    elif plain in TOTAL:
        into.total = int(value)
    elif plain in STEP or (plain == "num_updates" and into.step is None):  # fairseq's; others name their step beside it
        if into.step is None:
            into.step, into.key = int(value), "step"
    else:
        _set_metric(into, plain, value)


def _set_time(into: Reading, plain: str, value: int | float, seconds: float | None) -> bool:
    """Take a time, if this is one."""
    bare = _PHASE_ENDING.sub("", plain) or plain
    if seconds is None and (plain.endswith("_ms") or plain.startswith("ms/")):
        seconds = value / 1e3
    if plain.startswith(VERL_TIMES):
        bare, seconds = plain[len(VERL_TIMES) :], float(value)
    spent = float(value) if seconds is None else seconds
    phase_of_step = None if bare in ("", "time") else known_phase(bare)
    is_phase = phase_of_step is not None and (seconds is not None or plain != bare or plain in _COSTS)
    if not is_phase and plain == "time" and seconds is None:
        return True  # its unit and meaning are unknown
    is_step = plain in _STEP_TIME or plain == "time" or bare in _STEP_TIME
    is_spare = plain in _TRAINED | _ALL and (seconds is not None or plain.endswith("time"))
    if not (is_phase or is_step or is_spare or plain in _ELAPSED):
        return False
    if value < 0:
        _refuse(into, plain, value)
    elif is_phase and phase_of_step is not None:
        into.phases[phase_of_step] = into.phases.get(phase_of_step, 0.0) + spent
    elif is_step:
        into.seconds = spent
    elif is_spare:
        into.ambiguous_times.setdefault(TRAINING_TIME if plain in _TRAINED else TOTAL_TIME, spent)
    elif seconds is not None or plain != "runtime":
        into.elapsed = spent
    return True


def _set_amount(into: Reading, plain: str, value: float) -> bool:
    """Take a rate or a count of tokens or samples, if this is one."""
    tokens, samples, steps, average = _rates(plain)
    if value >= 0 and _OF_A_DEVICE.fullmatch(plain):
        into.metrics.setdefault("tokens_per_second_per_device", value)
        return True
    counts = plain in _TOKENS or plain in _SAMPLES or plain in _TOKENS_TOTAL or plain in _SAMPLES_TOTAL
    if not (tokens or samples or steps or counts):
        return False
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
    elif plain in _TOKENS_TOTAL:
        into.tokens_total = value
    else:
        into.samples_total = value
    return True


def _set_metric(into: Reading, plain: str, value: Number) -> None:
    if not isinstance(value, str):
        negative = value < 0 and _NEVER_NEGATIVE.fullmatch(plain)
        if negative or (value > 100 and _AT_MOST_100.fullmatch(plain)):
            _refuse(into, plain, value)
            return
    if len(into.metrics) < MAX_VALUES:
        into.metrics.setdefault(plain, value)


def _refuse(into: Reading, plain: str, value: Number) -> None:
    if len(into.impossible) < MAX_VALUES:
        into.impossible.append(f"{plain} {value}")

"""Tell a printed configuration from a report on the training: arguments look like metrics, and are none.

`batch=8, lr=0.001, iou=0.7, val=True` names a batch, a learning rate and a score, and reports nothing. Three signs give
a configuration away: values that no training measures (True, None, a text), the call of a constructor, and names that
are only ever given to a program.
"""

from __future__ import annotations

import re

from monitor.console.field_mapping import name, words
from monitor.console.printed_values import NUMBER
from monitor.console.reading import Reading
from trainhooks.protocol.vocabulary import HIGHER_IS_BETTER, LOWER_IS_BETTER, is_loss, is_reward

# Pairs with such a value, and their share of all pairs: a report has one at most (`skipped=False`, `best: True`). Plain
# words are weaker, a report may have some (`role=actor stage=warmup`).
MIN_SETTINGS, MIN_WORDS, MIN_SETTINGS_SHARE = 2, 5, 0.25
MIN_ARGUMENTS = 2  # of a line; a report may give one of them, the learning rate or the batch size

RATES = words("lr learning_rate base_lr lrs")
_ARGUMENTS = RATES | words(
    "lr0 lrf min_lr max_lr momentum weight_decay wd dropout beta1 beta2 betas eps epsilon gamma seed manual_seed "
    "epochs num_epochs n_epochs max_epochs num_train_epochs total_epochs niter n_iter num_iterations "
    "steps max_steps num_steps total_steps max_iters train_iters warmup warmup_steps warmup_iters warmup_epochs "
    "batch batchsize batch_size bs micro_batch_size train_batch_size eval_batch_size test_batch_size mini_batch_size "
    "minibatch_size batch_size_per_gpu grad_accum accum accumulation accumulation_steps gradient_accumulation_steps "
    "seq seq_len seq_length seqlen context context_length block_size max_length max_len max_seq_len max_seq_length "
    "vocab vocab_size dim d_model n_embd embed_dim embedding_dim hidden hidden_dim hidden_size n_layer n_layers "
    "num_layers layers num_hidden_layers depth width n_head n_heads num_heads heads num_attention_heads d_ff ffn_dim "
    "channels in_channels out_channels kernel_size stride padding nz ngf ndf ngpu imgsz imagesize image_size img_size "
    "workers num_workers n_workers threads n_threads num_threads patience clip grad_clip max_grad_norm clip_grad "
    "label_smoothing num_classes nc n_classes num_leaves max_depth feature_fraction bagging_fraction subsample "
    "n_estimators colsample_bytree log_interval eval_interval save_interval save_period steps_per_print tau "
    "total_timesteps num_envs n_envs buffer_size learning_starts rank lora_r lora_alpha alpha temperature top_k top_p"
)
_RESULTS = words("acc map miou iou fid auc accuracy precision recall perplexity sps fps mfu") | frozenset(
    (*HIGHER_IS_BETTER, *LOWER_IS_BETTER)
)

_PAIR = re.compile(
    rf"(?<![\w.])(?P<name>[A-Za-z_][\w.-]{{0,60}})['\"]?(?:\s?=\s?|:\s{{0,3}})"
    rf"(?P<value>{NUMBER}|['\"]|[A-Za-z_][\w./\\-]{{0,80}}|[./~\[({{<])?"
)
_RESULT = re.compile(r"\b(?:\w{1,30}_)?(?:loss|reward|ppl|perplexity) \d{0,12}\.\d")  # `loss 2.31 - lr: 0.1`
_SETTINGS = ("True", "False", "None", "'", '"')
_FINITE = re.compile(r"[-+]?\.?\d|(?i:nan|inf|infinity|tensor|np|array|jnp|float)\b")
_CALL = re.compile(
    r"(?<![\w.])(?!(?:loss|tensor|array)\w*\()[A-Za-z_]\w{1,60}\((?:[^()=]{0,200}, )?\w{1,60}\s?=\s?[^()]{0,2000}\)?"
)
# `learning_rate = 1e-3  # a comment`, and `learning_rate: 1e-3` as YAML has it
_ALONE = re.compile(
    r"^\s{0,40}[-*]?\s{0,4}['\"]?(?P<name>[A-Za-z_][\w.]{0,60})['\"]?\s?[:=]\s{0,12}(?P<value>\S.{0,200})$"
)


def is_argument(plain: str) -> bool:
    """Return whether a name, as `name` gives it, is one that programs are given rather than one that they measure."""
    return plain in _ARGUMENTS


def is_result(plain: str) -> bool:
    """Return whether a name is one of what a training measures: a loss, a reward, an accuracy."""
    return plain in _RESULTS or is_loss(plain) or is_reward(plain) or plain.rpartition("_")[2] in _RESULTS


def without_calls(text: str) -> str:
    """Return the text without the arguments of constructors: `AdamW(lr=0.001, momentum=0.9)`, `Namespace(lr=0.1)`."""
    return _CALL.sub(" ", text) if "(" in text and "=" in text else text


def is_configuration(text: str) -> bool:
    """Return whether a line prints what a program was told, and not what it measured."""
    if "=" not in text and ":" not in text:
        return False
    plain, values = [], [0, 0, 0]  # named numbers; pairs, of these with a setting, with a plain word
    for match in _PAIR.finditer(text):
        value = match["value"]
        if value is not None and _FINITE.match(value):
            plain.append(name(match["name"]))
        values[0] += 1
        values[1] += value in _SETTINGS
        values[2] += value is not None and value[0].isalpha() and value not in _SETTINGS and "=" in match.group()
    pairs, settings, texts = values
    if settings + texts >= MIN_SETTINGS_SHARE * pairs and (settings >= MIN_SETTINGS or texts >= MIN_WORDS):
        return True
    if any(map(is_result, plain)) or _RESULT.search(text) is not None:
        return False
    return sum(map(is_argument, plain)) >= MIN_ARGUMENTS


def is_setting(text: str) -> bool:
    """Return whether a line has one argument with its value, and nothing else: a line of a configuration file."""
    match = _ALONE.match(text)
    value = match["value"].partition("#")[0].strip().rstrip(",") if match is not None else ","
    return match is not None and is_argument(name(match["name"])) and "," not in value and " " not in value


def only_arguments(reading: Reading) -> bool:
    """Return whether all values of a reading without a position are arguments: a report has a result beside them."""
    placed = reading.step is not None or reading.epoch is not None or reading.elapsed is not None
    return bool(reading.metrics) and not placed and all(map(is_argument, reading.metrics))

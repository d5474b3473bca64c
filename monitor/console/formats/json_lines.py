"""Read logs in braces: the dicts that HF Trainer prints, and JSON lines. Nothing is evaluated."""

from __future__ import annotations

import json
import re
from typing import Any, ClassVar

from monitor.console import step_labels
from monitor.console.configuration import is_argument
from monitor.console.field_mapping import name, set_value
from monitor.console.formats import Format, register
from monitor.console.formats.progress_bars import read_bar
from monitor.console.printed_values import NONFINITE, NUMBER, number
from monitor.console.reading import MAX_LINE_CHARACTERS, MAX_VALUES, Reading
from trainhooks.protocol import limits

MAX_MAPPING_DEPTH = 3  # of mappings in mappings; deeper values are a configuration
MAX_NUMBER_TEXT = 40  # characters of a number that is given as text

# 'loss': 2.31   "loss": "2.31"   'loss': np.float64(2.31)   'loss': tensor(2.31, device='cuda:0')
_ITEM = re.compile(
    rf"['\"](?P<name>[^'\"{{}}\n]{{1,128}})['\"]\s{{0,8}}:\s{{0,8}}['\"]?(?:[A-Za-z_.]{{1,16}}\d{{0,3}}\()?"
    rf"(?P<value>{NONFINITE}|NaN|-?Infinity|{NUMBER})(?![\w:.]|-\d)"
)
# `'global_step/max_steps': '12/94'`
_POSITION = re.compile(
    r"['\"](?P<name>\w{0,24}(?:step|iter)\w{0,8}/(?:max|total|num)_?\w{0,24})['\"]\s{0,8}:\s{0,8}"
    r"['\"](?P<step>\d{1,12})/(?P<total>\d{1,12})['\"]"
)
_TRAINING_WORDS = re.compile(
    r"loss|reward|^eval_|^train_|accuracy|perplexity|grad_norm|learning_rate|step$|^epoch$", re.IGNORECASE
)
_TRANSPARENT = ("metrics", "data", "log", "logs", "train", "values")  # mappings whose name is left out of the metric


@register
class JsonLines(Format):
    """Values in braces, with what precedes them."""

    order: ClassVar[int] = 20  # before every form of text: text in braces looks like names and values, too
    whole_line: ClassVar[bool] = True  # the closing brace may be beyond the first 4,096 characters

    def read(self, text: str) -> list[Reading] | None:
        if "{" not in text:
            return None
        logged = Reading("metrics")
        if not read_dict(text, logged):
            return None
        before = text[: text.find("{")][:MAX_LINE_CHARACTERS]
        if logged.step is None:
            step_labels.read_labels(before, logged)
        logged.family = "step" if logged.step is not None else "metrics"
        drawn = read_bar(before) if before.strip() else None
        return [logged] if drawn is None else [drawn.bar, logged]


def read_dict(text: str, into: Reading) -> bool:
    """Take the values of a dict or a JSON object; return False where there is none that is about a training."""
    begin = text.find("{")
    if begin < 0 or text.find("}", begin) < 0:
        return False
    items = _parse_json(text[begin:].strip()) or _find_items(text[begin:])
    if not any(_TRAINING_WORDS.search(key) and not is_argument(name(key)) for key, _ in items):
        return False  # or a printed configuration
    position = _POSITION.search(text, begin)
    if position is not None:
        into.step, into.total, into.key = int(position["step"]), int(position["total"]), "step"
    for key, value in items:
        if position is None or key != position["name"]:
            set_value(into, key, value)
    return True


def _parse_json(text: str) -> list[tuple[str, limits.Number]]:
    if not text.startswith('{"') or not text.endswith("}"):
        return []
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return []
    items: list[tuple[str, limits.Number]] = []
    if isinstance(parsed, dict):
        _flatten(parsed, "", items, MAX_MAPPING_DEPTH)
    return items


def _flatten(mapping: dict[str, Any], prefix: str, items: list[tuple[str, limits.Number]], depth: int) -> None:
    for key, value in mapping.items():
        if len(items) >= MAX_VALUES:
            return
        parsed = None
        if isinstance(value, dict) and depth > 0:
            _flatten(value, prefix if name(key) in _TRANSPARENT else f"{prefix}{key}/", items, depth - 1)
        elif isinstance(value, str) and len(value) < MAX_NUMBER_TEXT:
            parsed = number(value) if re.fullmatch(rf"{NUMBER}|{NONFINITE}", value.strip()) else None
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            parsed = limits.number(value)
        if parsed is not None:
            items.append((prefix + key, parsed))


def _find_items(text: str) -> list[tuple[str, limits.Number]]:
    items: list[tuple[str, limits.Number]] = []
    for match in _ITEM.finditer(text):
        value = number(match["value"].replace("Infinity", "inf"))
        if value is not None and len(items) < MAX_VALUES:
            items.append((match["name"], value))
    return items

"""Logs in braces: the dicts that HF Trainer prints, and JSON lines. Nothing is evaluated. Pure."""

from __future__ import annotations

import json
import re
from typing import Any

from monitor.console.figures import NONFINITE, NUMBER, number
from monitor.console.place import figure
from monitor.console.reading import MAX_FIGURES, Reading, name
from trainhooks import events

# 'loss': 2.31   "loss": "2.31"   'loss': np.float64(2.31)   'loss': tensor(2.31, device='cuda:0')
_ITEM = re.compile(
    rf"['\"](?P<name>[^'\"{{}}\n]{{1,128}})['\"]\s{{0,8}}:\s{{0,8}}['\"]?(?:[A-Za-z_.]{{1,16}}\d{{0,3}}\()?"
    rf"(?P<value>{NONFINITE}|NaN|-?Infinity|{NUMBER})(?![\w:.]|-\d)"
)
_TELLING = re.compile(
    r"loss|reward|^eval_|^train_|accuracy|perplexity|grad_norm|learning_rate|step$|^epoch$", re.IGNORECASE
)


def read_dict(text: str, into: Reading) -> bool:
    """Take the figures of a dict or a JSON object; False where there is none, or none that tells of a training."""
    begin = text.find("{")
    if begin < 0 or text.find("}", begin) < 0:
        return False
    items = _json(text[begin:].strip()) or _loose(text[begin:])
    if not any(_TELLING.search(key) for key, _ in items):
        return False
    for key, value in items:
        figure(into, key, value)
    return bool(items)


def _json(text: str) -> list[tuple[str, events.Number]]:
    if not text.startswith('{"') or not text.endswith("}"):
        return []
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return []
    out: list[tuple[str, events.Number]] = []
    if isinstance(found, dict):
        _flatten(found, "", out, 3)
    return out


def _flatten(mapping: dict[str, Any], prefix: str, out: list[tuple[str, events.Number]], depth: int) -> None:
    for key, value in mapping.items():
        if len(out) >= MAX_FIGURES:
            return
        if isinstance(value, dict) and depth > 0:
            inner = name(key) in ("metrics", "data", "log", "logs", "train", "values")
            _flatten(value, prefix if inner else f"{prefix}{key}/", out, depth - 1)
        elif isinstance(value, str):
            told = number(value) if len(value) < 40 else None
            if told is not None and re.fullmatch(rf"{NUMBER}|{NONFINITE}", value.strip()):
                out.append((prefix + key, told))
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            told = events.number(value)
            if told is not None:
                out.append((prefix + key, told))


def _loose(text: str) -> list[tuple[str, events.Number]]:
    out: list[tuple[str, events.Number]] = []
    for found in _ITEM.finditer(text):
        value = number(found["value"].replace("Infinity", "inf"))
        if value is not None and len(out) < MAX_FIGURES:
            out.append((found["name"], value))
    return out

"""Whether two runs do the same, so that the later may be measured by the earlier. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from monitor.model.arguments import Arguments, parse
from monitor.model.report import Report

# Options that change how fast a step is, how many there are or where things are written, but not what a step computes.
# With any other one that differs (a model, a data set, a length, a width) the runs do different work.
_INCIDENTAL = re.compile(
    r"worker|prefetch|persistent|pin-mem|precision|dtype|compile|checkpointing|attn|flash|fused|foreach|optim"
    r"|(?:^|-)(?:bf16|fp16|tf32|fp32|amp|half|float16|bfloat16|seed|lr|wd|port|host|resume|verbose|debug|profile|profiler)"
    r"(?:-|$)|learning-rate|warmup|weight-decay|momentum|scheduler|(?:^|-)(?:save|eval|log|logging)(?:-|$)|wandb|report-to"
    r"|(?:^|-)(?:dir|name|output|out|tag|steps|epochs?|iters|iterations)$|max-steps|batch|accum"
)
_AMOUNT = re.compile(r"batch|accum")  # these change how much a step does


def same_program(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two runs, by their `run.json`, started the same program with the same arguments that matter."""
    words = one.get("command"), other.get("command")
    if not words[0] or not words[1] or one.get("cwd") != other.get("cwd"):
        return False
    if one.get("imported") or other.get("imported"):
        return False  # a log tells no command
    before, after = parse(words[0]), parse(words[1])
    if (before.program, before.others) != (after.program, after.others):
        return False
    return all(_INCIDENTAL.search(_plain(name)) for name in _differing(before, after))


def same_amount(one: Report, other: Report) -> bool:
    """Whether no argument says that a step of one does more than a step of the other."""
    options = _differing(parse(one.run.command), parse(other.run.command))
    return not any(_AMOUNT.search(_plain(name)) for name in options)


def same_kind_of_machine(one: Report, other: Report) -> bool:
    """The same ranks, GPUs and usable cores; where none of these is known, the same host."""
    if one.run.ranks != other.run.ranks:
        return False
    machines = [_machine(each) for each in (one, other)]
    if machines[0] == ([], None):
        return one.run.host is not None and one.run.host == other.run.host
    return machines[0] == machines[1]


def _machine(report: Report) -> tuple[list[str], object]:
    used = [gpu for gpu in report.gpus if gpu.ours is not False]
    return sorted(gpu.name or "?" for gpu in used), report.run.facts.get("cpus")


def _differing(one: Arguments, other: Arguments) -> list[str]:
    names = dict.fromkeys([*one.options, *other.options])
    return [name for name in names if one.options.get(name) != other.options.get(name)]


def _plain(option: str) -> str:
    return option.lstrip("-").replace("_", "-").replace(".", "-").lower()

"""What differs between two runs: arguments, settings, versions, environment, commit, hardware. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from monitor.model.report import Report
from trainhooks.protocol.job_key import JOB_VARIABLES

GIVEN = "given"  # stands for the value of an option without one

_PYTHON = re.compile(r"(?:python|pypy)[0-9.]*t?$")
_NUMBER = re.compile(r"-\.?[0-9]")
_LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "torch.distributed.run", "torch.distributed.launch")


@dataclass(frozen=True, slots=True)
class Arguments:
    program: str  # the script without its directory, the module, or the program
    options: dict[str, str] = field(default_factory=dict)  # `--lr` -> "1e-4"; the last value of a repeated option
    others: tuple[str, ...] = ()  # positional arguments


def parse_command(command: Sequence[str]) -> Arguments:
    """Return the parts of a command. A word after an option is its value, unless it is an option itself."""
    words = list(command)
    if not words:
        return Arguments("")
    program, rest = _program(words)
    options: dict[str, str] = {}
    others = []
    at = 0
    while at < len(rest):
        word = rest[at]
        at += 1
        if not _is_option(word):
            others.append(word)
            continue
        name, equals, value = word.partition("=")
        if not equals and at < len(rest) and not _is_option(rest[at]):
            value = rest[at]
            at += 1
        options[name] = value or GIVEN
    return Arguments(program, options, tuple(others))


def _program(words: list[str]) -> tuple[str, list[str]]:
    """Return the program that is run and all other words, those of a launcher or an interpreter included."""
    first = _file_name(words[0])
    if not (_PYTHON.match(first) or first in _LAUNCHERS):
        script = next((at for at, word in enumerate(words) if at and word.endswith((".py", ".sh"))), 0)
        return _file_name(words[script]), [word for at, word in enumerate(words) if at not in (0, script)]
    at = 1
    while at < len(words):
        word = words[at]
        module = word == "-m" and at + 1 < len(words)
        if module and words[at + 1] not in _LAUNCHERS:
            return words[at + 1], words[1:at] + words[at + 2 :]
        if not module and word.endswith(".py"):
            return _file_name(word), words[1:at] + words[at + 1 :]
        if word == "-c" and _PYTHON.match(first):
            return " ".join(words[at : at + 2]), words[1:at] + words[at + 2 :]
        at += 2 if module else 1
    return first, words[1:]


def _file_name(word: str) -> str:
    return word.rpartition("/")[2]


def _is_option(word: str) -> bool:
    return len(word) > 1 and word.startswith("-") and not _NUMBER.match(word)


# Facts that differ between any two runs, or follow from others (operations from the model and its batch).
_COUNTED = ("ops", "compile", "collections", "loader_passes")
IDLE_FACTS = frozenset(("cwd", "command", "tags", "devices", "download", "batch", "device_clock", "tracing", *_COUNTED))
IDLE_SETTINGS = frozenset(f"environment.{name}" for name in JOB_VARIABLES)
COUNTS = frozenset(("forwards",))  # facts counted while the run goes on
SETTINGS = ("environment", "versions")  # tables that every process with hooks records; others come with a framework
MIN_REPEATED_CALLS = 0.1  # of the model's calls: the loop then calls the model twice on the same input


@dataclass(frozen=True, slots=True)
class Change:
    """A setting, version or circumstance that differs."""

    name: str
    before: Any
    after: Any


def find_changes(one: Report, two: Report) -> list[Change]:
    """Return all known differences, the arguments of the command first."""
    rows = _arguments(one.run.command, two.run.command)
    before, after = _settings(one), _settings(two)
    unknown = unrecorded(one, two)
    for name in dict.fromkeys([*before, *after]):
        if name.partition(".")[0] not in unknown and before.get(name) != after.get(name):
            rows.append(Change(name, before.get(name), after.get(name)))
    return rows


def unrecorded(one: Report, two: Report) -> list[str]:
    """Return the tables of settings that one run or both have not recorded: they can be neither blamed nor excluded."""
    tables = [report.run.facts.table for report in (one, two)]
    return [name for name in SETTINGS if not all(isinstance(table.get(name), dict) for table in tables)]


def _arguments(one: list[str], two: list[str]) -> list[Change]:
    if one == two:
        return []
    before, after = parse_command(one), parse_command(two)
    if before.program != after.program:
        return [Change("command", " ".join(one) or None, " ".join(two) or None)]
    rows = []
    for name in dict.fromkeys([*before.options, *after.options]):
        if before.options.get(name) != after.options.get(name):
            rows.append(Change(name, before.options.get(name), after.options.get(name)))
    if before.others != after.others:
        rows.append(Change("arguments", _joined(before), _joined(after)))
    # Another file of the same name, or another interpreter: nothing else would tell.
    return rows or [Change("command", " ".join(one) or None, " ".join(two) or None)]


def _joined(arguments: Arguments) -> str | None:
    return " ".join(arguments.others) or None


def _settings(report: Report) -> dict[str, Any]:
    circumstances = {key: value for key, value in _flatten(report.run.facts.table).items() if key not in IDLE_SETTINGS}
    circumstances["host"], circumstances["ranks"] = report.run.host, report.run.ranks
    circumstances["gpus"] = ", ".join(gpu.name or "?" for gpu in report.gpus) or None
    forwards = report.run.facts.forwards
    if forwards.calls and forwards.repeated / forwards.calls >= MIN_REPEATED_CALLS:
        circumstances["model called twice on the same input"] = "yes"
    return circumstances


def _flatten(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, value in table.items():
        if not prefix and (name in IDLE_FACTS or name in COUNTS):
            continue
        if name == "dtypes" and isinstance(value, dict):
            out[f"{prefix}{name}"] = ", ".join(sorted(value))
        elif isinstance(value, dict):
            out.update(_flatten(value, f"{prefix}{name}."))
        else:
            out[f"{prefix}{name}"] = value
    return out


# Whether two runs do the same work, so that the earlier can be the baseline of the later.

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
    """Return whether two runs, by their `run.json`, started the same program with the same arguments that matter."""
    words = one.get("command"), other.get("command")
    if not words[0] or not words[1] or one.get("cwd") != other.get("cwd"):
        return False
    if one.get("imported") or other.get("imported"):
        return False  # a log does not contain the command
    before, after = parse_command(words[0]), parse_command(words[1])
    if (before.program, before.others) != (after.program, after.others):
        return False
    return all(_INCIDENTAL.search(_plain_option(name)) for name in _differing_options(before, after))


def same_amount(one: Report, other: Report) -> bool:
    """Return whether no argument makes a step of one do more than a step of the other."""
    options = _differing_options(parse_command(one.run.command), parse_command(other.run.command))
    return not any(_AMOUNT.search(_plain_option(name)) for name in options)


def same_kind_of_machine(one: Report, other: Report) -> bool:
    """Return whether ranks, GPUs and usable cores are the same; where none of these is known, whether the host is."""
    if one.run.ranks != other.run.ranks:
        return False
    machines = [_machine(side) for side in (one, other)]
    if machines[0] == ([], None):
        return one.run.host is not None and one.run.host == other.run.host
    return machines[0] == machines[1]


def _machine(report: Report) -> tuple[list[str], object]:
    used = [gpu for gpu in report.gpus if gpu.ours is not False]
    return sorted(gpu.name or "?" for gpu in used), report.run.facts.cpus


def _differing_options(one: Arguments, other: Arguments) -> list[str]:
    names = dict.fromkeys([*one.options, *other.options])
    return [name for name in names if one.options.get(name) != other.options.get(name)]


def _plain_option(option: str) -> str:
    return option.lstrip("-").replace("_", "-").replace(".", "-").lower()

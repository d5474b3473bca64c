"""The manual page, written from what `--help` is written from. `make manual` renews docs/trainmon.1."""

from __future__ import annotations

import re

import click

from monitor import __version__

EXITS = (
    ("0", "success; for `run` without a dashboard, the program's own exit code is returned instead"),
    ("1", "the command could not do its work, or a comparison failed its limit"),
    ("2", "a mistake on the command line, in one line on standard error"),
    ("3, 4", "`wait`: the time was over; the run ended or was lost before what was waited for"),
    ("128+N", "`run`: signal N ended the program"),
)
VARIABLES = (
    ("TRAINMON_DIR", "where runs are stored instead of the user's state directory"),
    ("TRAINMON_GPU_CLOCK", "0: steps are not timed on the GPU"),
    ("TRAINMON_TRACE", "0: no step is traced; 1: also steps on a CPU, each whole"),
    ("TRAINMON_CONTROL", "0: no training can be asked for a trace"),
    ("TRAINMON_OPS", "0: no early forward pass is inspected"),
    ("TRAINMON_FRAMES", "0: no stack samples are taken"),
)


def page(command: click.Group) -> str:
    """Return the page in man's format."""
    context = click.Context(command, info_name="trainmon")
    lines = [
        f'.TH TRAINMON 1 "" "trainmon {__version__}" "User Commands"',
        ".SH NAME",
        r"trainmon \- monitor training runs live, and say why they are slow",
        ".SH SYNOPSIS",
        f"\\fBtrainmon\\fR {_escaped(' '.join(command.collect_usage_pieces(context)))}",
        ".SH DESCRIPTION",
        *_paragraphs(command.help),
        ".SH COMMANDS",
    ]
    for name in command.list_commands(context):
        lines += _command(name, command.commands[name], context)
    lines += [".SH EXIT STATUS", *(line for row in EXITS for line in _item(*row))]
    lines += [".SH ENVIRONMENT", *(line for row in VARIABLES for line in _item(*row))]
    return "\n".join(lines) + "\n"


def _command(name: str, command: click.Command, parent: click.Context) -> list[str]:
    context = click.Context(command, info_name=name, parent=parent)
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [f".SS {_escaped(name)}", f"\\fBtrainmon {_escaped(name)}\\fR {_escaped(usage)}", ".PP"]
    lines += _paragraphs(command.help)
    for parameter in command.params:
        record = parameter.get_help_record(context)
        if record is not None and record[1]:  # an argument is in the usage already
            lines += _item(*record)
    return lines


def _item(term: str, text: str) -> list[str]:
    return [".TP", f"\\fB{_escaped(term)}\\fR", *_escaped(text).splitlines()]


def _paragraphs(text: str | None) -> list[str]:
    """Return the paragraphs of a help text; its line ends mean nothing."""
    parts = [" ".join(part.split()) for part in re.split(r"\n\s*\n", text or "") if part.strip()]
    lines: list[str] = []
    for part in parts:
        lines += [".PP", _escaped(part)] if lines else [_escaped(part)]
    return lines


def _escaped(text: str) -> str:
    """Return text that man prints as it is: a leading dot or quote begins no request."""
    plain = text.replace("\\", r"\e").replace("-", r"\-")
    return re.sub(r"(?m)^([.'])", r"\\&\1", plain)

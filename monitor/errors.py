"""Errors that the user can fix, and how they are printed. Separate, so that `trainmon --help` loads nothing heavy."""

import os


class UserError(Exception):
    """An error that the user can fix. The message is one line that says how."""


def say(text: str) -> None:
    """Print on stderr. A closed pipe or a full disk there does not change the exit code."""
    import click

    try:
        click.echo(text, err=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # the rest of the buffer would fail again at exit


def complain(message: str, code: int = 2) -> int:
    """Print one line on stderr. Return `code`, for the caller to exit with."""
    from trainhooks.protocol.limits import clean

    say(f"trainmon: {clean(' '.join(message.split()))}")
    return code

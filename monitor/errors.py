"""What a person can put right, and how it is said. Apart, so that `trainmon --help` loads nothing heavy."""

import os


class UserError(Exception):
    """Something the person at the keyboard can put right. The message is one line that says how."""


def say(text: str) -> None:
    """Say it on stderr. Nobody may read there any more, or the disk be full: an exit code is not changed by that."""
    import click

    try:
        click.echo(text, err=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what is left in the stream would fail once more, at the end


def complain(message: str, code: int = 2) -> int:
    """Say it in one line on stderr. Gives `code` back, for the caller to exit with."""
    from trainhooks.events import clean

    say(f"trainmon: {clean(' '.join(message.split()))}")
    return code

"""What a person can put right, and how it is said. Apart, so that `trainmon --help` loads nothing heavy."""


class UserError(Exception):
    """Something the person at the keyboard can put right. The message is one line that says how."""


def complain(message: str, code: int = 2) -> int:
    """Say it in one line on stderr. Gives `code` back, for the caller to exit with."""
    import contextlib

    import click

    from trainhooks.events import clean

    with contextlib.suppress(OSError):  # nobody reads it: the code still tells
        click.echo(f"trainmon: {clean(' '.join(message.split()))}", err=True)
    return code

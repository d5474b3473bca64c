"""The `trainmon` command: its verbs gathered, its streams, its exit code. Each verb imports what is heavy itself."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import click

from monitor import __version__
from monitor.errors import UserError, complain
from monitor.terminal import can_draw
from monitor.verbs import help, logs, runs, screens
from monitor.verbs.attach import attach
from monitor.verbs.run import run
from trainhooks.rundir import UnsafeDirectory

VERBS = (
    *(run, attach, runs.ls, runs.stop, runs.report, runs.compare, runs.export, runs.prune),
    *(screens.replay, logs.lines, logs.import_),
    *(help.explain, help.doctor, help.completion),
)


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="trainmon", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context) -> None:
    """See how a training runs, how fast, where the time goes, and why.

    Without a command, on a terminal: all runs, to open, compare, stop and replay.

    RUN is an id, the beginning of one, a name, a directory, or `last`, which is the default.
    """
    if context.invoked_subcommand is None:
        if not can_draw():
            raise click.exceptions.NoArgsIsHelpError(context)
        screens.browse()


for verb in VERBS:
    cli.add_command(verb)


# The console script


def main() -> NoReturn:
    """Run the command line; whatever the user got wrong ends in one line on stderr."""
    _open_what_is_closed()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal in an old encoding shows '?', not a traceback
    sys.exit(_main())


def _open_what_is_closed() -> None:
    """Where the caller closed stdin, stdout or stderr, point it at nothing, lest another file lands there."""
    for handle, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(handle)
        except OSError:
            nothing = os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
            setattr(sys, name, os.fdopen(nothing, "w" if handle else "r"))


def _main() -> int:
    try:
        code = cli.main(prog_name="trainmon", standalone_mode=False)
        sys.stdout.flush()
    except (UserError, UnsafeDirectory) as error:
        return complain(str(error))
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return 2
    except click.ClickException as error:
        help_of = getattr(getattr(error, "ctx", None), "command_path", "trainmon")
        return complain(f"{error.format_message()} (see {help_of} --help)")
    except (KeyboardInterrupt, click.Abort):
        return 130
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    return code if isinstance(code, int) else 0

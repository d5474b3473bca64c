"""Signals as a terminal's shell leaves them, for all that the tests start."""

from __future__ import annotations

import signal


def as_in_a_terminal() -> None:
    """A shell that starts the tests in the background ignores SIGINT and SIGQUIT, nohup ignores SIGHUP: what they
    start would inherit that. What is handled here is the default again there, and we go on after a hangup.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)

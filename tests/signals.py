"""Signals: sent to pids that were read from files, and reset to what a terminal's shell leaves."""

from __future__ import annotations

import os
import signal


def send_signal(pid: int, number: int) -> None:
    """Signal one process. Refuse a pid below 2: 0, read from a file too early, would be the test run's own group."""
    assert pid > 1, f"signal {number} to pid {pid}"
    os.kill(pid, number)


def send_group_signal(pid: int, number: int) -> None:
    """Signal the process group that a process is in; its pid is checked likewise, and the test run's own is spared."""
    assert pid > 1, f"signal {number} to the group of pid {pid}"
    group = os.getpgid(pid)
    assert group != os.getpgrp(), f"signal {number} to the test run's own group"
    os.killpg(group, number)


def as_in_a_terminal() -> None:
    """A shell that starts the tests in the background ignores SIGINT and SIGQUIT, nohup ignores SIGHUP: what they
    start would inherit that. What is handled here is the default again there, and we go on after a hangup.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)

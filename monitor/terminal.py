"""Whether there is a terminal, and what it can do."""

from __future__ import annotations

import os


def can_draw() -> bool:
    """Whether a screen can be shown: keys come from a terminal, all output goes to one, and it can draw."""
    if os.environ.get("TERM", "dumb") in ("", "dumb"):
        return False
    try:
        if not all(os.isatty(handle) for handle in (0, 1, 2)):
            return False
        return os.tcgetpgrp(0) == os.getpgrp()  # in the background (`&`) a program that reads keys is stopped
    except OSError:
        return False

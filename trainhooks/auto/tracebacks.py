"""Tracebacks without our own frames: what a program prints when it fails is what it prints without us."""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import Any, Optional

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def install() -> None:
    """Stand before whatever prints uncaught exceptions."""
    theirs = sys.excepthook

    def without_us(kind: Any, error: Any, trace: Optional[TracebackType]) -> None:
        try:
            trace = _trimmed(trace)
            seen = set()
            each = error
            while each is not None and id(each) not in seen:
                seen.add(id(each))
                each.__traceback__ = _trimmed(each.__traceback__)
                each = each.__cause__ or each.__context__
        except Exception:  # an exception of a foreign class; then it is shown as it is
            pass
        theirs(kind, error, trace)

    sys.excepthook = without_us


def _trimmed(trace: Optional[TracebackType]) -> Optional[TracebackType]:
    """The chain without the frames of this package."""
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_HERE):
        trace = trace.tb_next
    each = trace
    while each is not None:
        while each.tb_next is not None and each.tb_next.tb_frame.f_code.co_filename.startswith(_HERE):
            each.tb_next = each.tb_next.tb_next
        each = each.tb_next
    return trace

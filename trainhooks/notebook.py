"""Notebooks: the time between cells is named, a cell that failed ends its step and not the run, and the report inline.

All but `show` is armed by `import trainhooks` in a process of IPython. Its own events tell when a cell runs.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any, Dict, List, Optional

from trainhooks import session
from trainhooks.lane_entries import CANCEL, SPAN, host_clock
from trainhooks.program_errors import pass_on
from trainhooks.protocol.vocabulary import BETWEEN_CELLS

FIRST_SECONDS = 2.0  # from one look for a run to the next
MAX_SHARE = 0.1  # of the time, for making reports: they take cores that the training may need
MAX_REPORT_SECONDS = 60.0


class Cells:
    """Whether a cell runs. While none does, a span is open in the main thread."""

    def __init__(self) -> None:
        self.running = True  # the one that imports
        self.changed = threading.Event()  # set as a cell ends
        self._idle = False

    def begins(self, *_: Any) -> None:
        self.running = True
        if self._idle:
            self._idle = False
            session.started_put()((None, host_clock()))

    def ended(self, result: Any = None, *_: Any) -> None:
        self.running = False
        self.changed.set()
        if not session.is_started():
            return
        put = session.started_put()
        if getattr(result, "error_in_exec", None) is not None:
            put((CANCEL, host_clock(), None))  # its loop stays alive with the traceback that IPython keeps
        put((SPAN, host_clock(), BETWEEN_CELLS))
        self._idle = True


_cells: List[Cells] = []


def arm() -> None:
    """Follow the cells, where this is a process of IPython. Never raises."""
    try:
        shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
        if shell is None or _cells:
            return
        cells = Cells()
        shell.events.register("pre_run_cell", cells.begins)
        shell.events.register("post_run_cell", cells.ended)
        _cells.append(cells)
        session.set_interactive()
    except Exception as error:  # another IPython
        pass_on(error)


def show(run: Optional[str], seconds: float, height: int) -> None:
    """Show a run's report, as the command `trainmon report` makes it, or print why it is not shown."""
    arm()
    command = _command()
    if not _cells:
        print("trainmon: show() is for notebooks; in a terminal: trainmon")
        return
    if command is None:
        print("trainmon: there is no command `trainmon`: pip install trainmon")
        return
    display: Any = sys.modules["IPython"].display
    handle = display.display(_frame("<p>trainmon: no step yet</p>", 40), raw=True, display_id=True)
    shown = _Shown(handle, command, run, seconds, height)
    for before in _shown:
        before.over = True  # the newest call has the run
    _shown[:] = [shown]
    threading.Thread(target=shown.refresh, name="trainmon show", daemon=True).start()


class _Shown:
    """A frame in the notebook. A thread has the report made and puts it there, until another frame takes its place."""

    def __init__(self, handle: Any, command: str, run: Optional[str], seconds: float, height: int) -> None:
        self.over = False
        self._handle = handle
        self._command = command
        self._run = run
        self._seconds = seconds
        self._height = height

    def refresh(self) -> None:
        cells = _cells[0]
        while not self.over:
            cells.changed.clear()
            was_running, began = cells.running, time.monotonic()
            page = self._make()
            if page is not None and not self.over:
                self._handle.update(_frame(page, self._height), raw=True)
            took = time.monotonic() - began
            if was_running:
                cells.changed.wait(max(self._seconds, took / MAX_SHARE) if page is not None else FIRST_SECONDS)
            else:
                while not (cells.running or self.over):
                    time.sleep(0.2)

    def _make(self) -> Optional[str]:
        """Return the report; None where there is none yet."""
        import subprocess

        run = self._run or session.run_path()
        if run is None:
            return None
        try:
            made = subprocess.run(
                [self._command, "report", run, "--html", "-"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=MAX_REPORT_SECONDS,
                check=True,
            )
            return made.stdout.decode("utf-8", "replace")
        except (OSError, subprocess.SubprocessError):  # no step yet, or a run that was removed
            return None


_shown: List[_Shown] = []


def _command() -> Optional[str]:
    """Return the command `trainmon`: on PATH, or beside this Python, whose environment a kernel need not be in."""
    import shutil

    beside = os.path.join(os.path.dirname(sys.executable), "trainmon")
    return shutil.which("trainmon") or (beside if os.access(beside, os.X_OK) else None)


def _frame(page: str, height: int) -> Dict[str, str]:
    """Return a page in a frame of its own, which can reach nothing of the notebook, as what a notebook displays."""
    import html

    frame = (
        f'<iframe sandbox="allow-scripts" srcdoc="{html.escape(page)}" '
        f'style="width:100%;height:{int(height)}px;border:0"></iframe>'
    )
    return {"text/html": frame, "text/plain": "trainmon: a report, shown by notebooks in a browser"}

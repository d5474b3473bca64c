"""Ask a running training for a trace, and wait until it is there."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

from monitor.errors import UserError
from monitor.running.asking import Listener, connect, listeners, read_line, why_nobody_listens
from monitor.runs import catalogue
from monitor.sources.decode import decode
from monitor.sources.journal_reader import JournalTail
from monitor.units import plural
from trainhooks.protocol import control
from trainhooks.protocol.control import Answer, TraceRequest
from trainhooks.protocol.events import Trace
from trainhooks.protocol.traced_events import events_path

MIN_SECONDS = 60.0  # that a trace may take to begin, and again to end: it is read in short slices
STEPS_OF_PATIENCE = 5  # each step may take so many times as long as usual
UNKNOWN_SECONDS = 600.0  # the limit where no step's time is known yet: the first one may compile


class NotTraced(Exception):
    """There is no trace. The message is one line that says why."""


class Doubtful(Exception):
    """A person has to agree first, to what `reasons` say."""

    def __init__(self, reasons: list[str]) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = reasons


class Accepted:
    """A trace that has begun in one process of the run."""

    def __init__(self, run: Path, listener: Listener, journal: JournalTail, answer: Answer, seconds: float) -> None:
        self.run = run
        self.rank = listener.rank
        self.number = answer.trace
        self.steps = answer.steps
        self.events_file = events_path(run, listener.producer)
        self._journal = journal
        self._seconds = seconds

    def wait(self, connection: socket.socket) -> Trace:
        """Wait until the process says that the trace is over, or has ended itself, and return what its journal holds.

        Raises:
            NotTraced: it holds no trace.
        """
        if read_line(connection, self._seconds) is None:
            raise NotTraced(f"the trace is not there after {self._seconds:.0f} s; {self.run.name} goes on")
        while lines := self._journal.read():
            for line in lines:
                event = decode(line) if line.startswith(b'{"kind":"trace"') else None
                if isinstance(event, Trace) and event.asked == self.number:
                    return event
        if catalogue.state(self.run)[0] == "running":
            raise NotTraced(f"no whole step of {self.run.name} could be traced; try again")
        raise NotTraced(f"{self.run.name} ended before the trace was there")


@contextlib.contextmanager
def asked(run: Path, request: TraceRequest) -> Iterator[tuple[Accepted, socket.socket]]:
    """Ask the processes of a run for a trace, rank 0 first. Yield once one has begun; wait with `Accepted.wait`.

    Leaving early ends nothing but the waiting.

    Raises:
        UserError: the run is over, or nobody listens.
        Doubtful: it has to be asked for with `anyway`.
        NotTraced: the training refuses it, or no step begins.
    """
    seconds = _patience(run, request.steps)
    answer: Answer | None = None
    for listener in listeners(run):
        with contextlib.ExitStack() as open_now:
            connection = open_now.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            journal = JournalTail(listener.journal, JournalTail(listener.journal).size())
            if not connect(connection, listener.socket, run):
                continue
            answer = _answer(connection, request, run, seconds)
            if answer.status == control.ACCEPTED:
                yield Accepted(run, listener, journal, answer, seconds), connection
                return
        if answer.status != control.IDLE:
            break
    if answer is None:
        raise UserError(why_nobody_listens(run, "asked for a trace"))
    if answer.status == control.DOUBTFUL:
        raise Doubtful(answer.reasons)
    raise NotTraced(f"{run.name} refuses: {'; '.join(answer.reasons) or 'it does not say why'}")


def _patience(run: Path, steps: int) -> float:
    """Return the seconds that a trace of so many steps may take to begin, and again to end.

    Raises:
        UserError: the run is over.
    """
    entry = catalogue.entry(run)
    if entry.state != "running":
        raise UserError(f"{run.name} is not running; only a running training can be traced")
    if not entry.steps_per_second:
        return UNKNOWN_SECONDS
    return MIN_SECONDS + STEPS_OF_PATIENCE * (steps + 2) / entry.steps_per_second


def _answer(connection: socket.socket, request: TraceRequest, run: Path, seconds: float) -> Answer:
    """Send the request, and return the answer once the trace has begun, or will not.

    Raises:
        NotTraced: there is none.
    """
    try:
        connection.sendall(request.line())
        line = read_line(connection, seconds)
    except OSError:
        line = b""
    if line is None:
        raise NotTraced(f"no step of {run.name} began within {seconds:.0f} s; nothing is traced")
    answer = control.read_answer(line) if line else None
    if answer is None:
        raise NotTraced(f"{run.name} gave no answer; it ended, or its hooks are of another version")
    return answer


def ask_and_tell(run: Path, say: Callable[[str], None]) -> None:
    """Ask for a trace of a few steps and wait for it; report what becomes of it, line by line.

    Raises:
        UserError: the run is over, or nobody listens.
        NotTraced: there is no trace.
    """
    try:
        with asked(run, TraceRequest()) as (accepted, connection):
            say(f"Accepted by rank {accepted.rank}")
            trace = accepted.wait(connection)
            say(f"Traced: {plural(trace.steps, 'step', 'steps')} from step {trace.first:,} on")
    except Doubtful as doubts:
        raise NotTraced(f"{doubts}; to trace nevertheless: trainmon trace {run.name} --yes") from None

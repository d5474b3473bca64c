"""Whether the hooks reach the programs of a run, seen by their processes while they run (Linux)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from monitor import hooks_reach
from monitor.sources.polling import attempt
from trainhooks.protocol import rundir

MIN_READINGS = 2  # that see a process alike: between fork and exec it has its parent's command and environment
MAX_CHECKED_PROCESSES = 16  # of a run; the training is among the first
MAX_ENVIRONMENT_BYTES = 1 << 20  # of an environment


class HooksCheck:
    """Look at the processes of a run until one of them reports, or one proves to be without hooks."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._seen: dict[int, tuple[str, int]] = {}  # by process: what it lacks, and in how many readings
        # Only a launched program was meant to get them; others report by hooks of their own.
        self._over = not (rundir.read_json(run / rundir.IDENTITY) or {}).get("launched")

    def check(self, pids: Iterable[int]) -> str | None:
        """Return why the hooks are not loaded, once; None where they are, where it is unknown, and ever after.

        What it says concerns the first Python of the tree: a program may isolate its own children as it likes.

        Args:
            pids: of the run's processes.
        """
        if self._over:
            return None
        if any(self._run.glob("rank-*.jsonl")) or any(self._run.glob("actor-*.jsonl")):
            self._over = True
            return None
        for pid in sorted(pids)[:MAX_CHECKED_PROCESSES]:
            command = _words(pid, "cmdline") or []  # a parent's pid is the lower one, but for a wrap-around
            if not hooks_reach.is_python(command) or hooks_reach.is_trainmon(command):
                continue
            reason = self._reason(pid, command)
            before, times = self._seen.get(pid, ("", 0))
            self._seen = {pid: (reason or "", times + 1 if reason == before else 1)}
            self._over = reason is not None and self._seen[pid][1] >= MIN_READINGS
            return reason if self._over else None
        return None

    def _reason(self, pid: int, command: list[str]) -> str | None:
        rows = _words(pid, "environ")
        if rows is None:  # another user's: nothing is known
            return None
        environment = dict(row.partition("=")[::2] for row in rows)
        return hooks_reach.why_not_loaded(command, environment, str(self._run))


def _words(pid: int, name: str) -> list[str] | None:
    """Return the words of /proc/PID/cmdline or environ; None where they cannot be read."""

    def read() -> bytes:
        with open(f"/proc/{pid}/{name}", "rb") as source:
            return source.read(MAX_ENVIRONMENT_BYTES)

    content = attempt(read)
    return None if content is None else [word.decode("utf-8", "replace") for word in content.split(b"\0") if word]

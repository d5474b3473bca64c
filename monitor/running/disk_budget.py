"""A live run's budget of disk space: the older part of its output and journals is freed, before the disk is full."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from monitor.errors import UserError
from monitor.running import command, inherited, output
from monitor.running.disk_space import PREALLOCATED_BYTES
from monitor.sources import sparse_files
from trainhooks.protocol import rundir

FREE_SHARE = 10  # a run takes at most 1/10 of the space that is free when it first takes LEAST_BUDGET
MOST_BUDGET = 4 << 30  # some 14 million steps
LEAST_BUDGET = 64 << 20
# Bytes left on the disk, below which a run keeps no more than LOW_BUDGET of its own files, and output is freed that is
# not passed on yet: the program's next prints go first. The fastest prints fill it in 120 ms, which a process on a busy
# machine may have to wait for a core.
LOW_FREE = 256 << 20
LOW_BUDGET = 16 << 20
OUTPUT_SHARE = 4  # 1/4 of the budget is for the output, the rest for the journals
OUTPUT_HEAD_BYTES = 1 << 20  # of the output that stay: what the program printed of its arguments
STREAM_BYTES = 32 << 20  # of each stream that are kept twice: the reader of metrics may be as far behind
BEHIND_BYTES = 1 << 20  # before a position that was passed on: its reader compares what it read last
FREED_AT_ONCE = 8 << 20  # bytes: less is not worth a system call
MAX_CHECK_SECONDS = 1.0
LEAST_CHECK_SECONDS = 0.005
FASTEST_PRINTS = 2 << 30  # bytes/s: a Python program prints long lines to a file at 1.2 GB/s
CHECKS_UNTIL_FULL = 4  # at least, at that speed
# Between two compactions; twice as long after each that left too much: nothing can be freed.
COMPACTION_RETRY_SECONDS = 10.0
RENEWED_BYTES = 32 << 20  # of the journals between two renewals of the cached state: half a second of reading
BLOCK = 1 << 12  # whole blocks are freed, so that no line is half zero bytes


class DiskBudget:
    """Keep a live run within its budget."""

    def __init__(
        self, run: Path, note: Callable[[str], None], copied: Callable[[str, bool], int] | None = None
    ) -> None:
        """
        Args:
            note: tells the user.
            copied: returns how much of an output file is no longer needed to pass it on, or to merge it, for its name
                and whether it has to be passed on. None: that is not known, and the streams' own files are not freed.
        """
        self._run = run
        self._note = note
        self._copied = copied
        self._configured = _configured()  # read here: while prints fill the disk there is no time for it
        self._most: int | None = None  # bytes, from the first time that the run takes LEAST_BUDGET
        self._freed_until: dict[str, int] = {}
        self._due = 0.0
        self._compaction: subprocess.Popen[bytes] | None = None
        self._next_compaction = 0.0
        self._pause = COMPACTION_RETRY_SECONDS
        self._told = False
        self._cached = 0  # bytes of the journals when the cache was last renewed

    def step(self) -> float:
        """Check once a second, or more often where the disk could soon be full. Never raises.

        Where a file system cannot free a part of a file, its files stay as they are.

        Returns:
            Seconds until the next check is due.
        """
        now = time.monotonic()
        if now < self._due:
            return self._due - now
        pause = MAX_CHECK_SECONDS
        with contextlib.suppress(OSError):
            free = output.free_bytes(self._run)
            is_low = free < LOW_FREE
            pause = min(MAX_CHECK_SECONDS, free / FASTEST_PRINTS / CHECKS_UNTIL_FULL)
            self._free_streams(BEHIND_BYTES if is_low else STREAM_BYTES, not is_low)
            self._keep_state()
            used = sum(sparse_files.used_bytes(path) for path in self._files())
            most = LOW_BUDGET if is_low else self._allowed(used, free)
            if used > most:
                self._free_console(most // OUTPUT_SHARE, not is_low)
                self._free_journals(most - most // OUTPUT_SHARE, now)
        pause = max(LEAST_CHECK_SECONDS, pause)
        self._due = now + pause
        return pause

    def _files(self) -> list[Path]:
        return [*output.output_files(self._run), *rundir.journals(self._run)]

    def _allowed(self, used: int, free: int) -> int:
        """Return the bytes that the run may take now."""
        if self._most is None:
            if used < LEAST_BUDGET:
                return LEAST_BUDGET
            self._most = self._configured or max(LEAST_BUDGET, min(MOST_BUDGET, (free + used) // FREE_SHARE))
        return self._most

    def _free_streams(self, behind: int, waits: bool) -> None:
        """Free what each stream's own file holds twice: it is in the console file, and was passed on."""
        if self._copied is None:
            return
        for name in output.STREAMS:
            end = min(sparse_files.file_size(self._run / name), self._copied(name, waits))
            self._free(self._run / name, 0, end - behind)

    def _free_console(self, most: int, waits: bool) -> None:
        """Free the middle of the console file, so that its head and its newest lines are left."""
        console = self._run / rundir.CONSOLE
        if sparse_files.used_bytes(console) <= most + PREALLOCATED_BYTES:
            return
        end = console.stat().st_size - most // 2
        if self._copied is not None:
            end = min(end, self._copied(console.name, waits) - BEHIND_BYTES)
        if self._free(console, min(OUTPUT_HEAD_BYTES, most // 4), end):
            self._tell()

    def _free(self, path: Path, begin: int, end: int) -> bool:
        begin, end = begin // BLOCK * BLOCK, end // BLOCK * BLOCK
        before = self._freed_until.get(path.name, begin)
        if end - before < FREED_AT_ONCE:
            return False
        self._freed_until[path.name] = end  # tried once, where the file system cannot
        return sparse_files.free_space(path, begin, end)

    def _keep_state(self) -> None:
        """Renew the cache of the state as the journals grow, so that a reader never has to begin at their start."""
        size = sum(map(sparse_files.file_size, rundir.journals(self._run)))
        if size < self._cached + RENEWED_BYTES or self._compacts():
            return
        self._cached = size
        self._compact(size)

    def _compacts(self) -> bool:
        return self._compaction is not None and self._compaction.poll() is None

    def _free_journals(self, most: int, now: float) -> None:
        if self._compacts():
            return
        journals = sum(map(sparse_files.used_bytes, rundir.journals(self._run)))
        if journals <= most:
            self._pause = COMPACTION_RETRY_SECONDS
        if journals <= most or now < self._next_compaction:
            return
        self._next_compaction = now + self._pause
        self._pause *= 2
        self._compact(most)
        self._tell()

    def _compact(self, most: int) -> None:
        """Start a process that caches the state and frees what the journals take beyond `most` bytes."""
        nothing = inherited.open_nothing()
        self._compaction = subprocess.Popen(
            command.module_command("monitor.runs.compaction", str(self._run.absolute()), str(most)),
            stdin=nothing,
            stdout=nothing,
            cwd="/",
            start_new_session=True,
        )
        os.close(nothing)

    def _tell(self) -> None:
        if not self._told:
            self._told = True
            self._note(
                "older output and single steps are removed from disk while this run goes on, to stay within its budget;"
                " totals keep them; retention.run_gib in config.toml changes the budget"
            )


def _configured() -> int | None:
    """Return the user's budget in bytes; None where there is none, or it is invalid, which is reported elsewhere."""
    from monitor.runs import retention  # only a process that records a run needs it

    try:
        return retention.limits().run
    except UserError:
        return None

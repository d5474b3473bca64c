"""Follow a run: read its sources, fold, diagnose, and return frozen views. Every reader uses this module."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from monitor import settings, units
from monitor.diagnosis.answer import answer
from monitor.diagnosis.diagnose import diagnose
from monitor.diagnosis.finding_log import FindingLog
from monitor.diagnosis.rule import Evidence
from monitor.diagnosis.suggestions import suggest
from monitor.diagnosis.verdict import verdict
from monitor.errors import UserError
from monitor.memory_tuning import collection_paused
from monitor.model.comparison.changes import find_changes
from monitor.model.comparison.compare import Comparison, Side, compare_runs
from monitor.model.comparison.last_run import standing
from monitor.model.comparison.loop_pace import loop_time
from monitor.model.fold import fold
from monitor.model.group import group_of, member_of
from monitor.model.member_states import member_rows
from monitor.model.report import Alert, FarHost, Outcome, Report
from monitor.model.signals import signals
from monitor.model.standing import may_stall
from monitor.model.state import Ending, RunState
from monitor.model.steps.series import STEP
from monitor.model.steps.speed_classes import Bounds, counted
from monitor.model.summary import make_report, open_work, update_report
from monitor.model.view import FindingChange, PreviousRun, View, curve_arguments, make_details
from monitor.model.wall_time import RunContext, training_processes
from monitor.remote.copies import Far, far_of, fars_of, parts_of
from monitor.remote.joined import newest, refresh
from monitor.runs import catalogue, figures_cache, jobs, state_cache
from monitor.runs.finding_history import keep_changes, kept_changes
from monitor.runs.kept_answers import keep_answer
from monitor.runs.members import Members
from monitor.runs.run_files import ending, identity, stopped_by
from monitor.sources import streams
from monitor.sources.console_lines import Console, LineTimestamps
from monitor.sources.run_directory import POLL, RunDirectory
from monitor.sources.starting_imports import OpenImports, starting_imports, starting_looks
from monitor.start_looks import StartLook
from monitor.step_blocks import StepBlock
from trainhooks.protocol import process_identity, rundir
from trainhooks.protocol.events import Event, Exit, Frames, Gpu, GpuTime, Host, Pulse

LIVENESS_SECONDS = 1.0  # seconds between two checks whether the training is alive
FOLD_SECONDS = 0.02  # seconds of folding before other threads get the interpreter, so that the screen stays responsive
# Seconds from one view to the next at least: a step's end shows within 0.2 s, at a small CPU cost.
MIN_VIEW_SECONDS = 0.15
LOADING_FRAME = 0.45  # the same while a long history is read: fewer views leave it more time
# Seconds for which findings, tables, curves and details are reused: most of a view's cost. Panels draw no faster.
COMPARE_SECONDS = 5.0  # from one comparison with the last run to the next: a pace is known by minutes
WHOLE_FRAME = 1.0
# Seconds of the run's own time from one view to the next at most: clocks on the screen show seconds.
MAX_VIEW_SECONDS = 1.0
RESTING_FRAME = 5.0  # seconds between two views of a run that ended some time ago, and how long ago that is
RESTING_POLL = 0.5  # seconds between two readings of such a run
FIRST_PAINT = 0.5  # seconds in which a long history is not read, so that the first screen appears quickly
ASK_SECONDS = 30.0  # between two questions to a scheduler, which answers all users of a cluster
AWAITED = "to be started again by Slurm"
SEVERAL_TRAININGS = "several-trainings"  # the code of the alert that says so
PERIODIC = (Pulse, Frames, Gpu, Host, GpuTime)  # frequent events, shown at the next tick


class Run:
    """One run, read from its sources: `advance` folds new events, `view` returns the current view."""

    def __init__(self, path: Path, chosen: int | None = None, rank: int | None = None, with_job: bool = False) -> None:
        """
        Args:
            chosen: the place of the training to show, where several ran under the run's command.
            rank: the one whose figures are shown; None: the lowest.
            with_job: whether to go on with what its job becomes: more tasks, or another start.

        Raises:
            UserError: there is no such training.
        """
        self.path = path
        self._job = jobs.Gathering(path) if with_job and chosen is None else None
        self._can_grow = self._job is not None and jobs.whole(path) == path
        self.is_awaited = False  # whether it has ended, and its job is to be started again
        self._asked_at = 0.0  # when its scheduler was asked last
        self._chosen, self._rank = chosen, rank
        self._members = Members(path)
        self._open_source()
        if chosen is not None and chosen >= max(1, len(self.source.streams)):
            self.close()
            raise UserError(f"{path.name}: trainings are numbered from 1 to {max(1, len(self.source.streams))}")
        self._console = Console(path / rundir.CONSOLE)
        self._arrivals = LineTimestamps()
        self._identity: dict[str, Any] = {}
        self._alive = False
        self._left: tuple[int, ...] = ()  # processes that live on after the command's end
        self._stopped: str | None = None  # by `trainmon stop`, the dashboard or --stop-on
        self._fully_read = False  # whether everything that the run wrote before its end has been read
        self._far: Far | None = None  # what its host said, of the copy of a run there
        self._starting: OpenImports = ()
        self._looks: tuple[StartLook, ...] = ()
        self._checked_at = self._looked_at = -LIVENESS_SECONDS
        self._bounds = _bounds()
        # A rank of its own has findings of its own, for as long as somebody looks at it.
        self._log = FindingLog(kept_changes(path) if rank is None and chosen is None else [])
        self._open: dict[str, tuple[str | None, int]] = {}  # producer -> open phase, number of open spans
        self.has_news = False  # whether an event was folded that a screen should show at once
        self._measured = False
        self._last_change = time.monotonic()  # when the last event or change of state was seen
        self._typical: float | None = None  # seconds that this command typically takes to its first step
        self._typical_known = False  # whether that was looked up; it may then still be unknown
        self.before: Side | None = None  # the run to compare with, once one was found
        self._compare_at = 0.0  # when the two are compared next
        self._previous: PreviousRun | None = None
        self._whole: View | None = None  # the last view with findings, curves and details of its own
        if self._job is not None:
            self._job.start()

    def _open_source(self) -> None:
        """Read from the begin, or from where an earlier reader left its state."""
        self.source = RunDirectory(self.path, self._chosen, self._rank)
        self.source.find_journals()
        self._parts = parts_of(self.path)
        self._newest = len(newest(self._parts))
        self._exits: dict[str, Exit] = {}  # producer -> its command's end, of a job on several hosts
        # A kept state is of all journals that there were: where several trainings ran, of more than one.
        is_kept = self._rank is None and len(self.source.streams) < 2
        self.state = (state_cache.recall_state(self.source) if is_kept else None) or RunState(chosen=self._rank)
        self._kept = self.source.bytes_read()

    def advance(self, seconds: float = FOLD_SECONDS) -> bool:
        """Fold new events for about `seconds`. Return whether more can be read now."""
        until = time.monotonic() + seconds
        if self.source.is_stale or self._has_grown():  # another training leads, or the job has another part
            self.source.close()
            self._open_source()
            self._whole, self._measured, self.before, self._fully_read = None, False, None, False
            self._checked_at = -LIVENESS_SECONDS
        while batch := self._next_batch():
            self._last_change = time.monotonic()
            self.has_news = self.has_news or any(map(self._is_news, batch))
            if time.monotonic() > until:
                return True
        is_kept = self._rank is None and len(self.source.streams) < 2
        if is_kept and self.source.bytes_read() - self._kept >= state_cache.MIN_JOURNAL_BYTES:
            self._kept = self.source.bytes_read()
            state_cache.keep_state(self.source, self.state)
        return False

    def _has_grown(self) -> bool:
        """Return whether the run is made of other parts now: more tasks of its job, or another start."""
        now = time.monotonic()
        if now - self._looked_at < LIVENESS_SECONDS:
            return False
        self._looked_at = now
        if self._can_grow and (whole := jobs.whole(self.path)) != self.path:
            self._can_grow, self.path = False, whole
            self._members.close()
            self._members = Members(whole)
        elif parts_of(self.path) in ([], self._parts):
            return False
        self._console, self._arrivals = Console(self.path / rundir.CONSOLE), LineTimestamps()
        return True

    def _next_batch(self) -> list[Event | StepBlock]:
        with collection_paused():
            batch = self.source.poll_blocks()
            for event in batch:
                self._take_exit(event) if self._parts and isinstance(event, Exit) else fold(self.state, event)
        return batch

    def _take_exit(self, event: Exit) -> None:
        """Take the end of a command as the job's once the last one has ended; it failed if one did."""
        self._exits[event.producer] = event
        if len(self._exits) >= self._newest:
            fold(self.state, max(self._exits.values(), key=lambda each: (each.exit_code != 0, each.t)))

    def _is_news(self, event: Event | StepBlock) -> bool:
        """Return whether a screen should show the event at once: not periodic, or a pulse whose open work changed."""
        if not isinstance(event, Pulse):
            return not isinstance(event, PERIODIC)
        before, self._open[event.producer] = self._open.get(event.producer), (event.phase, len(event.spans))
        return before != self._open[event.producer]

    def check(self) -> None:
        """Read what is not in the events: identity, liveness, exit."""
        now = time.monotonic()
        if now - self._checked_at < LIVENESS_SECONDS and not (self._alive and self.state.ending is not None):
            return
        self._checked_at = now
        self._identity = identity(self.path)
        alive = catalogue.lives(self.path) if self.state.ending is None else catalogue.ranks_live(self.path)
        self._far = far_of(self.path)
        if alive != self._alive:
            self._alive, self._fully_read, self._last_change = alive, False, now
        self._stopped = None if alive else stopped_by(self.path)
        has_pids = self._is_local() and not process_identity.has_foreign_pids(self._identity)
        is_silent = self._alive and has_pids and not (self.state.hooked or self.state.main.stepped)
        has_left = alive and self.state.ending is not None
        self._left = tuple(process.pid for process in catalogue.processes(self.path)) if has_left else ()
        self._starting = starting_imports(self.path) if is_silent else ()
        self._looks = () if self.state.main.stepped else starting_looks(self.path)
        if not self._alive and self.state.ending is None:
            if self._parts:
                with contextlib.suppress(OSError):  # a full disk
                    refresh(self.path)
            ended = ending(self.path)
            if ended is not None:
                known = Ending(ended.get("exit_code"), ended.get("signal"), ended.get("ended_monotonic"))
                self.state.ending = self.state.shown.ending = known

    def _read_to_end(self) -> None:
        """Read what the run wrote before its end, so that a view of an ended run has the last step."""
        if self._alive or self._fully_read or self.source.share_read() is not None:
            return
        self._fully_read = True
        self.source.rescan()
        while self.advance():
            pass

    def _now(self) -> float:
        """Return the time on the run's own clock; its last event's where it ended or is on another machine."""
        last = self.state.last_event
        if last is not None and self._alive and self._far is not None:
            return max(last, self._far.now() or last)
        if last is None or (self._alive and self._is_local()):
            return time.monotonic()
        return last

    def _unheard(self, hosts: list[FarHost]) -> float | None:
        """Return the last sign of life of the rank that is shown, where its host is silent; None where it speaks.

        What other hosts tell meanwhile says nothing of it. Nor does it stand, where it has ended before a silent one.
        """
        silent = {host.hostname for host in hosts if host.silent_seconds is not None}
        main = self.state.main
        own = [row for row in training_processes(self.state) if row.rank == main.rank]
        heard = [row.last_heard for row in own if row.host in silent or (silent and main.bye is not None)]
        return max(heard, default=None)

    def _is_local(self) -> bool:
        """Return whether the run's clock is that of this process: it is on this machine, in the same time namespace."""
        known = self._identity
        return (
            self._far is None
            and known.get("boot_id") in (None, "", process_identity.boot_id())
            and (known.get("time_namespace") in (None, process_identity.time_namespace()))
        )

    def rests(self) -> bool:
        """Return whether the run ended and has not changed for `RESTING_FRAME`: its view stays the same."""
        return not self._alive and time.monotonic() - self._last_change > RESTING_FRAME

    def view(self, whole: bool = True) -> View:
        """Return the current view.

        Args:
            whole: if false, the findings, tables, curves and details of a running run are those of its last whole view.
        """
        self.has_news = False
        self.check()
        self._read_to_end()
        console, seen = self._console.poll()
        hosts = self._hosts()
        unheard = self._unheard(hosts)
        context = RunContext(
            self._identity,
            self._now() if unheard is None else unheard,
            self._alive,
            self.source.missing,
            self._starting,
            self._stopped,
            self._looks,
            left=self._left,
            several=len(self.source.streams) > 1,
            console=console,
            is_unheard=unheard is not None,
        )
        times = self._arrivals.times_of(len(console), seen, time.monotonic())
        current = build_view(self.state, context, self.before, None if whole else self._whole)
        if whole or self._whole is None:
            current.report.group = self._members.group(self.source, self.state, current.report, context)
        self._whole = current if current.report.outcome.state == "running" else None
        self._tell_trainings(current)
        current.report.run.hosts = hosts
        self._ask_for_restart(current.report.outcome)
        if self._bounds is not None:
            steps = self.state.shown.main.step_seconds.settled().quantiles
            current.report.speed_classes = counted(steps.bins, steps.zeros, STEP, self._bounds)
        loading = self.source.share_read()
        return replace(
            current,
            loading=loading,
            label=self._label(current.label, hosts),
            console=console,
            console_lines=seen,
            console_starts=self._console.starts(),
            console_file=self.path / rundir.CONSOLE,
            console_times=times,
            typical_startup=None if current.report.progress.steps_done else self._typical_startup(),
            finding_changes=self._finding_changes(current, loading is not None),
            previous_run=self._previous_run(current),
        )

    def _ask_for_restart(self, outcome: Outcome) -> None:
        """Ask the scheduler of a run that has ended whether it starts it again: at its end, and while it is to."""
        now = time.monotonic()
        if self._job is None or outcome.state == "running":
            self.is_awaited, self._asked_at = False, 0.0
        elif not self._asked_at or (self.is_awaited and now - self._asked_at > ASK_SECONDS):
            self.is_awaited, self._asked_at = jobs.is_awaited(self.path), now

    def _previous_run(self, view: View) -> PreviousRun | None:
        """Return how the run stands against the last comparable one, compared anew now and then, and at its end."""
        if self.before is None:
            return None
        now = time.monotonic()
        if now >= self._compare_at or view.report.outcome.state != "running":
            self._compare_at = now + COMPARE_SECONDS
            self._previous = _earlier(self.before, view)
        return self._previous

    def _label(self, label: str | None, hosts: list[FarHost]) -> str | None:
        """Return a view's label, before it which hosts of the run are silent, or that it is to be started again."""
        if self.is_awaited:
            return AWAITED if label is None else f"{AWAITED}; {label}"
        silent = [host for host in hosts if host.silent_seconds is not None]
        if not silent:
            return label
        longest = max(host.silent_seconds or 0.0 for host in silent)
        named = silent[0].name if len(silent) == 1 else f"{len(silent)} hosts"
        told = f"{named} silent for {units.age(longest)}"
        return told if label is None else f"{told}; {label}"

    def _hosts(self) -> list[FarHost]:
        """Return the hosts that the run is on, where it is watched from afar."""
        if self._far is None:
            return []
        found: list[FarHost] = []
        for place, far in zip(parts_of(self.path) or [self.path], fars_of(self.path), strict=False):
            if any(row.name == far.host for row in found):  # another part of the same host
                continue
            row = FarHost(far.host, identity(place).get("host"), silent_seconds=far.silent_seconds())
            if far.clock is not None and self._far.clock is not None:
                row.clock = far.clock - self._far.clock
                row.uncertainty = (far.uncertainty or 0.0) + (self._far.uncertainty or 0.0) if found else 0.0
            found.append(row)
        return found

    def _tell_trainings(self, view: View) -> None:
        """Say in the report and on the screen that several trainings ran, of which this is one."""
        line = streams.streams_line(self.source.streams, self.source.shown)
        view.report.run.trainings = line
        if line is not None:
            since = self.source.streams[1].first.hello.wall or None
            others = [
                row for row in view.report.alerts if row.code != SEVERAL_TRAININGS
            ]  # an earlier view's list may be reused
            view.report.alerts = [*others, Alert(since, SEVERAL_TRAININGS, line)]

    def _finding_changes(self, view: View, loading: bool) -> tuple[FindingChange, ...]:
        """Return the findings that changed since the last view; add all changes so far to the report's alerts."""
        is_last = view.report.outcome.state != "running"
        changed = () if loading else tuple(self._log.update(view.report.findings, time.monotonic(), is_last))
        if self._rank is None and self._chosen is None:
            keep_changes(self.path, (change for change in changed if change.kind != "present"))
        since = time.time() - time.monotonic()
        rows = [Alert(change.t + since, change.finding.code, str(change)) for change in self._log.turns]
        if rows:
            view.report.alerts = sorted([*view.report.alerts, *rows], key=lambda row: row.time or 0.0)
        return changed

    def _typical_startup(self) -> float | None:
        """Return the typical start-up of this command in seconds, read once from files of a few kilobytes."""
        if not self._typical_known:
            with contextlib.suppress(OSError):  # the runs are being removed, or their disk is gone
                self._typical = figures_cache.typical_startup(self.path)
                self._typical_known = True
        return self._typical

    def measure(self, view: View) -> None:
        """Find the run to compare with after `MIN_BASELINE_STEPS`, in a thread because it may have to be read."""
        if (
            self._measured
            or self._rank is not None  # earlier runs are known by their lowest rank
            or view.loading is not None
            or view.report.progress.steps_done < figures_cache.MIN_BASELINE_STEPS
        ):
            return
        self._measured = True

        def find() -> None:
            with contextlib.suppress(OSError):  # the earlier run is being removed, or its disk is gone
                self.before = figures_cache.baseline_run(self.path, view.report, _figures)
                self._last_change = time.monotonic()

        threading.Thread(target=find, name="baseline", daemon=True).start()

    def close(self) -> None:
        self.source.close()
        self._members.close()
        if self._job is not None:
            self._job.stop()


def _bounds() -> Bounds | None:
    try:
        return settings.bounds()
    except UserError:  # the command line reported it; follow the run without bounds
        return None


def build_view(state: RunState, context: RunContext, before: Side | None = None, last: View | None = None) -> View:
    """Return the view of a state with its report and findings: all of a view that comes from the events.

    Args:
        last: a recent view; its findings, tables, curves and details are kept while the run goes on.
    """
    whole, state = state, state.shown
    if last is not None:
        known = update_report(last.report, state, context)
        if known.outcome.state == "running":
            _doubt_time_left(known, state)
            return replace(last, report=known, open=open_work(state, context, known.outcome), notes=list(state.notes))
    known = make_report(state, context)
    working = open_work(state, context, known.outcome)
    evidence = Evidence(state, known, working, before)
    if whole.ended:
        known.group = group_of([*member_rows(whole), member_of(known, state)], len(whole.ended), known.run.command)
    known.findings = diagnose(evidence)
    _doubt_time_left(known, state)
    known.to_try = suggest(evidence, known.findings)
    first = verdict(known.findings, evidence)
    known.verdict = first.title
    curves = curve_arguments(state)
    return View(
        report=known,
        verdict=first,
        open=working,
        **curves,
        signals=signals(known.metrics, curves["metrics"]),
        loop=loop_time(state, known),
        notes=list(state.notes),
        label="SIMULATED GPU" if any(gpu.simulated for gpu in known.gpus) else None,
        details=make_details(state, known.outcome.state != "running"),
    )


def _doubt_time_left(known: Report, state: RunState) -> None:
    """Leave out the time left, and what it costs, while a run stands still: nobody knows when it goes on."""
    if any(finding.code == "stalled" for finding in known.findings) or may_stall(state):
        progress = known.progress
        progress.eta_seconds = progress.eta_low = progress.eta_high = progress.cost_total = None


def load(path: Path, measured: bool = True, chosen: int | None = None, rank: int | None = None) -> View:
    """Return the view of a run, with its journals read once to their current ends.

    Args:
        measured: also compare with the last comparable run of the same command.
        chosen: the place of the training to show, where several ran under the command.
        rank: the one whose figures are shown; None: the lowest, which also is compared.

    Raises:
        UserError: there is no such training.
    """
    run = Run(path, chosen, rank)
    try:
        while run.advance(1.0):
            pass
        view = run.view()
        if chosen is None and rank is None:
            figures_cache.keep_figures(path, _side(view))
            if view.report.outcome.state != "running":
                said = answer(view.report, view.verdict)
                keep_answer(path, said.title, said.fix)
        if measured and rank is None and view.report.progress.steps_done >= figures_cache.MIN_BASELINE_STEPS:
            run.before = figures_cache.baseline_run(path, view.report, _figures)
            view = run.view() if run.before is not None else view
        return view
    finally:
        run.close()


def views_while_running(path: Path, seconds: float) -> Iterator[View]:
    """Yield a view of a run every so many seconds, until it has ended."""
    followed = Run(path)
    due = 0.0
    try:
        while True:
            more = followed.advance()
            if not more and time.monotonic() >= due:
                due = time.monotonic() + seconds
                view = followed.view()
                if view.report.outcome.state != "running":
                    return
                yield view
            if not more:
                followed.source.wait(0.5)
    finally:
        followed.close()


def compared(before: View, after: View) -> Comparison:
    """Return how a run differs from another one, held against what repeats of their commands differed by."""
    return compare_runs(*figures_cache.with_repeats(_side(before), _side(after), _figures))


def _earlier(before: Side, view: View) -> PreviousRun:
    run, what_changed = before.report.run, find_changes(before.report, view.report)
    rows = tuple((change.name, change.before, change.after) for change in what_changed)
    return PreviousRun(run.id, run.name, rows, run.started, standing(before, _side(view)))


def _figures(path: Path) -> Side:
    return _side(load(path, measured=False))


def _side(view: View) -> Side:
    return Side(view.report, view.loop)


def _until_next_second(known: Report) -> float:
    """Return the seconds until the elapsed time shows another second; `MAX_VIEW_SECONDS` where it does not grow."""
    elapsed = known.progress.elapsed_seconds
    return (
        MAX_VIEW_SECONDS
        if elapsed is None or known.outcome.state != "running"
        else MAX_VIEW_SECONDS - elapsed % MAX_VIEW_SECONDS
    )


class Follower:
    """Follow a run in a thread: pass on a frozen view at once when there is news, else every second."""

    def __init__(
        self, path: Path, frame: float = MIN_VIEW_SECONDS, rank: int | None = None, with_job: bool = True
    ) -> None:
        """
        Args:
            frame: seconds from one view to the next at least.
            rank: the one to show first; None: the lowest.
            with_job: whether to go on with what its job becomes: more tasks, or another start.
        """
        self._path = path
        self._with_job = with_job
        self._frame = frame
        self._rank = rank
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, on_view: Callable[[View], None]) -> None:
        self._thread = threading.Thread(target=self._run, args=(on_view,), name="follower", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(2.0)

    def show_rank(self, rank: int | None) -> None:
        """Pass on views of another rank from now on; None: of the lowest. Any thread may call this."""
        self._rank = rank

    def _run(self, on_view: Callable[[View], None]) -> None:
        runs: dict[int | None, Run] = {}  # the one shown, and that of the lowest rank, so that the way back is short
        try:
            while not self._stop.is_set():
                rank = self._rank
                for other in [shown for shown in runs if shown not in (None, rank)]:
                    runs.pop(other).close()
                if rank not in runs:
                    runs[rank] = Run(self._path, rank=rank, with_job=self._with_job)
                self._follow(runs[rank], rank, on_view)
        finally:
            for run in runs.values():
                run.close()

    def _follow(self, run: Run, rank: int | None, on_view: Callable[[View], None]) -> None:
        """Pass on the views of a run until another rank is wanted."""
        first = True
        # When a view may come, when one has to, when a whole one has to.
        next_frame = next_tick = next_whole = 0.0
        while not self._stop.is_set() and self._rank == rank:
            more = run.advance()
            began = time.monotonic()
            if began >= (next_frame if run.has_news else next_tick):
                whole = began >= next_whole
                view = run.view(whole)
                run.measure(view)
                on_view(view)
                ended = time.monotonic()
                next_whole = ended + WHOLE_FRAME if whole else next_whole
                frame = LOADING_FRAME if more else self._frame
                next_frame = max(began + frame, ended + frame / 2)  # after a slow view, too, leave time for reading
                next_tick = ended + RESTING_FRAME if run.rests() else began + _until_next_second(view.report)
            if more:
                self._stop.wait(FIRST_PAINT if first else 0)
            else:
                self._sleep(run, next_frame, next_tick)
            first = False

    def _sleep(self, run: Run, next_frame: float, next_tick: float) -> None:
        """Sleep until there is something to do, or for a bounded time, so that `stop` returns soon."""
        now = time.monotonic()
        if run.has_news:
            self._stop.wait(max(0.0, next_frame - now))
        elif run.rests():
            self._stop.wait(RESTING_POLL)
        elif run.source.wait(min(POLL, max(0.0, next_tick - now))):
            self._stop.wait(max(0.0, next_frame - time.monotonic()))  # what comes until then is read at once

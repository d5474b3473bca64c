"""Ends of runs: an error, a fatal signal, memory that ran out. Pure."""

from __future__ import annotations

import re
from signal import Signals

from monitor.console.printed_error import NOT_STARTED, RANK_ENDED
from monitor.diagnosis import hardware, oom_message
from monitor.diagnosis.rule import Evidence, Family, rule
from monitor.diagnosis.rules.memory import gpu_advice, host_advice, host_readings
from monitor.model.report import Finding, Outcome
from monitor.model.standing import INTERRUPTED
from monitor.model.wall_time import STOPPED_BY_RULE, STOPPED_BY_YOU, TIME_LIMIT
from monitor.units import duration, number, plural, signal_name, size, size_of
from trainhooks.protocol.facts import Held

MIN_KILLED_SHARE = 0.90  # of host memory at the last reading before a SIGKILL: the last second may take the rest
MIN_SHARED_MEMORY_SHARE = 0.90  # of /dev/shm, likewise before a SIGBUS
MAX_ERROR_LENGTH = 300  # characters
MAX_TYPE_LENGTH = 60
LAST_READINGS = 3  # of the host: a reader of the last one may have come too late
SHELL_SIGNAL = 128  # a shell's exit code for a program that a signal ended is this plus its number

# Signals that a fault in native code raises; others are sent: by a scheduler, a person, the kernel's OOM killer.
FAULTS = frozenset((Signals.SIGSEGV, Signals.SIGBUS, Signals.SIGABRT, Signals.SIGFPE, Signals.SIGILL, Signals.SIGSYS))

_OUT_OF_MEMORY = re.compile(r"out of memory|OutOfMemoryError|^MemoryError|can't allocate memory", re.IGNORECASE)
_OF_THE_HOST = re.compile(r"^MemoryError|can't allocate memory|DefaultCPUAllocator|^OSError|\[Errno 12\]")
_WORKER_KILLED = re.compile(
    r"DataLoader worker \(pid\(?s?\)?[^)]*\) (?:is killed by signal: ([A-Za-z ]+)|exited unexp)"
)
_CUDA = re.compile(r"CUDA error|device-side assert|CUBLAS_STATUS|CUDNN_STATUS|cuDNN error", re.IGNORECASE)
_OTHER_RANK = re.compile(
    r"NCCL|Connection (?:closed|reset) by peer|ProcessGroup|\bgloo\b|Socket Timeout|collective operation", re.IGNORECASE
)


# Before all others: it ended the run, and memory that only might run out has a finding of its own.
@rule("out-of-memory", Family.PROGRESS, priority=0, suppresses=("oom-risk", "crashed", "nothing-reports"))
def out_of_memory(evidence: Evidence) -> Finding | None:
    """Find a run that ended because memory ran out, by its error or by the kernel's OOM killer."""
    outcome = evidence.report.outcome
    if not _ended_badly(outcome):
        return None
    if outcome.error and _OUT_OF_MEMORY.search(outcome.error):
        return _memory_error(evidence, outcome.error)
    return _kernel_kill(evidence)


def _memory_error(evidence: Evidence, error: str) -> Finding:
    outcome, on_host = evidence.report.outcome, bool(_OF_THE_HOST.search(error))
    found, held = oom_message.read(error), _held(evidence)
    said = oom_message.lines(found, held)
    lines = [*said, error[:MAX_TYPE_LENGTH]] if found.total is not None else [error[:MAX_ERROR_LENGTH], *said]
    memory = None if on_host or found.allocated is not None else hardware.gpu_memory(evidence)
    lines += [f"peak GPU memory {size_of(*memory)}, as far as known"] if memory is not None else []
    lines += [*(_host_memory(evidence) if on_host else ()), *_last_step(evidence)]
    where = f" at {outcome.place}" if outcome.place else ""
    return Finding(
        code="out-of-memory",
        severity="critical",
        title=f"Out of {'host memory' if on_host else 'GPU memory'}: it ended the run{where}",
        evidence=lines,
        advice=_host_limit_advice(evidence, found.asked)
        if on_host
        else oom_message.advice(found, held) or gpu_advice(evidence),
    )


def _host_limit_advice(evidence: Evidence, asked: int | None) -> str:
    """Return what helps where the host had no memory, or had it and a limit of the process refused it."""
    readings = host_readings(evidence.state.host[-LAST_READINGS:])
    free = min((limit - used for used, limit in readings), default=0)
    if not asked or free < asked:
        return host_advice(evidence)
    return (
        f"{size(free)} were free: a limit of the process refused it (ulimit -v, a job's limit of virtual memory), or"
        " vm.overcommit_memory=2. Raise that; less memory in use helps only below it."
    )


def _held(evidence: Evidence) -> Held:
    """Return what a process keeps on its GPU; unknown where one uses several, as the error is of one of them."""
    several = any(len(producer.devices) > 1 for producer in evidence.state.producers.values())
    return Held() if several else evidence.facts.held


def _kernel_kill(evidence: Evidence) -> Finding | None:
    """Find processes that the kernel killed: by its own count, or by a SIGKILL while memory was nearly full."""
    outcome, ending = evidence.report.outcome, evidence.state.ending
    kills = ending.oom_kills if ending is not None else None
    readings = host_readings(evidence.state.host[-LAST_READINGS:])
    is_full = bool(readings) and any(used >= MIN_KILLED_SHARE * limit for used, limit in readings)
    by_kill = f"{RANK_ENDED}{signal_name(Signals.SIGKILL)}"
    killed = _fatal_signal(outcome) == Signals.SIGKILL or _killed_worker(outcome) == "Killed" or _has_vanished(evidence)
    killed = killed or (outcome.error or "").startswith(by_kill)
    if not killed or not (kills or (is_full and kills is None and _fatal_signal(outcome) == Signals.SIGKILL)):
        return None
    lines = [f"{plural(kills, 'process', 'processes')} killed, by the count of its control group"] if kills else []
    lines += [outcome.error[:MAX_ERROR_LENGTH]] if outcome.error else []
    probably = "" if kills else "probably "
    return Finding(
        code="out-of-memory",
        severity="critical",
        title=f"Out of host memory: {probably}killed by the kernel's OOM killer",
        evidence=[*lines, *_host_memory(evidence), *_last_step(evidence)],
        advice=host_advice(evidence),
    )


# Before all others, likewise.
@rule("crashed", Family.PROGRESS, priority=0, suppresses=("nothing-reports",))
def crashed(evidence: Evidence) -> Finding | None:
    """Find a run that ended by an exception or a fatal signal, and name the line."""
    outcome = evidence.report.outcome
    if not _ended_badly(outcome):
        return None
    if outcome.error:
        return _exception(evidence, outcome.error)
    fatal = _fatal_signal(outcome)
    if fatal in FAULTS:
        return _fault(evidence, fatal)
    if fatal == Signals.SIGKILL:
        return _sigkill(evidence)
    return _vanished(evidence) if _has_vanished(evidence) else None


RANK_ADVICE = (
    "See what this rank printed last; python -X faulthandler names its Python line. The errors of other ranks follow"
    " from it."
)


START_ADVICE = (
    "Check the command: the file's name, the directory that it is started in, and which Python it is (a package is"
    " found by the one that it is installed in)."
)


def _exception(evidence: Evidence, error: str) -> Finding:
    """Report an error, by the hooks or as the program printed it."""
    outcome = evidence.report.outcome
    if error.startswith(RANK_ENDED):
        return _crash_finding(f"Crashed: {error[:MAX_TYPE_LENGTH]}", [], evidence, RANK_ADVICE)
    if error.startswith(NOT_STARTED):
        why = error.removeprefix(NOT_STARTED)
        return _crash_finding(NOT_STARTED.rstrip(": "), [why[:MAX_ERROR_LENGTH]], evidence, START_ADVICE)
    kind, _, message = error.partition(":")
    kind = kind.rpartition(".")[2][:MAX_TYPE_LENGTH]
    where = f" at {outcome.place}" if outcome.place else f":{message[:MAX_TYPE_LENGTH]}" if message.strip() else ""
    if _killed_worker(outcome) is not None:
        kind, where = "a DataLoader worker was killed", ""
    return _crash_finding(f"Crashed: {kind}{where}", [error[:MAX_ERROR_LENGTH]], evidence, _advice(evidence, error))


def _advice(evidence: Evidence, error: str) -> str:
    worker = _WORKER_KILLED.search(error)
    if worker is not None:
        if (worker[1] or "").startswith("Bus"):
            return _shared_memory_advice(evidence)
        return (
            "Run with num_workers=0 to see the worker's own error. Workers die of native code, of a lack of memory"
            " (dmesg names what the kernel killed) or of a full /dev/shm."
        )
    if _CUDA.search(error):
        return (
            "The GPU reports errors late: the line may be after the cause. Run once with CUDA_LAUNCH_BLOCKING=1, which"
            " names the right one, and check indices against sizes (labels, embeddings)."
        )
    if _OTHER_RANK.search(error):
        return "Look at the other ranks first: one that ended, or waits elsewhere, ends the collectives of all others."
    return "See the whole traceback at the end of the program's output."


def _fault(evidence: Evidence, fatal: int) -> Finding:
    name = signal_name(fatal)
    if fatal == Signals.SIGBUS:
        return _crash_finding(f"Crashed: {name} in native code", [], evidence, _shared_memory_advice(evidence))
    advice = (
        "Run with python -X faulthandler to see the Python line; typical causes are an extension built for another"
        " version, an assertion or exception in C++ (its text is in the output), a collective that timed out."
    )
    return _crash_finding(f"Crashed: {name} in native code", [], evidence, advice)


def _shared_memory_advice(evidence: Evidence) -> str:
    return (
        "A bus error is most often a full /dev/shm, where workers leave their batches: give the container more"
        f" (docker --shm-size, --ipc=host), or use fewer workers{_workers_now(evidence)}."
    )


def _workers_now(evidence: Evidence) -> str:
    return evidence.setting_now("dataloader_num_workers", "num_workers")


def _sigkill(evidence: Evidence) -> Finding:
    """Report a SIGKILL whose sender is unknown: it is what a person does, too."""
    ending = evidence.state.ending
    lines = ["the kernel's OOM killer was not it, by its count"] if ending is not None and ending.oom_kills == 0 else []
    finding = _crash_finding(
        "Killed by SIGKILL; sender unknown",
        [*lines, *_host_memory(evidence)],
        evidence,
        "It is sent by a scheduler at a limit of time or memory, by the OOM killer (see dmesg), or by a person.",
    )
    finding.severity = "info"
    return finding


def _vanished(evidence: Evidence) -> Finding:
    """Report training processes that vanished under a launcher that then failed."""
    gone = evidence.report.dropped.broken_off
    return _crash_finding(
        f"Crashed: {plural(gone, 'training process', 'training processes')} ended without an exit",
        [f"exit code {evidence.report.outcome.exit_code} of the command"],
        evidence,
        "See the end of the program's output: a signal, an abort in native code (a collective that timed out), or a"
        " launcher that stopped the other ranks.",
    )


def _crash_finding(title: str, lines: list[str], evidence: Evidence, advice: str) -> Finding:
    kills = evidence.state.ending.oom_kills if evidence.state.ending is not None else None
    if kills:
        lines.append(f"meanwhile the kernel's OOM killer ended {plural(kills, 'process', 'processes')} beside it")
    lines += _shared_memory(evidence)
    return Finding(
        code="crashed",
        severity="critical",
        title=title,
        evidence=[*lines, *_last_step(evidence)],
        advice=advice,
    )


# How it ended.


def _ended_badly(outcome: Outcome) -> bool:
    """Return whether it failed or was killed, and not by the person in front of it."""
    error = outcome.error or ""
    if outcome.state not in ("failed", "killed") or error in (STOPPED_BY_YOU, TIME_LIMIT):
        return False
    return not error.startswith(STOPPED_BY_RULE) and error.partition(":")[0] not in (INTERRUPTED, SystemExit.__name__)


def _fatal_signal(outcome: Outcome) -> int | None:
    """Return the signal that ended the program, also as a shell reports it; None where it exited."""
    if outcome.signal is not None:
        return outcome.signal
    code = (outcome.exit_code or 0) - SHELL_SIGNAL
    return code if outcome.error is None and (code in FAULTS or code == Signals.SIGKILL) else None


def _killed_worker(outcome: Outcome) -> str | None:
    """Return the signal's name where a DataLoader worker was killed; empty where it is not named."""
    found = _WORKER_KILLED.search(outcome.error or "")
    return (found[1] or "").strip() if found is not None else None


def _has_vanished(evidence: Evidence) -> bool:
    """Return whether training processes ended without a farewell and the command that ran them failed."""
    outcome = evidence.report.outcome
    return outcome.state == "failed" and not outcome.error and evidence.report.dropped.broken_off > 0


# What is known of the moments before.


def _last_step(evidence: Evidence) -> list[str]:
    """Return the last step that ended, with its batch."""
    done, latest = evidence.report.progress, evidence.state.main.latest.steps()
    if not latest:
        return ["before the end of its first step"]
    step = latest[-1]
    batch = [f"{number(count)} {unit}" for count, unit in ((step.samples, "samples"), (step.tokens, "tokens")) if count]
    longest = step.lengths[2] if step.lengths is not None else None
    batch += [f"longest sequence {number(longest)} of at most {number(evidence.state.main.lengths.longest)}"] * bool(
        longest
    )
    of = f" of {done.steps_total:,}" if done.steps_total else ""
    after = f" after {duration(done.elapsed_seconds)}" if done.elapsed_seconds is not None else ""
    return [f"last finished step {done.steps_done:,}{of}{after}" + (f": {', '.join(batch)}" if batch else "")]


def _host_memory(evidence: Evidence) -> list[str]:
    readings = host_readings(evidence.state.host)
    if not readings:
        return []
    used, limit = max(readings[-LAST_READINGS:])  # the last one may have been taken after its end
    lines = [f"{size_of(used, limit)} of host memory in use at last"]
    course = [(row.t, row.tree_rss) for row in evidence.state.host if row.tree_rss]
    if not course:
        return lines
    (begin, first), (end, last) = course[0], course[-1]
    if last > first:
        return [*lines, f"training processes: {size(first)} → {size(last)} in the last {duration(end - begin)}"]
    return [*lines, f"training processes: {size(last)}"]


def _shared_memory(evidence: Evidence) -> list[str]:
    for reading in reversed(evidence.state.host[-LAST_READINGS:]):
        used, total = reading.shm_used, reading.shm_total
        if used is not None and total and used >= MIN_SHARED_MEMORY_SHARE * total:
            return [f"/dev/shm nearly full: {size_of(used, total)}"]
    return []

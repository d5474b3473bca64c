"""Nothing reports in: why that may be, and what to do about it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from monitor.diagnosis.evidence import Evidence
from monitor.model.report import Finding
from monitor.units import age

CODE = "nothing-reports"
OWN_TRAINHOOKS = "own-trainhooks"  # the note's code as in trainhooks.auto.imports, which knows a clock
PATIENCE = 20.0  # seconds; a cold import of torch and a small model's load are over by then

STARTING = "Still starting? A program shows up with its first optimizer step."
OUT_OF_REACH = (
    "Python out of reach? python -I, -E or -S, env -i, sudo and containers drop PYTHONPATH or TRAINMON_RUN: pass both"
    " on, and mount the directories that they name."
)
NOT_PYTHON = (
    "Not Python, or not torch? Print a line a step, such as `step 120/5000 loss 2.31` (`trainmon lines LOG` shows what"
    " is read of a log), or write the journal as demo/cpp does."
)
BY_HAND = "Any Python loop can tell its steps itself: for batch in trainhooks.steps(loader): ..."
RENAME = "Rename the program's own module `trainhooks`, and its imports, to have its steps timed."

# What stands before a program and keeps its environment from it.
WRAPPERS = ("sudo", "doas", "su", "docker", "podman", "nerdctl", "apptainer", "singularity", "enroot", "ssh", "kubectl")
ISOLATING = "IES"  # switches of python that ignore PYTHONPATH or sitecustomize


def nothing_reports(evidence: Evidence) -> Finding | None:
    """No step is known, and no process of the training has been heard of."""
    report = evidence.report
    if evidence.steps or report.progress.steps_done:
        return None
    if report.run.imported:
        advice = (
            "`trainmon lines FILE` shows what is read from each line; patterns of your own go into the config file."
        )
        return Finding(CODE, "info", "No steps could be read from this log", [], advice)
    running = report.outcome.state == "running"
    heard = any(each.source not in ("recorder", "console") for each in evidence.state.producers.values())
    if heard:  # its start-up speaks for itself while it lasts
        return None if running else Finding(CODE, "info", "It reported in, and ended before its first step was done")
    elapsed = report.progress.elapsed_seconds
    if running and (elapsed is None or elapsed < PATIENCE):
        return None
    shadowed = _shadowed(evidence)
    cause = shadowed or obstacle(report.run.command)
    advice = BY_HAND if shadowed is None else RENAME
    reasons = [cause] if cause is not None else [OUT_OF_REACH, NOT_PYTHON]
    if running:
        title = f"No step seen in {age(elapsed)}: nothing in the program has reported in"
        return Finding(CODE, "info", title, [STARTING, *reasons] if cause is None else reasons, advice)
    return Finding(CODE, "info", "No step was measured: nothing in the program reported in", reasons, advice)


def _shadowed(evidence: Evidence) -> str | None:
    """What the bootstrap said before it gave way to a module of the program's own."""
    return next((row.text for row in evidence.state.alerts if row.code == OWN_TRAINHOOKS), None)


def obstacle(command: Sequence[str]) -> str | None:
    """What in the command itself keeps the environment from the program; None where nothing does."""
    for place, word in enumerate(command):
        name = word.rpartition("/")[2]
        following = command[place + 1 : place + 2]
        if name in WRAPPERS:
            return (
                f"`{name}` does not pass its environment on: hand PYTHONPATH and TRAINMON_RUN over (sudo -E, docker -e"
                " with -v for the directories that they name), or put `trainmon run` behind it."
            )
        if name == "env" and following and following[0] in ("-i", "-", "--ignore-environment"):
            return "`env -i` drops PYTHONPATH and TRAINMON_RUN: leave it out, or set both behind it."
        if name.startswith("python"):
            found = _isolating(command[place + 1 :])
            if found is not None:
                return f"`{name} {found}` ignores what trainmon puts on PYTHONPATH: leave {found} out."
        if not word.startswith("-") and "=" not in word and name not in ("env", "nohup", "nice", "time", "exec"):
            return None  # the program itself: what follows are its own arguments
    return None


def _isolating(words: Sequence[str]) -> str | None:
    """The switch that isolates Python from its environment, among those before the script."""
    for word in words:
        if not word.startswith("-") or word.startswith("--"):
            return None
        for switch in word[1:]:
            if switch in "cm":
                return None
            if switch in ISOLATING:
                return f"-{switch}"
            if switch in "WX":
                break
    return None

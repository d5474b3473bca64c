"""What the training stops for: start-up, checkpoints, evaluations, logging. Pure."""

from __future__ import annotations

from monitor.diagnosis import unnamed
from monitor.diagnosis.evidence import Evidence
from monitor.model import activities
from monitor.model.pace import SINCE
from monitor.model.report import Finding
from monitor.units import duration, share

ENOUGH = 20  # steps
LOGGING_WORTH = 0.05  # it buys nothing, so a twentieth of the time is already too much
CHECKPOINT_WORTH = 0.10  # a crash costs more than checkpoints usually do; a tenth of the time is rarely meant
EVAL_WORTH = 0.30  # evaluation is work that was asked for; near a third, people want to know
AGAIN = 3  # times; what comes once or twice in a run, as its last checkpoint, is much of a short one only
STARTUP_LEAST = 10.0  # seconds besides imports; less nobody waits for
STARTUP_WORTH = 0.25  # of a run that goes on; a long run pays any start back


def checkpoint_stall(evidence: Evidence) -> Finding | None:
    seen = unnamed.seen(evidence, activities.CHECKPOINT)
    seconds = _stopped(evidence, ("checkpoint", "save", "save_checkpoint"), seen, CHECKPOINT_WORTH)
    if seconds is None:
        return None
    every = evidence.setting("save_steps")
    named = f"{every[0]}={every[1]}: save more rarely" if every is not None else "Save more rarely"
    return Finding(
        "checkpoint-stall",
        "warning",
        f"Checkpoints take {_about(seen)}{share(evidence.of_loop(seconds))} of the time {SINCE}",
        _evidence(evidence, "in checkpoints", seconds, seen, activities.CHECKPOINT),
        f"{named}, to a faster disk, or asynchronously (torch.distributed.checkpoint.async_save); save what a restart"
        " needs, not each file that can be made again.",
        evidence.of_wall(seconds),
    )


def eval_heavy(evidence: Evidence) -> Finding | None:
    seen = unnamed.seen(evidence, activities.EVAL)
    seconds = _stopped(evidence, ("eval", "evaluation", "validation"), seen, EVAL_WORTH)
    if seconds is None:
        return None
    every = evidence.setting("eval_steps", "val_check_interval")
    named = f"{every[0]}={every[1]}: evaluate more rarely" if every is not None else "Evaluate more rarely"
    return Finding(
        "eval-heavy",
        "warning",
        f"Evaluation takes {_about(seen)}{share(evidence.of_loop(seconds))} of the time {SINCE}",
        _evidence(evidence, "in evaluation", seconds, seen, activities.EVAL),
        f"{named}, or on a part of the set, with a larger batch than in training (no gradients are kept).",
        evidence.of_wall(seconds),
    )


def logging_overhead(evidence: Evidence) -> Finding | None:
    seen = unnamed.seen(evidence, activities.LOGGING)
    seconds = _stopped(evidence, ("logging", "log"), seen, LOGGING_WORTH)
    if seconds is None:
        return None
    every = evidence.setting("logging_steps", "log_every_n_steps", "log_every", "log_interval")
    named = f"{every[0]}={every[1]}: log more rarely" if every is not None else "Log more rarely"
    return Finding(
        "logging-overhead",
        "warning",
        f"Logging takes {_about(seen)}{share(evidence.of_loop(seconds))} of the time {SINCE}",
        _evidence(evidence, "in logging", seconds, seen, activities.LOGGING),
        f"{named}, keep metrics on the device until then (.item() waits for the GPU), and write beside the loop.",
        evidence.of_wall(seconds),
    )


def _stopped(evidence: Evidence, names: tuple[str, ...], seen: float, worth: float) -> float | None:
    """Seconds of these stops, where they are worth a word."""
    seconds = evidence.named(*names) + seen
    if not evidence.enough(ENOUGH) or evidence.of_loop(seconds) < worth:
        return None
    often = seen or sum(span.name in names for span in evidence.state.main.marks) >= AGAIN
    often = often or any(row.name in names and row.count >= AGAIN for row in evidence.report.phases)
    return seconds if often or evidence.of_wall(seconds) >= worth else None


def _about(seen: float) -> str:
    return "about " if seen else ""


def _evidence(evidence: Evidence, where: str, seconds: float, seen: float, what: str) -> list[str]:
    """What was measured; and where the program was seen, for what it has not told."""
    if not seen:
        return [f"{duration(seconds)} {where}, {duration(evidence.report.wall.steps)} in steps"]
    lines = [f"about {duration(seconds)} {where}, by looks at the program's stack"]
    return lines + unnamed.places(evidence, what)


def slow_startup(evidence: Evidence) -> Finding | None:
    """The way to the first step, where it is long by itself and long beside the run so far."""
    wall = evidence.report.wall
    if wall.startup is None or evidence.of_wall(wall.startup) < STARTUP_WORTH:
        return None
    imports = sum(row.seconds for row in evidence.report.startup if row.name.startswith("import "))
    if wall.startup - imports < STARTUP_LEAST:
        return None  # imports are there in every run, and nobody can leave them out
    if evidence.report.outcome.state == "running" or not evidence.steps:
        return None  # how much it weighs is not known before the end
    rows = evidence.report.startup[:4]
    return Finding(
        "slow-startup",
        "info",
        f"{duration(wall.startup)} passed before the first step, {share(evidence.of_wall(wall.startup))} of the run",
        [f"{row.name} {duration(row.seconds)}" for row in rows],
        "Keep what a start makes anew: downloads, tokenised data, compiled graphs; load weights from a local disk.",
        evidence.of_wall(wall.startup),
    )

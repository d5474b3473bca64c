"""What a program prints of itself, against itself and against what was measured. Pure."""

from __future__ import annotations

import re

from monitor.diagnosis.evidence import Evidence
from monitor.model.report import Finding
from monitor.units import rate

CODE = "inconsistent-console"
REFUSED = "console: left out, because it cannot be true: "  # as the reader of the output notes it
# A bar past its end, as Lightning's is under accumulation, counts something else than the steps: these were measured.
PAST_ITS_END = re.compile(r"\d+ of \d+")
NOT_KNOWN_YET = ("mfu -100.0", "mfu -1.0")  # what nanoGPT and its heirs print before they have measured it
ENOUGH = 20  # steps
# Times what was measured, or a part of it. A program leaves out waiting or warm-up, and may then be right in its way.
BEYOND = 1.5
RATES = ("tokens_per_second", "samples_per_second")
SHOWN = 5


def inconsistent_console(evidence: Evidence) -> Finding | None:
    """The program's own figures cannot all be true."""
    told = [row.text.removeprefix("console: ") for row in evidence.state.alerts + evidence.state.main.alerts]
    codes = [row.code for row in evidence.state.alerts + evidence.state.main.alerts]
    contradictions = [text for text, code in zip(told, codes, strict=True) if code == CODE]
    refused = [note.removeprefix(REFUSED) for note in evidence.state.notes if note.startswith(REFUSED)]
    refused = [figure for figure in refused if figure not in NOT_KNOWN_YET]
    if evidence.report.run.source == "hooks":
        refused = [figure for figure in refused if not PAST_ITS_END.fullmatch(figure)]
    lines = [*contradictions, *(f"it printed {figure}, which cannot be" for figure in refused), *_against(evidence)]
    if not lines:
        return None
    return Finding(
        CODE,
        "warning" if contradictions else "info",
        f"The program's own figures contradict themselves: {lines[0]}" if contradictions or refused else lines[0],
        lines[:SHOWN],
        "Trust none of its timings before that is mended: nested timers are added up, a mean since the start is called"
        " a rate, or a wall clock jumped.",
    )


def _against(evidence: Evidence) -> list[str]:
    """Rates that the program logs, against those of its steps alone, padding counted: the most that it can mean."""
    main, lines = evidence.state.main, []
    seconds = main.step_seconds.digested().sum
    if evidence.report.run.source != "hooks" or evidence.report.run.ranks > 1 or evidence.steps < ENOUGH or not seconds:
        return []  # read from its output, or of all ranks together: nothing to hold it against
    done = (max(main.pace.tokens, main.padded_tokens), main.pace.samples)
    for name, unit, amount in zip(RATES, ("tok/s", "samples/s"), done, strict=True):
        row = evidence.report.metrics.get(name)
        if row is not None and amount and row.mean and row.count >= ENOUGH and row.mean > BEYOND * amount / seconds:
            lines.append(
                f"It says {rate(row.mean, unit)}, and {rate(amount / seconds, unit)} were measured in its steps"
            )
    return lines

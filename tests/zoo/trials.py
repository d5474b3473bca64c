"""`trainmon try` on the causes of the zoo that a setting takes away, each beside a twin with the same in its code.

python -m tests.zoo.trials [--out FILE] [CASE...]
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from monitor.model.comparison.paired import Measured, gain_of
from monitor.running import isolation, trial_runs
from monitor.running.trial_runs import Length, Trial
from tests.zoo.runner import SCRIPTS
from trainhooks.protocol.trial_settings import Settings

ROUNDS = 5


@dataclass(frozen=True)
class Cause:
    """A script, the setting that mends it, and the same written into its source."""

    script: str
    settings: Settings
    old: str
    new: str
    arguments: tuple[str, ...] = ()
    gains: bool = True  # whether the setting is known to gain


CAUSES = (
    Cause("sick_input_getitem.py", {"num_workers": 2}, "num_workers=0", "num_workers=2"),
    Cause("sick_input_collate.py", {"num_workers": 1}, "collate_fn=collate)", "collate_fn=collate, num_workers=1)"),
    Cause("sick_input_disk.py", {"num_workers": 3}, "num_workers=1", "num_workers=3"),
    Cause("sick_oversubscribed.py", {"threads": 2}, "8 * (os.cpu_count() or 2)", "2"),
    Cause("sick_debug_anomaly.py", {"detect_anomaly": False}, "detect_anomaly(True)", "detect_anomaly(False)"),
    Cause(
        "sick_debug_profiler.py",
        {"profiler": False},
        "with torch.profiler.profile(with_stack=True, record_shapes=True):",
        "if True:",
    ),
    Cause("sick_garbage_collection.py", {"gc_collect": False}, "gc.collect()", "pass"),
    Cause("sick_logging_hf.py", {"logging_steps": 10}, "logging_steps=1,", "logging_steps=10,"),
    Cause("sick_checkpoint_hf.py", {"save_steps": 10}, "save_steps=1,", "save_steps=10,"),
    Cause("rl_text.py", {"use_cache": True}, 'use_cache=SICK != "no_cache"', "use_cache=True", ("no_cache",)),
    Cause("sick_recompiling.py", {"compile_dynamic": True}, "dynamic=False", "dynamic=True"),
    Cause("well_plain_epochs.py", {"cudnn_benchmark": True}, "import torch\n", "import torch\n", (), False),
)


@dataclass(frozen=True)
class Outcome:
    """What the setting gained, and its twin, against the same runs."""

    name: str
    setting: Settings
    tried: Measured | None
    twin: Measured | None
    failed: str | None = None

    @property
    def holds(self) -> bool:
        """Return whether the interval of the one holds the mean of the other."""
        return self.tried is not None and self.twin is not None and self.tried.low <= self.twin.value <= self.tried.high

    @property
    def wrong_sign(self) -> bool:
        """Return whether it says faster of what is slower, or the other way round."""
        if self.tried is None or self.twin is None:
            return False
        return (self.tried.low > 1.0 > self.twin.high) or (self.tried.high < 1.0 < self.twin.low)


def run(cause: Cause, seconds: float) -> Outcome:
    """Measure a cause: in each round the script as it is, with the setting, and with its source mended."""
    name = f"{Path(cause.script).stem} {' '.join(cause.arguments)}".strip()
    with trial_runs.place() as where, tempfile.TemporaryDirectory() as scripts:
        shutil.copytree(SCRIPTS, scripts, dirs_exist_ok=True)
        mended = Path(scripts) / f"mended_{cause.script}"
        source = (SCRIPTS / cause.script).read_text()
        assert cause.old in source, cause
        mended.write_text(source.replace(cause.old, cause.new))
        sick = [sys.executable, str(Path(scripts) / cause.script), *cause.arguments]
        twin = [sys.executable, str(mended), *cause.arguments]
        inside = isolation.Isolation(str(where), (str(where / "state"),), isolation.directories())
        first = trial_runs.run_trial(sick, {}, Length(seconds), where, inside, False)
        length = Length(seconds, first.steps)
        rows: list[list[Trial]] = []
        for number in range(ROUNDS):
            kinds: list[tuple[list[str], Settings]] = [(sick, {}), (sick, cause.settings), (twin, {})]
            order = sorted(range(3), reverse=bool(number % 2))
            found = {at: trial_runs.run_trial(*kinds[at], length, where, inside, False) for at in order}
            rows.append([found[at] for at in range(3)])
    failed = next((trial.failed for row in rows for trial in row if trial.failed), None)
    if failed is not None:
        return Outcome(name, cause.settings, None, None, failed)
    per = trial_runs.unit_of([trial for row in rows for trial in row])
    seconds_of = [[trial.pace(per).seconds for trial in row] for row in rows]  # type: ignore[union-attr]
    return Outcome(
        name,
        cause.settings,
        gain_of([(row[0], row[1]) for row in seconds_of]),
        gain_of([(row[0], row[2]) for row in seconds_of]),
    )


def told(outcome: Outcome) -> str:
    """Return one row of the table."""
    if outcome.failed is not None or outcome.tried is None or outcome.twin is None:
        return f"{outcome.name:28} {json.dumps(outcome.setting):26} not measured: {outcome.failed}"
    row = [f"{one.value:5.2f}x ({one.low:.2f} to {one.high:.2f})" for one in (outcome.tried, outcome.twin)]
    words = "WRONG SIGN" if outcome.wrong_sign else "holds" if outcome.holds else "does not hold"
    return f"{outcome.name:28} {json.dumps(outcome.setting):26} {row[0]:24} twin {row[1]:24} {words}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--seconds", type=float, default=4.0)
    options = parser.parse_args()
    outcomes = []
    for cause in CAUSES:
        if not options.cases or any(word in cause.script for word in options.cases):
            outcomes.append(run(cause, options.seconds))
            print(told(outcomes[-1]), flush=True)
    print(
        f"{sum(one.holds for one in outcomes)} of {len(outcomes)} hold, {sum(one.wrong_sign for one in outcomes)} wrong"
    )


if __name__ == "__main__":
    main()

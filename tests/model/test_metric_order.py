"""What people look for comes first, what the hooks add comes last; and every view keeps to that."""

from monitor.model.fold import fold
from monitor.model.state import RunState
from monitor.model.steps.series import ordered
from monitor.model.summary import make_report
from monitor.model.view import curve_arguments
from monitor.model.wall_time import RunContext
from monitor.reports.run_summary import short
from monitor.runs.follow import build_view
from monitor.tui.panels.curve_panels import default_metric
from trainhooks.protocol.events import Hello, Step

LOGGED = {
    "generate_calls": 4.0,
    "new_tokens": 512.0,
    "generate_batch": 1.0,
    "prompt_tokens": 64.0,
    "reward_seconds/runs": 2.5,
    "kl": 0.1,
    "rewards/runs/mean": 0.2,
    "loss": 0.4,
    "reward": 0.3,
    "epoch": 1.0,
}
EXPECTED = ["reward", "loss", "rewards/runs/mean", "kl", "epoch"]


def test_the_hooks_own_figures_stand_behind_the_programs() -> None:
    assert list(ordered(LOGGED))[:5] == EXPECTED
    assert set(ordered(LOGGED)) == set(LOGGED)
    assert default_metric(LOGGED) == "reward"
    assert default_metric(["generate_calls", "generator/new_tokens", "kl"]) == "kl"
    assert default_metric(["generate_calls"]) == "generate_calls"


def test_a_word_counts_and_not_its_letters() -> None:
    assert list(ordered(dict.fromkeys(["account", "val_acc"], 0))) == ["val_acc", "account"]


def test_report_and_curves_and_the_last_lines_follow() -> None:
    state = RunState()
    fold(state, Hello("p", 0, 0.0, wall=1000.0))
    fold(state, Step("p", 1, 2.0, index=1, start=1.0, duration=1.0, metrics=dict(LOGGED)))
    told = make_report(state, RunContext({}, 3.0, True))
    assert list(told.metrics)[:5] == list(curve_arguments(state)["metrics"])[:5] == EXPECTED
    summary = short(build_view(state, RunContext({}, 3.0, True)))
    (line,) = (line for line in summary.splitlines() if "metrics, last" in line)
    assert "reward 0.3" in line and "loss 0.4" in line and "generate" not in line

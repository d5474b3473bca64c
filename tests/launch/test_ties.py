"""What ends a training with its launcher is seen before it bites, and nothing else is warned of."""

from __future__ import annotations

import pytest

from monitor.running import ties

LOGIN = "0::/user.slice/user-1000.slice/session-3.scope\n"
KILLS = "[Login]\nKillUserProcesses=yes\n"


@pytest.mark.parametrize(
    ("settings", "cgroup", "user", "bound"),
    [
        ([KILLS], LOGIN, "ann", True),
        (["[Login]\n#KillUserProcesses=yes\n"], LOGIN, "ann", False),
        ([KILLS, "[Login]\nKillUserProcesses = no\n"], LOGIN, "ann", False),
        ([KILLS], LOGIN, "root", False),
        ([KILLS + "KillExcludeUsers=ann bob\n"], LOGIN, "ann", False),
        ([KILLS + "KillOnlyUsers=bob\n"], LOGIN, "ann", False),
        ([KILLS], "0::/user.slice/user-1000.slice/user@1000.service/app.slice/run-r1.scope\n", "ann", False),
        ([KILLS], "0::/system.slice/slurmstepd.scope/job_7\n", "ann", False),
        ([], "", "", False),
    ],
)
def test_logging_out(settings: list[str], cgroup: str, user: str, bound: bool) -> None:
    found = ties.logind(settings, cgroup, user)
    assert (found is not None) is bound
    if found is not None:
        assert "KillUserProcesses" in found.text and not found.to_us


@pytest.mark.parametrize(
    ("environment", "parent", "bound", "to_us"),
    [
        ({"SLURM_JOB_ID": "12", "SLURM_STEP_ID": "0"}, "slurmstepd", True, True),
        ({"SLURM_JOB_ID": "12", "SLURM_STEP_ID": "0"}, "bash", True, False),
        ({"SLURM_JOB_ID": "12"}, "bash", False, False),  # a batch script, or a shell beside the job
        ({"SLURM_JOB_ID": "12\x1b[31m", "SLURM_STEP_ID": "0"}, "bash", False, False),
        ({}, "slurmstepd", False, False),
    ],
)
def test_slurm(environment: dict[str, str], parent: str, bound: bool, to_us: bool) -> None:
    found = ties.slurm(environment, parent)
    assert (found is not None) is bound
    assert (found is not None and found.to_us) is to_us

"""What ends a training with its launcher is seen before it bites, and nothing else is warned of."""

from __future__ import annotations

import pytest

from monitor.running import lifetime

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
    found = lifetime.logind_limit(settings, cgroup, user)
    assert (found is not None) is bound
    if found is not None:
        assert "KillUserProcesses" in found.text and not found.this_process


@pytest.mark.parametrize(
    ("environment", "parent", "bound", "this_process"),
    [
        ({"SLURM_JOB_ID": "12", "SLURM_STEP_ID": "0"}, "slurmstepd", True, True),
        ({"SLURM_JOB_ID": "12", "SLURM_STEP_ID": "0"}, "bash", True, False),
        ({"SLURM_JOB_ID": "12"}, "bash", False, False),  # a batch script, or a shell beside the job
        ({"SLURM_JOB_ID": "12\x1b[31m", "SLURM_STEP_ID": "0"}, "bash", False, False),
        ({}, "slurmstepd", False, False),
    ],
)
def test_slurm(environment: dict[str, str], parent: str, bound: bool, this_process: bool) -> None:
    found = lifetime.slurm_limit(environment, parent)
    assert (found is not None) is bound
    assert (found is not None and found.this_process) is this_process

"""What names a job over all of its hosts, where its launcher gives it a name of its own."""

from __future__ import annotations

from typing import Mapping, Optional

# Which job it was, and where its ranks met: different for each, and of no effect on its speed.
JOB_VARIABLES = (
    "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT", "TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT",
)  # fmt: skip
_LOOPBACK = ("localhost", "::1", "")


def key_over_hosts(environment: Mapping[str, str]) -> Optional[str]:
    """Return a text that is the same for all processes of a job on all hosts; None where only the host's own tells.

    Slurm numbers its jobs, their steps and their restarts. torchrun's id counts where somebody gave one, together with
    the address at which the ranks meet: on a loopback address no other host can.

    Args:
        environment: the variables of a process of the job, those of `environment.ENVIRONMENT` at least.
    """
    job = environment.get("SLURM_JOB_ID")
    if job and environment.get("SLURM_STEP_ID"):
        cluster, restart = environment.get("SLURM_CLUSTER_NAME", ""), environment.get("SLURM_RESTART_COUNT") or "0"
        return f"slurm {cluster} {job}.{environment['SLURM_STEP_ID']} restart {restart}"
    name, address = environment.get("TORCHELASTIC_RUN_ID", "none"), environment.get("MASTER_ADDR", "")
    if name not in ("", "none") and address not in _LOOPBACK and not address.startswith("127."):
        return f"torchrun {name} at {address}:{environment.get('MASTER_PORT', '')}"
    return None


def is_named(environment: Mapping[str, str], name: str) -> bool:
    """Return whether a person who says `name` means the job of these variables."""
    key = key_over_hosts(environment)
    return key is not None and name in (key, environment.get("SLURM_JOB_ID"), environment.get("TORCHELASTIC_RUN_ID"))

"""What names a job over all of its hosts, where its launcher gives it a name of its own."""

from __future__ import annotations

from typing import Mapping, Optional

# Which job it was, and where its ranks met: different for each, and of no effect on its speed.
JOB_VARIABLES = (
    "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_RESTART_COUNT", "TORCHELASTIC_RUN_ID", "MASTER_ADDR",
    "MASTER_PORT",
)  # fmt: skip
BATCH = "batch"  # the step of a batch script itself
_LOOPBACK = ("localhost", "::1", "")


def key_over_hosts(environment: Mapping[str, str]) -> Optional[str]:
    """Return a text that is the same for all processes of a job on all hosts; None where only the host's own tells.

    Slurm numbers its jobs and their steps, again from 0 after each restart: see `restart`. torchrun's id counts where
    somebody gave one, together with the address at which the ranks meet: on a loopback address no other host can.

    Args:
        environment: the variables of a process of the job, those of `environment.ENVIRONMENT` at least.
    """
    job = environment.get("SLURM_JOB_ID")
    if job and environment.get("SLURM_STEP_ID"):
        return f"slurm {environment.get('SLURM_CLUSTER_NAME', '')} {job}.{environment['SLURM_STEP_ID']}"
    name, address = environment.get("TORCHELASTIC_RUN_ID", "none"), environment.get("MASTER_ADDR", "")
    if name not in ("", "none") and address not in _LOOPBACK and not address.startswith("127."):
        return f"torchrun {name} at {address}:{environment.get('MASTER_PORT', '')}"
    # A batch script is one process, of which only a restart makes another.
    return f"slurm {environment.get('SLURM_CLUSTER_NAME', '')} {job}.{BATCH}" if job else None


def restart(environment: Mapping[str, str]) -> int:
    """Return how often the launcher has started the job again, as a scheduler does after a preemption."""
    text = environment.get("SLURM_RESTART_COUNT", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 5 else 0


def task(environment: Mapping[str, str], otherwise: int) -> int:
    """Return which task of its job a process is in, as Slurm counts them; `otherwise` where nothing tells."""
    text = environment.get("SLURM_PROCID", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else otherwise


def is_named(environment: Mapping[str, str], name: str) -> bool:
    """Return whether a person who says `name` means the job of these variables."""
    key = key_over_hosts(environment)
    return key is not None and name in (key, environment.get("SLURM_JOB_ID"), environment.get("TORCHELASTIC_RUN_ID"))

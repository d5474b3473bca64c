"""A Slurm of two nodes on this machine, with ports and directories of its own: nothing of the system's is used."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from tests.launch.conftest import ROOT, wait_for
from tests.signals import send_group_signal

PROGRAMS = ("slurmctld", "slurmd", "srun", "sbatch", "scontrol", "squeue", "scancel")
_SEARCHED = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
MISSING = [name for name in PROGRAMS if shutil.which(name, path=_SEARCHED) is None]
if not MISSING and not os.path.exists("/usr/sbin/slurmstepd"):
    MISSING = ["slurmstepd"]

CONFIGURATION = """
ClusterName=trial
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmUser={user}
SlurmdUser={user}
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd-%n.pid
SlurmdSpoolDir={place}/spool-%n
StateSaveLocation={place}/state
SlurmctldLogFile={place}/slurmctld.log
SlurmdLogFile={place}/slurmd-%n.log
SwitchType=switch/none
SlurmdParameters=config_overrides
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=8
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=8
PartitionName=p Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class Cluster:
    """The cluster: `n1` and `n2`. On both `trainmon` is a command, see `keep`."""

    def __init__(self, place: Path) -> None:
        self.place = place
        (place / "state").mkdir(parents=True)
        (place / "bin").mkdir()
        ports = [_free_port() for _ in range(3)]
        user, host = pwd.getpwuid(os.geteuid()).pw_name, socket.gethostname()
        text = CONFIGURATION.format(host=host, user=user, place=place, ports=ports)
        (place / "slurm.conf").write_text(text)
        foreign = ("SLURM", "SBATCH", "TRAINMON")
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(foreign)},
            "PYTHONPATH": str(ROOT),
            "SLURM_CONF": str(place / "slurm.conf"),
            "PATH": f"{place}/bin:{_SEARCHED}",
        }
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._start("slurmctld", "-D", "-c")
        for node in ("n1", "n2"):
            self._start("slurmd", "-D", "-N", node)
        wait_for(lambda: self.call("sinfo", "--noheader", "--format=%T").stdout.split() == [b"idle"])

    def keep(self, where: str) -> None:
        """Set the state directory on the nodes, for a shell there: $SLURMD_NODENAME in it gives each its own."""
        lines = ["#!/bin/sh", f'TRAINMON_DIR="{where}" exec {sys.executable} -m monitor "$@"']
        (self.place / "bin" / "trainmon").write_text("\n".join([*lines, ""]))
        (self.place / "bin" / "trainmon").chmod(0o755)

    def _start(self, *words: str) -> None:
        with open(self.place / f"{words[0]}-{words[-1]}.out", "wb") as out:
            daemon = subprocess.Popen(
                words, env=self.environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )
        self._daemons.append(daemon)

    def call(self, *words: str, timeout: float = 120) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            words, env=self.environment, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout
        )

    def submit(self, script: str, *options: str) -> str:
        """Submit a batch script. Return the job's number."""
        path = self.place / f"job-{time.monotonic_ns()}.sh"
        path.write_text(f"#!/bin/sh\n{script}\n")
        done = self.call("sbatch", "--parsable", f"--output={self.place}/output-%j", *options, str(path))
        assert done.returncode == 0, done.stderr
        return done.stdout.decode().strip()

    def output(self, job: str) -> str:
        path = self.place / f"output-{job}"
        return path.read_text() if path.exists() else ""

    def standing(self, job: str) -> str:
        """Return the state of a job, as Slurm names it."""
        return self.call("squeue", "--noheader", "--states=all", "--format=%T", "--jobs", job).stdout.decode().strip()

    def wait_for_end(self, job: str) -> None:
        wait_for(lambda: self.standing(job) in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", ""), 180)

    def cancel(self) -> None:
        """Cancel all jobs."""
        self.call("scancel", "--user", pwd.getpwuid(os.geteuid()).pw_name)
        wait_for(lambda: not self.call("squeue", "--noheader").stdout.strip())

    def end(self) -> None:
        for daemon in reversed(self._daemons):
            send_group_signal(daemon.pid, signal.SIGTERM)
            daemon.wait(30)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port

"""A real ssh and a real sshd, which is started by each connection: no port, and nothing of the system's is changed."""

from __future__ import annotations

import json
import os
import pwd
import shlex
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.launch.conftest import ROOT, TRAINMON, State, wait_for
from tests.remote.conftest import relays, trainings, via
from tests.signals import send_signal
from trainhooks.protocol import process_identity

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(SSHD is None or shutil.which("ssh") is None, reason="no sshd here (openssh-server)"),
]


@pytest.fixture
def box(far: State, near: State, tmp_path: Path) -> str:
    """Return a host of the near one's ssh configuration: its user's sessions have the far state directory."""
    place = tmp_path / "ssh"
    place.mkdir(mode=0o700)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", place / name], check=True)
    variables = [word for word in shlex.split(via(far)) if "=" in word]
    server = [
        f"HostKey {place}/host",
        f"AuthorizedKeysFile {place}/user.pub",
        "StrictModes no",
        "PidFile none",
        "PermitRootLogin yes",
        "SetEnv " + " ".join(map(shlex.quote, variables)),
    ]
    (place / "sshd_config").write_text("\n".join([*server, ""]))
    run = f"{SSHD} -i -f {place}/sshd_config"
    if os.geteuid() == 0 and not os.path.isdir("/run/sshd"):  # which it insists on
        run = f"unshare --mount sh -c 'mount -t tmpfs tmpfs /run && mkdir -m 755 /run/sshd && exec {run}'"
    client = [
        "Host box",
        f"ProxyCommand {run}",
        f"User {pwd.getpwuid(os.geteuid()).pw_name}",
        f"IdentityFile {place}/user",
        "IdentitiesOnly yes",
        "StrictHostKeyChecking no",
        f"UserKnownHostsFile {place}/known",
        "LogLevel ERROR",
    ]
    (place / "ssh_config").write_text("\n".join([*client, ""]))
    own = place / "ssh"
    own.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {place}/ssh_config "$@"\n')
    own.chmod(0o755)
    near.environment["PATH"] = f"{place}:{os.environ['PATH']}"
    subprocess.run([own, "box", "true"], check=True, capture_output=True)
    return "box"


def test_a_run_is_watched_and_listed(far: State, near: State, box: str) -> None:
    far.run(*trainings(20, 0.005))
    name = far.only.name
    done = near.call("attach", f"{box}:{name}", "--once", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["progress"]["steps_done"] == 20
    listed = near.call("ls", "--host", f"{box},no-such-host.invalid", "--json")
    assert [row["id"] for row in json.loads(listed.stdout)] == [f"{box}:{name}"]
    assert listed.returncode == 1 and listed.stderr.startswith(b"no-such-host.invalid: ")
    front = far.start(*trainings(3000, 0.02))
    stopped = near.call("stop", f"{box}:{far.runs()[-1].name}")
    assert stopped.returncode == 0 and front.wait() != 0, stopped.stderr


def test_a_bare_python_is_enough(far: State, near: State, box: str) -> None:
    far.run(*trainings(10, 0.005))
    via(far)
    (far.path.parent / "with_trainmon" / "trainmon").unlink()
    done = near.call("attach", f"{box}:", "--once", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["progress"]["steps_done"] == 10


def test_a_connection_that_is_cut_is_opened_again(far: State, near: State, box: str) -> None:
    front = far.start(*trainings(200, 0.1))
    run = far.only
    viewer = subprocess.Popen(
        [*TRAINMON, "attach", f"{box}:{run.name}", "--json"],
        env=near.environment,
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    copy = near.path / "copies" / box / run.name
    try:
        for _ in range(2):
            wait_for(lambda: len(relays(far)) == 1)
            (relay,) = relays(far)
            before = _size(copy)
            wait_for(lambda size=before: _size(copy) > size)  # type: ignore[misc]
            send_signal(_sshd_of(relay), signal.SIGKILL)
            wait_for(lambda old=relay: relays(far) not in ([], [old]))  # type: ignore[misc]
        assert front.poll() is None
        assert viewer.wait(120) == 0
    finally:
        viewer.kill()
        viewer.communicate()
    assert front.wait() == 0
    for journal in run.glob("*.jsonl"):
        assert (copy / journal.name).read_bytes() == journal.read_bytes(), journal.name


def _size(copy: Path) -> int:
    return sum(journal.stat().st_size for journal in copy.glob("rank-0-*.jsonl"))


def _sshd_of(pid: int) -> int:
    """Return the process of sshd that a process descends from."""
    while Path(f"/proc/{pid}/comm").read_text().strip() != "sshd":
        pid = process_identity.parent(pid) or 0
    return pid

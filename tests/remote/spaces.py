"""Hosts that are namespaces: each has a network card, a name, processes, a clock, a boot and an sshd of its own."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from tests.launch.conftest import ROOT, TRAINMON, State, wait_for
from tests.remote.conftest import via
from tests.signals import send_signal

TOOLS = ("unshare", "nsenter", "ip", "ssh", "sshd", "ssh-keygen")
_SEARCHED = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
_SPACES = ("--net", "--uts", "--pid", "--mount", "--time")


def missing() -> str:
    """Return what such hosts lack here; empty where they can be had."""
    absent = [name for name in TOOLS if shutil.which(name, path=_SEARCHED) is None]
    if absent:
        return f"no {', '.join(absent)} here"
    if os.geteuid() != 0:
        return "only root makes hosts of namespaces"
    words = [*_SPACES, "--monotonic=1", "--fork", "--mount-proc", "ip", "link"]
    done = subprocess.run(["unshare", *words, "add", "hub", "type", "bridge"], capture_output=True, check=False)
    return "" if done.returncode == 0 else f"no namespaces here: {done.stderr.decode().strip()[:80]}"


class Host:
    """A host that ends with all its processes."""

    def __init__(self, path: Path, name: str, address: str, ahead: float) -> None:
        """
        Args:
            address: an IPv4 one, in a network of 24 bits.
            ahead: seconds by which its monotonic clock is ahead of the test's.
        """
        self.name, self.address, self.ahead = name, address, ahead
        self.place = path / name
        self.place.mkdir()
        self.state = State(self.place / "state")
        (self.place / "boot_id").write_text(f"boot-of-{name}\n")
        words = f"""
            hostname {name} && mount --bind {self.place}/boot_id /proc/sys/kernel/random/boot_id &&
            mount --bind {path}/hosts /etc/hosts && mount -t tmpfs tmpfs /run && mkdir -m 755 /run/sshd &&
            ip link set lo up && touch {self.place}/up && exec sleep infinity
        """
        unshare = ["unshare", *_SPACES, f"--monotonic={ahead:g}", "--fork", "--kill-child", "--mount-proc"]
        self._holder = subprocess.Popen([*unshare, "sh", "-c", words], stdin=subprocess.DEVNULL)
        wait_for(lambda: (self.place / "up").exists() or self._holder.poll() is not None)
        assert self._holder.poll() is None
        children = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children")
        self.pid = int(children.read_text())

    def words(self, *command: str) -> list[str]:
        """Return the words that run a command there."""
        enter = ["nsenter", "--target", str(self.pid), *_SPACES, "--"]
        return [*enter, "env", f"PATH={self.place}:{_SEARCHED}", *command]

    def call(self, *command: str, timeout: float = 60) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            self.words(*command),
            env=self.state.environment,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout,
        )

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        """Start a command there, whose output goes to a file by its name."""
        with open(self.place / f"{Path(command[0]).name}.err", "ab") as errors:
            return subprocess.Popen(
                self.words(*command),
                env={**self.state.environment, "OMP_NUM_THREADS": "1"},
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
            )

    def trainmon(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        return self.call(*TRAINMON, *words)

    def cut_off(self, other: Host, cut: bool) -> None:
        """Let no answer to another host get through; or, again, all."""
        route = ["ip", "route", "add" if cut else "del", "blackhole", f"{other.address}/32"]
        done = self.call(*route)
        assert done.returncode == 0, done.stderr

    def serve(self, key: Path) -> None:
        """Start sshd, for the owner of a key; its sessions have trainmon, and this host's state directory."""
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.place / "host"], check=True)
        variables = [word for word in shlex.split(via(self.state)) if "=" in word]
        lines = [
            f"HostKey {self.place}/host",
            f"AuthorizedKeysFile {key}.pub",
            "StrictModes no",
            "PidFile none",
            "PermitRootLogin yes",
            "SetEnv " + " ".join(map(shlex.quote, variables)),
        ]
        (self.place / "sshd_config").write_text("\n".join([*lines, ""]))
        sshd = shutil.which("sshd", path=_SEARCHED)
        done = self.call(str(sshd), "-f", f"{self.place}/sshd_config")  # it leaves for the background
        assert done.returncode == 0, done.stderr

    def end(self) -> None:
        with contextlib.suppress(OSError):
            send_signal(self._holder.pid, signal.SIGKILL)
        self._holder.wait()


def connected(path: Path, ahead: dict[str, float]) -> list[Host]:
    """Return hosts in one network, of which the first one reaches the others by ssh.

    Args:
        ahead: the names, and the seconds by which their clocks are ahead.
    """
    names = list(ahead)
    addresses = [f"10.77.0.{place}" for place in range(1, len(names) + 1)]
    rows = [f"{address} {name}" for address, name in zip(addresses, names, strict=True)]
    (path / "hosts").write_text("\n".join(["127.0.0.1 localhost", *rows, ""]))
    made: list[Host] = []
    try:
        for name, address in zip(names, addresses, strict=True):
            made.append(Host(path, name, address, ahead[name]))
        _connect(made)
        first, *others = made
        key = first.place / "user"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
        options = [f"IdentityFile={key}", "StrictHostKeyChecking=no", f"UserKnownHostsFile={first.place}/known"]
        words = shlex.join([str(shutil.which("ssh")), *(f"-o{option}" for option in (*options, "LogLevel=ERROR"))])
        (first.place / "ssh").write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        (first.place / "ssh").chmod(0o755)
        for other in others:
            other.serve(key)
            done = first.call("ssh", other.name, "hostname")
            assert done.stdout.decode().strip() == other.name, done.stderr
        return made
    except BaseException:
        for host in made:
            host.end()
        raise


def _connect(hosts: list[Host]) -> None:
    """Plug all into a hub, which stands at the first one: nothing of the machine's own network is touched."""
    first, *others = hosts
    net = ["nsenter", "--target", str(first.pid), "--net", "ip", "link"]  # pids are those of the test
    for words in (("add", "hub", "type", "bridge"), ("set", "hub", "up")):
        subprocess.run([*net, *words], check=True)
    for place, other in enumerate(others):
        card = f"to{place}"
        there = ["peer", "name", "eth0", "netns", str(other.pid)]
        subprocess.run([*net, "add", card, "type", "veth", *there], check=True)
        subprocess.run([*net, "set", card, "master", "hub", "up"], check=True)
    for host, card in ((first, "hub"), *((other, "eth0") for other in others)):
        for options in (f"addr add {host.address}/24 dev {card}", f"link set {card} up"):
            done = host.call("ip", *options.split())
            assert done.returncode == 0, done.stderr


def torchrun(host: Host, master: Host, program: Path, *words: str) -> subprocess.Popen[bytes]:
    """Start one node of two of a torchrun there, under trainmon."""
    rendezvous = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{master.name}:29500", "--rdzv-id", "finetune-7"]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1", *rendezvous]
    return host.start(*TRAINMON, "run", "--no-tui", "--", *launcher, str(program), *words)

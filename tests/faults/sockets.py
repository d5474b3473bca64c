"""Viewers stopped, killed, restarted and late, sockets removed, queues full: each that survives holds every event."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from monitor.running import command
from tests.faults.catalogue import Result, fault
from tests.faults.checker import differences, journalled
from tests.faults.place import HERE, Place, wait_for
from tests.signals import send_signal
from trainhooks.protocol import rundir

RATE = 10_000  # events a second, each in a datagram of its own: queues are full in no time


class Flow:
    """A run whose events are known, and its viewers."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.run = place.new_run()
        self.producer = place.start(sys.executable, str(HERE / "producer.py"), str(self.run), str(RATE))
        wait_for(lambda: rundir.run_alive(self.run), "the producer")
        place.start(*command.module_command("monitor.running.recorder_process", str(self.run)))
        wait_for(rundir.inbox_path(self.run).is_socket, "the recorder's sockets")
        self._viewers: list[tuple[subprocess.Popen[bytes], Path]] = []

    def viewer(self) -> subprocess.Popen[bytes]:
        out = self.place.root / f"viewer{len(self._viewers)}-{self.run.name}"
        started = self.place.start(sys.executable, str(HERE / "viewer.py"), str(self.run), str(out))
        self._viewers.append((started, out))
        wait_for(lambda: out.exists() and out.stat().st_size, "a viewer's first event")
        return started

    def account(self, injected: int) -> Result:
        """Some seconds more, then the end: what the surviving viewers hold against the journal."""
        result = Result(injected=injected)
        time.sleep(1.0)
        (self.run / "enough").touch()
        if (code := self.producer.wait(120)) != 0:
            result.harmed.append(f"the producer ended with {code}")
        began = time.monotonic()
        count = int((self.run / "count").read_text())
        result.lost = count - sum(not producer.startswith("node-") for producer, _ in journalled(self.run))
        survivors = [(viewer, out) for viewer, out in self._viewers if viewer.wait(120) == 0]
        result.recovered = time.monotonic() - began
        result.lost += sum(differences(self.run, out) for _, out in survivors)
        result.say = f"{len(survivors)} viewers hold {count:,} events each"
        return result


@fault("viewer stopped at 10,000 events/s: queues overflow")
def high_water(place: Place, short: bool) -> Result:
    result = Result()
    for _ in range(1 if short else 3):
        flow = Flow(place)
        stopped = flow.viewer()
        flow.viewer()
        send_signal(stopped.pid, signal.SIGSTOP)
        time.sleep(1.5 if short else 5)  # the longer, the more overflows
        send_signal(stopped.pid, signal.SIGCONT)
        result.add(flow.account(1))
    return result


@fault("viewers killed, restarted, late")
def killed_and_late(place: Place, short: bool) -> Result:
    result = Result()
    for _ in range(1 if short else 3):
        flow = Flow(place)
        killed = 2 if short else 5
        for _ in range(killed):
            viewer = flow.viewer()
            time.sleep(0.2)
            viewer.kill()
        flow.viewer()
        result.add(flow.account(killed + 1))
    return result


@fault("sockets removed while events flow")
def removed(place: Place, short: bool) -> Result:
    """Who listens goes on, and who comes later reads the journals."""
    result = Result()
    for _ in range(1 if short else 3):
        flow = Flow(place)
        flow.viewer()
        rundir.socket_path(flow.run).unlink()
        flow.viewer()
        rundir.inbox_path(flow.run).unlink()
        result.add(flow.account(1))
    return result

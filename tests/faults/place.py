"""Where a fault is injected: a state directory, trainmon in it, a training, and what becomes of them."""

from __future__ import annotations

import os
import re
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.e2e.conftest import ROOT, Box
from tests.faults.catalogue import Result
from tests.journal_lines import steps_in
from tests.signals import send_signal
from trainhooks.protocol import process_identity, rundir

HERE = Path(__file__).parent
PATIENCE = 60.0  # seconds; a limit against hanging on a busy box, no claim about speed
BRIEF = 10  # steps that a training has to do to show that it goes on
TRAINMON = [sys.executable, "-m", "monitor"]
SHELL = {"SLURM_STEP_ID", "SLURM_JOB_ID", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"}


def wait_for(condition: Callable[[], object], what: str = "it") -> float:
    """Wait until something holds; how long it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() < began + PATIENCE, f"{what} did not come to pass"
        time.sleep(0.01)
    return time.monotonic() - began


class Place(Box):
    """A state directory of its own, and everything that was started in it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path / "state")
        self.root = path
        self.environment = {k: v for k, v in self.environment.items() if k not in SHELL}
        self._started: list[subprocess.Popen[bytes]] = []
        self._trainings = 0

    def work(self) -> Path:
        """A directory for one training's own files."""
        self._trainings += 1
        made = self.root / f"training{self._trainings}"
        made.mkdir()
        return made

    def start(self, *words: str, **more: object) -> subprocess.Popen[bytes]:
        quiet: dict[str, object] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
        given = {"cwd": ROOT, "env": self.environment, **quiet, "stderr": subprocess.DEVNULL, **more}
        process = subprocess.Popen(words, **given)  # type: ignore[call-overload]
        self._started.append(process)
        return process  # type: ignore[no-any-return]

    def call(self, *words: str, **more: object) -> subprocess.CompletedProcess[bytes]:
        """trainmon, run to its end."""
        given = {"cwd": ROOT, "env": self.environment, "stdin": subprocess.DEVNULL, "capture_output": True, **more}
        return subprocess.run([*TRAINMON, *words], timeout=PATIENCE, **given)  # type: ignore[call-overload,no-any-return]

    def runs(self) -> list[Path]:
        """Oldest first."""
        found = [path.parent for path in (self.path / "runs").glob("*/run.json")]
        return sorted(found, key=lambda path: float((rundir.read_json(path / "run.json") or {}).get("started") or 0))

    def new_run(self) -> Path:
        """A run directory that nobody has launched."""
        os.environ[rundir.STATE_VARIABLE] = str(self.path)
        try:
            return rundir.new_run("known")
        finally:
            del os.environ[rundir.STATE_VARIABLE]

    def clear(self) -> None:
        for process in self._started:
            with suppress(OSError):
                process.kill()
        super().clear()
        for process in self._started:
            process.wait()


def recorder_of(run: Path) -> int:
    """The pid of whoever records a run; 0 for nobody."""
    lock = next(iter(run.glob("node-*.lock")), None)
    if lock is None or not rundir.lock_held(lock):
        return 0
    owner = rundir.read_json(lock) or {}
    # Who takes a lock writes its pid into it a moment later: until then the file tells of the last one, who is dead.
    living = process_identity.process_alive(owner.get("pid"), owner.get("start_ticks"), owner.get("boot_id"))
    return int(owner["pid"]) if living else 0


def kill_recorder(run: Path) -> None:
    """Kill whoever records a run, once somebody does. One that is just starting may take its place at once."""
    wait_for(lambda: recorder_of(run), "a recorder")
    killed = recorder_of(run)
    kill(killed)
    wait_for(lambda: recorder_of(run) != killed, "its end")


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Signal one process."""
    send_signal(pid, number)


def steps_told(run: Path) -> int:
    """The steps in a run's journals."""
    return sum(map(steps_in, run.glob("rank-*.jsonl")))


def done_by(place: Path) -> int:
    """The steps that a `training.py` has done there."""
    with suppress(OSError, struct.error):
        found: int = struct.unpack("<Q", (place / "truth").read_bytes())[0]
        return found
    return 0


class Training:
    """A run of `training.py`, and whether all is with it as it would be bare."""

    def __init__(self, place: Place, *, pace: float = 0.01, steps: int = 0, code: int = 6) -> None:
        self.place = place
        self.at = place.work()
        self.code = code
        self.command = [sys.executable, str(HERE / "training.py"), str(self.at), str(pace), str(steps), str(code)]
        self.front: subprocess.Popen[bytes] | None = None
        self._before = set(place.runs())

    def launch(self, *before: str, options: tuple[str, ...] = ("--no-tui",), **more: object) -> Training:
        """Under trainmon, without a terminal; `before` are the words of what starts trainmon."""
        out = open(self.at / "out", "wb")  # noqa: SIM115  # the process's from here on
        given = {"stdout": out, "stderr": open(self.at / "err", "wb"), **more}  # noqa: SIM115
        self.front = self.place.start(*before, *TRAINMON, "run", *options, "--", *self.command, **given)
        return self.begun()

    def begun(self) -> Training:
        """Wait until it does its steps, and its run is known."""
        wait_for(lambda: self.count > 3, "the training's first steps")
        wait_for(lambda: set(self.place.runs()) - self._before, "the run's directory")
        return self

    @property
    def run(self) -> Path:
        (found,) = set(self.place.runs()) - self._before
        return found

    @property
    def pid(self) -> int:
        return int((rundir.read_json(self.run / rundir.IDENTITY) or {}).get("pid") or 0)

    @property
    def count(self) -> int:
        """The steps that it has done."""
        return done_by(self.at)

    def goes_on(self, steps: int = BRIEF) -> None:
        before = self.count
        wait_for(lambda: self.count >= before + steps, "the training's next step")

    def seen_again(self) -> float:
        """A new shell's `attach` shows the run and its live end; how long until it did."""
        began = time.monotonic()
        before = self.count

        def shown() -> bool:
            text = self.place.call("attach", self.run.name, "--once").stdout.decode()
            step = re.search(r"([\d,]+)(?: of [\d,]+)? steps", text)
            return "running" in text and step is not None and int(step[1].replace(",", "")) >= before

        wait_for(shown, "the run on the screen of a new shell")
        return time.monotonic() - began

    def finish(self) -> None:
        """Tell it to end, and wait until that is written down."""
        (self.at / "done").touch()
        if self.front is not None:
            self.front.wait(PATIENCE)
        wait_for(lambda: rundir.read_json(self.run / rundir.EXIT) is not None, "the exit's file")

    def account(self) -> Result:
        """What is not as bare, once it has ended. Of the events: the steps that it did against those in its journal."""
        result = Result(injected=1, lost=self.count - steps_told(self.run))
        ended = rundir.read_json(self.run / rundir.EXIT) or {}
        if ended.get("exit_code") != self.code:
            result.harmed.append(f"exit code {ended.get('exit_code')} (signal {ended.get('signal')}), not {self.code}")
        expected = "".join(f"step {n + 1}\n" for n in range(self.count))
        wait_for(lambda: not (self.run / "stdout.log").exists(), "the output in one file")
        if (self.run / rundir.CONSOLE).read_text() != expected:
            result.harmed.append("its output is not what it printed")
        if self.front is not None and self.front.returncode == self.code:
            if (self.at / "out").read_text() != expected:
                result.harmed.append("its output did not pass through as it was")
        elif self.front is not None and self.front.returncode not in (-1, -9, 129, 137):
            result.harmed.append(f"trainmon's exit code {self.front.returncode}, not {self.code}")
        return result

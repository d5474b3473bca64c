"""One script of the zoo run as a user runs it, and what the report says of it."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.zoo.cases import Case
from trainhooks.protocol import rundir

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = Path(__file__).resolve().parent / "scripts"
STUB = ROOT / "tests" / "gpu"
LIMIT = 400.0  # seconds, against hanging; a crowded machine may take ten times as long as a free one
# What a cluster's or another test's environment must not lend to the scripts.
FOREIGN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_LOCALID", rundir.RUN_VARIABLE)
BURNER = "import os\nmine = os.getppid()\nwhile os.getppid() == mine: sum(range(10**6))"  # ends with its parent
GRAVE = ("critical", "warning")
CROWDED = 0.2  # of the machine, used by others
LINGERS = 5.0  # seconds that a supervisor may take after its front has ended
PR_SET_CHILD_SUBREAPER = 36
MARK = "crowded"  # a file beside a kept run that says so
TROUBLE = "trouble.txt"  # likewise, what went wrong


@dataclass
class Outcome:
    """What became of one script."""

    case: Case
    seconds: float
    findings: list[tuple[str, str]] = field(default_factory=list)  # code and severity, in the report's order
    trouble: str | None = None  # why there is nothing to judge
    crowded: bool = False  # others used much of the machine meanwhile, as measured here
    rate: float | None = None  # steps a second since the first step
    promised: float | None = None  # times as fast at most without the planted cause
    real: float | None = None  # times as fast its mended twin is
    measured: int = 1  # how often promise and gain were measured

    @property
    def named(self) -> bool:
        """The planted cause is the first finding, but for neighbors who are truly there."""
        codes = [code for code, _ in self.findings if code == self.case.expected or code not in self._of_the_machine]
        return bool(codes) and codes[0] == self.case.expected

    @property
    def false(self) -> list[str]:
        """Findings of weight that nobody planted."""
        return [code for code, severity in self.findings if severity in GRAVE and code not in self._fine]

    @property
    def true(self) -> list[str]:
        return [code for code, severity in self.findings if severity in GRAVE and code in self._fine]

    @property
    def _fine(self) -> set[str | None]:
        return {self.case.expected, *self.case.allowed, *self._of_the_machine}

    @property
    def _of_the_machine(self) -> set[str]:
        return {"cpu-starved"} if self.crowded else set()  # then it is true, whoever is tested

    @property
    def good(self) -> bool:
        if self.trouble or self.false:
            return False
        return self.case.expected is None or self.named

    @property
    def verdict(self) -> str:
        if self.trouble:
            return f"BROKEN: {self.trouble}"
        words = []
        if self.case.expected and not self.named:
            seen = any(code == self.case.expected for code, _ in self.findings)
            words.append("NOT FIRST" if seen else "MISSED")
        if self.false:
            words.append("FALSE: " + ", ".join(self.false))
        return "; ".join(words) or "ok"


def run(case: Case, keep: Path | None = None) -> Outcome:
    """Run a case in a state directory of its own.

    Args:
        keep: where its state stays, in a directory named as the case; nowhere by default.
    """
    state = Path(tempfile.mkdtemp(prefix="trainmon-zoo-")) if keep is None else keep / case.name
    shutil.rmtree(state, ignore_errors=True)
    state.mkdir(parents=True, mode=0o700)
    began = time.monotonic()
    try:
        with burners(case.burners), Neighbors() as neighbors:
            trouble = _train(case, state)
        if neighbors.part >= CROWDED:
            (state / MARK).touch()
        if trouble is not None:
            (state / TROUBLE).write_text(trouble)
        return judge(case, state, time.monotonic() - began, trouble)
    finally:
        if keep is None:
            shutil.rmtree(state, ignore_errors=True)


def judge(case: Case, state: Path, seconds: float = 0.0, trouble: str | None = None) -> Outcome:
    """What the report says of a case that was run."""
    if trouble is None and (state / TROUBLE).exists():
        trouble = (state / TROUBLE).read_text()
    report = _report(state)
    if report is None:
        return Outcome(case, seconds, trouble=trouble or "no report")
    findings = [(each["code"], each["severity"]) for each in report["findings"]]
    planted = next((each for each in report["findings"] if each["code"] == case.expected), None)
    share = planted["recoverable"] if planted is not None else None
    return Outcome(
        case,
        seconds,
        findings,
        trouble,
        crowded=(state / MARK).exists(),
        rate=report["throughput"]["steps_per_second"],
        promised=None if share is None or share >= 1.0 else 1 / (1 - share),
    )


def compare_with_twin(outcome: Outcome, twin: Outcome) -> None:
    """Note how much faster the script is without its cause; unknown where others used much of the machine."""
    if not (twin.trouble or twin.crowded or outcome.crowded) and outcome.rate and twin.rate:
        outcome.real = twin.rate / outcome.rate


def _train(case: Case, state: Path) -> str | None:
    """Run the script under `trainmon run`. Returns what went wrong, if anything did."""
    words = [sys.executable, "-m", "monitor", "run", "--no-tui", "--name", case.name, *case.options, "--"]
    script = SCRIPTS / case.script
    words += [str(script)] if script.suffix == ".sh" else [sys.executable, *case.launcher, str(script)]
    with (state / "output.txt").open("wb") as output:
        child = subprocess.Popen(
            [*words, *case.arguments],
            env=_environment(case, state),
            cwd=state,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            code = child.wait(case.patience or LIMIT)
        except subprocess.TimeoutExpired:
            return _end(child, state, case.patience is not None)
    if case.patience is not None:
        return "it ended, and was to hang"
    if code != case.code:
        return f"exit code {code}; see the end of output.txt"
    return None


def _end(child: subprocess.Popen[bytes], state: Path, meant: bool) -> str | None:
    """Give up on a training that hangs, as a person does: after a look at it."""
    child.send_signal(signal.SIGTERM)
    try:
        child.wait(30)
    except subprocess.TimeoutExpired:
        subprocess.run([sys.executable, "-m", "monitor", "stop", "last"], env=_environment(None, state), timeout=100)
        child.kill()
        child.wait()
    return None if meant else "it hung"


def _report(state: Path) -> dict[str, Any] | None:
    done = subprocess.run(
        [sys.executable, "-m", "monitor", "report", "--json", "last"],
        env=_environment(None, state),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    if done.returncode != 0:
        return None
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _environment(case: Case | None, state: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    kept[rundir.STATE_VARIABLE] = str(state)
    if case is not None:
        kept |= case.environment
        if case.scene is not None:
            kept |= _driver(state, case.scene)
    return kept


def _driver(state: Path, changes: Mapping[str, str]) -> dict[str, str]:
    """The stand-in for NVIDIA's driver; the script writes what it says."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise SystemExit("the zoo's GPU scripts need a C compiler")
    library, scene = state / "libnvidia-ml.so.1", state / "scene.txt"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, STUB / "nvml_stub.c", "-pthread"], check=True)
    lines = "".join(f"{key} = {value}\n" for key, value in changes.items())
    scene.write_text((STUB / "scenes" / "h200x8.txt").read_text() + lines)
    search = os.pathsep.join(filter(None, (str(state), os.environ.get("LD_LIBRARY_PATH"))))
    return {"NVML_STUB": str(scene), "LD_LIBRARY_PATH": search}


class Neighbors:
    """How much of the machine is used by others while a training runs, read apart from trainmon: 0 to 1.

    What a supervisor and its training used is known once they are reaped, and orphans come to whoever asked for them.
    """

    def __init__(self) -> None:
        self.part = 0.0
        libc = ctypes.CDLL(None)
        self._knows = hasattr(libc, "prctl") and libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0

    def __enter__(self) -> Neighbors:
        self._before, self._there = self._now(), set(psutil.Process().children())
        return self

    def __exit__(self, *_: object) -> None:
        elapsed, used = (now - then for now, then in zip(self._now()[:2], self._before[:2], strict=True))
        until = time.monotonic() + LINGERS
        while not self._reap() and time.monotonic() < until:
            time.sleep(0.05)
        self._end_orphans()
        own = self._now()[2] - self._before[2]
        if self._knows:
            self.part = max(0.0, used - own) / (elapsed * (psutil.cpu_count() or 1))

    def _reap(self) -> bool:
        """Take the times of orphans that have ended. Returns whether no supervisor is left."""
        supervisors = [each for each in psutil.Process().children() if "monitor" in _words(each)]
        for each in psutil.Process().children():
            with contextlib.suppress(psutil.NoSuchProcess, ChildProcessError):
                if each.status() == psutil.STATUS_ZOMBIE:
                    os.waitpid(each.pid, os.WNOHANG)
        return not supervisors

    def _end_orphans(self) -> None:
        """End what a killed training left behind: a data loader's worker that sleeps never looks for its parent."""
        for each in set(psutil.Process().children()) - self._there:
            with contextlib.suppress(psutil.Error):
                each.kill()
                each.wait(LINGERS)

    def _now(self) -> tuple[float, float, float]:
        """Seconds: of the clock, of all cores at work, of children that have ended."""
        cores, ended = psutil.cpu_times(), os.times()
        work = sum(cores) - cores.idle - getattr(cores, "iowait", 0.0) - getattr(cores, "guest", 0.0)
        return time.monotonic(), work, ended.children_user + ended.children_system


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@contextlib.contextmanager
def burners(count: int) -> Iterator[None]:
    """So many programs of others that take a core each, at normal priority."""
    # Each in a session of its own, as other people's programs are: Linux shares the cores out by session first.
    started = [subprocess.Popen([sys.executable, "-c", BURNER], start_new_session=True) for _ in range(count)]
    try:
        yield
    finally:
        for burner in started:
            burner.kill()
        for burner in started:
            burner.wait()

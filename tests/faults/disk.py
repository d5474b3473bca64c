"""Disks that are full, small, slow, read-only or gone: the training goes on as bare, and what is lost is counted."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.faults.catalogue import NotHere, Result, fault
from tests.faults.place import BRIEF, HERE, Place, Training, steps_told, wait_for
from trainhooks.protocol import rundir

SMALL = 640 << 20  # bytes of a small disk, large enough for the output to be recorded


@contextmanager
def disk(place: Place, options: str) -> Iterator[None]:
    """The state directory as a disk of its own."""
    place.path.mkdir(exist_ok=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"mode=700,{options}", "none", place.path], check=False)
    if mounted.returncode:
        raise NotHere("no disk can be mounted here (not root)")
    try:
        yield
    finally:
        place.clear()
        subprocess.run(["umount", "-l", place.path], check=True)


def fill(place: Place) -> Path:
    """Write until nothing more goes onto the disk."""
    filler = place.path / "filler"
    with open(filler, "wb", buffering=0) as out:
        for size in (1 << 16, 1 << 10, 1):
            try:
                while True:
                    out.write(b"x" * size)
            except OSError:
                continue
    return filler


def ended_as_bare(training: Training, result: Result) -> None:
    """The exit code and the output that reached the caller are the training's own."""
    assert training.front is not None
    (training.at / "done").touch()
    if (code := training.front.wait(60)) != training.code:
        result.harmed.append(f"exit code {code}: {(training.at / 'err').read_text()[-500:]}")
    if (training.at / "out").read_text() != "".join(f"step {n + 1}\n" for n in range(training.count)):
        result.harmed.append("its output did not pass through as it was")


def how_it_ended(training: Training, result: Result) -> None:
    wait_for(lambda: not rundir.run_alive(training.run), "the training's end")
    wait_for(lambda: rundir.read_json(training.run / rundir.EXIT) is not None, "the exit's file")
    if (ended := rundir.read_json(training.run / rundir.EXIT) or {}).get("exit_code") != training.code:
        result.harmed.append(f"written down as {ended}")


def without_room(training: Training, result: Result) -> None:
    """What found no room is not lost unsaid: the report has to say that something is missing."""
    gone = training.count - steps_told(training.run)
    said = training.place.call("report", training.run.name).stdout.decode()
    result.say = f"{gone} steps found no room; the report says so"
    if gone and "INCOMPLETE" not in said:
        result.lost += gone


@fault("disk full: output, journal, exit code")
def full(place: Place, short: bool) -> Result:
    """Room comes back: then all is told. The output's own room was set aside before."""
    result = Result()
    with disk(place, f"size={SMALL}"):
        for _ in range(1 if short else 3):
            training = Training(place).launch()
            ready(training)
            filler = fill(place)
            training.goes_on(100)
            filler.unlink()
            told = training.count
            result.recovered = max(result.recovered, wait_for(lambda t=training, n=told: steps_told(t.run) >= n))
            ended_as_bare(training, result)
            wait_for(lambda t=training: rundir.read_json(t.run / rundir.EXIT), "the exit's file")
            result.add(training.account())
    return result


def ready(training: Training) -> None:
    """Wait until the first steps are in the journal, and room is set aside for the output."""
    files = [training.run / name for name in ("stdout.log", "stderr.log")]
    wait_for(lambda: steps_told(training.run) > 3, "the first steps in the journal")
    wait_for(lambda: all(path.stat().st_blocks * 512 > path.stat().st_size + 4096 for path in files), "the reserve")


@fault("disk full for good: exit code known, output passed on")
def full_for_good(place: Place, short: bool) -> Result:
    result = Result(injected=1)
    with disk(place, f"size={SMALL}"):
        training = Training(place).launch()
        ready(training)
        fill(place)
        training.goes_on(100)
        ended_as_bare(training, result)
        how_it_ended(training, result)
        without_room(training, result)
    return result


@fault("no inodes left")
def inodes(place: Place, short: bool) -> Result:
    result = Result(injected=1)
    with disk(place, "nr_inodes=60"):
        training = Training(place).launch()
        ready(training)
        with suppress(OSError):
            for number in range(100):
                (place.path / f"file{number}").touch()
        training.goes_on(100)
        ended_as_bare(training, result)
        result.lost = training.count - steps_told(training.run)
        how_it_ended(training, result)
    return result


@fault("journals and directory turn read-only")
def read_only(place: Place, short: bool) -> Result:
    """As after an error of the disk, but for the output's own files. Made writable again, nothing is missing."""
    result = Result()
    for _ in range(1 if short else 3):
        training = Training(place).launch()
        ready(training)
        held = [*training.run.glob("*.jsonl"), training.run]
        if subprocess.run(["chattr", "+i", *held], capture_output=True, check=False).returncode:
            raise NotHere("no file can be made immutable here (not root, or the file system knows no such thing)")
        try:
            told = steps_told(training.run)
            training.goes_on(50)
            if steps_told(training.run) > told + BRIEF:
                result.harmed.append("the fault was not one: the journal grew")
        finally:
            subprocess.run(["chattr", "-i", *held], check=True)
        done = training.count
        took = wait_for(lambda t=training, n=done: steps_told(t.run) >= n, "the rest in the journal")
        result.recovered = max(result.recovered, took)
        training.finish()
        result.add(training.account())
    return result


@fault("state directory read-only from the start")
def unwritable(place: Place, short: bool) -> Result:
    """It runs as bare, whoever launched it; `trainmon run` says in one line that nothing is recorded."""
    result = Result(injected=2, say="as bare; `trainmon run` says in one line that nothing is recorded")
    place.environment[rundir.STATE_VARIABLE] = "/proc/trainmon"  # refuses even root
    at = place.work()
    command = [*Training(place, steps=30).command]
    command[2] = str(at)
    done = subprocess.run(command, env=place.environment, capture_output=True, check=False, timeout=60)
    if (done.returncode, done.stdout.count(b"\n"), done.stderr) != (6, 30, b""):
        result.harmed.append(f"{done.returncode} {done.stderr.decode()}")
    launched = place.call("run", "--no-tui", "--", *command)
    if (launched.returncode, launched.stdout.count(b"\n"), launched.stderr.count(b"\n")) != (6, 30, 1):
        result.harmed.append(launched.stderr.decode())
    return result


@fault("limit on file sizes (quota) reached")
def quota(place: Place, short: bool) -> Result:
    """The limit holds for the hooks' process: its journal stops growing, the training does not."""
    result = Result(injected=1)
    training = Training(place)
    script = 'ulimit -f 32; exec "$@"'  # 16 KiB, or 32 in shells that count in KiB
    training.command = ["sh", "-c", script, "sh", *training.command]
    training.front = place.start(
        *training.command,
        stdout=subprocess.PIPE,
        stderr=open(training.at / "err", "wb"),  # noqa: SIM115
    )
    training.begun()
    training.goes_on(20)
    wait_for(lambda: biggest(training.run) > 15_000, "a journal at its limit")
    training.goes_on(100)
    (training.at / "done").touch()
    assert training.front.stdout is not None
    out = training.front.stdout.read().decode()
    if training.front.wait(60) != training.code or out != "".join(f"step {n + 1}\n" for n in range(training.count)):
        result.harmed.append((training.at / "err").read_text()[-500:])
    without_room(training, result)
    return result


def biggest(run: Path) -> int:
    return max(path.stat().st_size for path in run.glob("rank-*.jsonl"))


def _deleted(directory: Path) -> bool:
    """Delete it, as far as that goes at once: a file that comes in the midst keeps it."""
    shutil.rmtree(directory, ignore_errors=True)
    return not directory.exists()


@fault("directory deleted under it")
def deleted(place: Place, short: bool) -> Result:
    """What was in it is gone with it; the training and its exit code are not."""
    result = Result(say="the run's files are gone, by whoever deleted them")
    for _ in range(1 if short else 3):
        training = Training(place).launch()
        wait_for(lambda run=training.run: _deleted(run), "the directory to be gone")
        before = training.count
        wait_for(lambda t=training, n=before: t.count > n + 50, "the training's next step")
        ended_as_bare(training, result)
        result.injected += 1
    return result


@fault("slow disk: each write of the journal stalls")
def slow(place: Place, short: bool) -> Result:
    """A library in front of the system's write, which waits as long as a file is there."""
    if shutil.which("gcc") is None:
        raise NotHere("there is no gcc to build what slows the disk down")
    shim, stall = place.root / "slow.so", place.root / "stall"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", shim, HERE / "slow.c", "-ldl"], check=True)
    training = Training(place, pace=0.002)
    place.environment.update(SLOW_DISK=str(stall), SLOW_FILES=".jsonl")
    result = Result()
    training.command = ["env", f"LD_PRELOAD={shim}", *training.command]
    training.launch()
    ready(training)
    for _ in range(2 if short else 5):
        stall.touch()
        time.sleep(0.3)
        told = steps_told(training.run)
        training.goes_on(300)
        if steps_told(training.run) != told:
            result.harmed.append("the fault was not one: the journal grew")
        stall.unlink()
        done = training.count
        result.recovered = max(result.recovered, wait_for(lambda n=done: steps_told(training.run) >= n, "the rest"))
        result.injected += 1
    training.finish()
    found = training.account()
    found.injected = 0
    result.add(found)
    return result


@fault("disk that hangs for ever: the end does not wait for it")
def hanging(place: Place, short: bool) -> Result:
    shim, stall = place.root / "slow.so", place.root / "stall"
    if shutil.which("gcc") is None:
        raise NotHere("there is no gcc to build what slows the disk down")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", shim, HERE / "slow.c", "-ldl"], check=True)
    place.environment.update(SLOW_DISK=str(stall), SLOW_FILES=".jsonl")
    training = Training(place, pace=0.002)
    training.command = ["env", f"LD_PRELOAD={shim}", *training.command]
    training.launch()
    ready(training)
    stall.touch()
    training.goes_on(300)
    result = Result(injected=1)
    (training.at / "done").touch()
    began = time.monotonic()
    ended_as_bare(training, result)
    result.recovered = time.monotonic() - began
    without_room(training, result)
    return result

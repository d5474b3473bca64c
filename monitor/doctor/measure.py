"""What a GPU reaches in plain matrix products, measured when asked: in a child with the training's own torch.

This process holds no CUDA context. It watches the card by the driver meanwhile: its clock, its power, and whether
others use it, before and during the measurement.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from monitor.doctor import product_probe
from monitor.doctor.pythons import PATIENCE
from monitor.errors import UserError
from monitor.model.products import FORMATS, Product
from monitor.sources.gpu.source import GpuSource
from trainhooks import rundir
from trainhooks.devices import visible_devices
from trainhooks.events import MAX_NAME, Gpu, GpuProcess, clean

EVERY = 0.1  # seconds between two looks at the driver: a window of the measurement is twice as long
BEFORE = 1.0  # seconds of looks before the card is used: the driver's utilization is over as long
# Percent: what a screen's desktop takes. A card that is busier than this before we begin has other work to do.
IDLE = 5.0
LIMIT = 180.0  # seconds for all products together: some ten are enough


@dataclass
class Result:
    """One format."""

    format: str
    size: int = 0
    tflops: float = 0.0  # the median of the windows
    least: float = 0.0
    most: float = 0.0
    sm_clock: float | None = None  # MHz; medians of the driver's readings meanwhile
    power: float | None = None  # watts
    failed: str | None = None


@dataclass
class Measured:
    """What came of it."""

    name: str = ""
    uuid: str | None = None
    torch: str = ""
    cuda: str = ""
    card: Gpu | None = None  # as the driver told of it last
    results: list[Result] = field(default_factory=list)
    others: list[str] = field(default_factory=list)  # why the card was not ours alone, or is not known to have been

    def product(self) -> Product | None:
        """What is worth keeping; None where others may have had their share of the card, or nothing was measured."""
        tflops = {each.format: each.tflops for each in self.results if each.failed is None}
        if self.others or self.card is None or not tflops:
            return None
        card = self.card
        return Product(
            card.name or self.name, time.time(), tflops, card.uuid, card.power_limit, card.driver, card.simulated
        )


def measure(python: str | None = None) -> Measured:
    """
    Args:
        python: of the training; by default what `python` means here.

    Raises:
        UserError: there is no such Python, or no CUDA in it.
    """
    path = shutil.which(python) if python else shutil.which("python") or shutil.which("python3")
    if path is None:
        raise UserError(
            f"--python {python}: there is no such program" if python else "no python on PATH: --python PATH"
        )
    source = GpuSource()
    with _child(path) as child:
        try:
            return _follow(child, source, path)
        finally:
            source.close()


class _Child:
    """The process that computes, and what it says."""

    def __init__(self, path: str, errors: Any) -> None:
        # No run of ours; and fp32 is to be fp32.
        left_out = (rundir.RUN_VARIABLE, "NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE")
        self._errors = errors
        self.process = subprocess.Popen(
            [path, "-c", Path(product_probe.__file__).read_text(encoding="utf-8")],
            env={key: value for key, value in os.environ.items() if key not in left_out},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
        self.said: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        threading.Thread(target=self._listen, name="products", daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with contextlib.suppress(ValueError, RecursionError):
                found = json.loads(line)
                told = found.get("trainmon") if isinstance(found, dict) else None
                if isinstance(told, dict):
                    self.said.put(told)
        self.said.put(None)

    def go(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):  # it has died: its end comes as the next word
            self.process.stdin.write(b"go\n")
            self.process.stdin.flush()

    def end(self) -> None:
        """Also of one behind a wrapper: it reads that nobody asks any more."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()

    def last_words(self) -> str:
        self._errors.seek(0)
        told = self._errors.read(1 << 20).decode("utf-8", "replace").strip().splitlines()
        return clean(told[-1], 200) if told else f"it ended with code {self.process.wait()} and told nothing"


@contextlib.contextmanager
def _child(path: str) -> Iterator[_Child]:
    with tempfile.TemporaryFile() as errors:
        try:
            child = _Child(path, errors)
        except OSError as error:
            raise UserError(f"{path}: {error.strerror}") from None
        try:
            yield child
        finally:
            child.end()


class _Watch:
    """The driver's readings, by what went on meanwhile."""

    def __init__(self, source: GpuSource) -> None:
        self._source = source
        self.pid: int | None = None
        self.used_at = math.inf  # when the child was let at the card
        self.taken: dict[str, list[Gpu]] = {}  # by card

    def look(self) -> None:
        now = time.monotonic()
        for gpu in self._source.read(now, {self.pid} if self.pid else frozenset(), whole=True).gpus:
            self.taken.setdefault(gpu.uuid, []).append(gpu)

    def card(self, uuid: str | None) -> str | None:
        """The driver's UUID of the card that CUDA calls so; where it says nothing, the only one there is."""
        if uuid is None:
            return next(iter(self.taken)) if len(self.taken) == 1 else None
        bare = _bare(uuid)
        found = [each for each in self.taken if bare and _bare(each).startswith(bare)]
        return found[0] if len(found) == 1 else None


def _follow(child: _Child, source: GpuSource, path: str) -> Measured:
    """Hear the child out, and look at the driver all the while."""
    watch, found, begun = _Watch(source), Measured(), 0.0
    until = time.monotonic() + PATIENCE
    go_at: float | None = None
    while True:
        watch.look()
        now = time.monotonic()
        if go_at is not None and now >= go_at:
            watch.used_at, until, go_at = now, now + LIMIT, None
            child.go()
        try:
            told = child.said.get(timeout=EVERY)
        except queue.Empty:
            if now > until:
                raise UserError(f"{path}: no answer in time; nothing is kept") from None
            continue
        if told is None:
            raise UserError(f"{path}: {child.last_words()}")
        if "refused" in told:
            raise UserError(f"{path}: {clean(told['refused'], 200)}; name the Python of the training: --python PATH")
        if "ready" in told:
            watch.pid = told["ready"] if isinstance(told["ready"], int) else None
            found.torch, found.cuda = (clean(told.get(key, ""), 64) for key in ("torch", "cuda"))
            go_at = time.monotonic() + BEFORE
        elif "name" in told:
            found.name, found.uuid = clean(told["name"], MAX_NAME), _uuid(told.get("uuid"))
        elif "begin" in told:
            begun = time.monotonic()
        elif "format" in told:
            watch.look()
            found.results.append(_result(told, watch, watch.card(found.uuid), begun))
        elif "done" in told:
            return _judged(found, watch)


def _uuid(told: Any) -> str | None:
    """As trainhooks has it: the properties of a MIG instance may carry the UUID of its card."""
    word = next(iter(visible_devices(os.environ.get("CUDA_VISIBLE_DEVICES"))), "")
    if word.startswith("MIG-"):
        return clean(word, MAX_NAME)
    return (
        clean(told, MAX_NAME) if isinstance(told, str) else clean(word, MAX_NAME) if word.startswith("GPU-") else None
    )


def _bare(uuid: str) -> str:
    return uuid.lower().removeprefix("gpu-").removeprefix("mig-")


def _result(told: dict[str, Any], watch: _Watch, card: str | None, begun: float) -> Result:
    kind = next((each for each in FORMATS if each == told["format"]), "?")
    if "failed" in told:
        return Result(kind, failed=clean(told["failed"], 120))
    size = int(told["size"])
    each = sorted(2.0 * size**3 * told["products"] / second / 1e12 for second in told["seconds"])
    meanwhile = [gpu for gpu in watch.taken.get(card or "", ()) if gpu.t >= begun]
    clocks = [float(gpu.sm_clock) for gpu in meanwhile if gpu.sm_clock is not None]
    powers = [gpu.power for gpu in meanwhile if gpu.power is not None]
    clock, power = (median(values) if values else None for values in (clocks, powers))
    return Result(kind, size, median(each), each[0], each[-1], clock, power)


def _judged(found: Measured, watch: _Watch) -> Measured:
    """Whether the card was ours alone."""
    uuid = watch.card(found.uuid)
    if uuid is None:
        found.others = ["the driver does not tell of this GPU whether other programs used it"]
        return found
    before = [gpu for gpu in watch.taken[uuid] if gpu.t < watch.used_at]
    during = [gpu for gpu in watch.taken[uuid] if gpu.t >= watch.used_at]
    found.card = watch.taken[uuid][-1]
    if found.card.mig:
        found.others.append("it is split: CUDA_VISIBLE_DEVICES=MIG-... names the instance to measure")
        return found
    busy = max((gpu.utilization for gpu in before if gpu.utilization is not None), default=None)
    if busy is not None and busy > IDLE:
        found.others.append(f"it was {busy:.0f} % busy before the measurement began")
    found.others += _foreign(before, during)
    if busy is None and all(gpu.processes is None for gpu in during):
        found.others.append("the driver does not tell whether other programs used it")
    return found


def _foreign(before: list[Gpu], during: list[Gpu]) -> list[str]:
    """Other processes with a context on the card. Inside a container pids say nothing: there one is ours."""
    others: dict[int, GpuProcess] = {}
    for gpu in before:
        others.update((each[0], each) for each in gpu.processes or ())
    for gpu in during:
        unsure = [each for each in gpu.processes or () if each[3] is None and each[0] not in others]
        others.update((each[0], each) for each in unsure[1:])
        others.update((each[0], each) for each in gpu.processes or () if each[3] is False)
    return [f"{clean(name, 60) or 'a process'} (pid {pid}) used it, too" for pid, name, *_ in others.values()]

"""Measure the matrix-multiply throughput of a GPU on request, in a child process with the training's own torch.

This process holds no CUDA context. Before and during the measurement it reads clock, power and other users of the GPU
from the driver.
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
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from monitor.doctor import product_probe
from monitor.doctor.examination import PROBE_SECONDS
from monitor.errors import UserError
from monitor.model.compute.peaks import FORMATS, Peak, Product, kind_of, peak_of
from monitor.runs import product_store
from monitor.sources.gpu_source import GpuSource
from monitor.units import share
from trainhooks.protocol import rundir
from trainhooks.protocol.events import Gpu, GpuProcess
from trainhooks.protocol.limits import MAX_NAME, clean

EVERY = 0.1  # seconds between two readings of the driver: half a window of the measurement
BEFORE = 1.0  # seconds of readings before the card is used: the period of the driver's utilization
# Percent: the load of a desktop. A card busier than this before the measurement has other work.
MAX_IDLE_UTILIZATION = 5.0
LIMIT = 180.0  # seconds for all products together; about ten are typical


@dataclass
class Result:
    """The result for one number format."""

    format: str
    size: int = 0
    tflops: float = 0.0  # the median of the windows
    least: float = 0.0
    most: float = 0.0
    sm_clock: float | None = None  # MHz; median of the driver's readings during the measurement
    power: float | None = None  # watts
    failed: str | None = None


@dataclass
class Measured:
    """The result of the whole measurement."""

    name: str = ""
    uuid: str | None = None
    torch: str = ""
    cuda: str = ""
    card: Gpu | None = None  # as the driver last reported it
    results: list[Result] = field(default_factory=list)
    shared_use: list[str] = field(default_factory=list)  # why the card was, or may have been, used by other programs

    def product(self) -> Product | None:
        """Return the measurement to keep; None where other programs may have used the card, or nothing was measured."""
        tflops = {result.format: result.tflops for result in self.results if result.failed is None}
        if self.shared_use or self.card is None or not tflops:
            return None
        card = self.card
        return Product(
            card.name or self.name, time.time(), tflops, card.uuid, card.power_limit, card.driver, card.simulated
        )


def measure(python: str | None = None) -> Measured:
    """Measure the first GPU of a Python's torch.

    Args:
        python: the Python of the training; by default `python` on PATH.

    Raises:
        UserError: no such Python, or it has no CUDA.
    """
    path = shutil.which(python) if python else shutil.which("python") or shutil.which("python3")
    if path is None:
        raise UserError(
            f"--python {python}: no such program" if python else "no python on PATH; name one with --python PATH"
        )
    source = GpuSource()
    with _child(path) as child:
        try:
            return _follow(child, source, path)
        finally:
            source.close()


class _Child:
    """The process that computes, with its messages."""

    def __init__(self, path: str, errors: Any) -> None:
        # The child must not report to a run, and fp32 must stay fp32.
        left_out = (rundir.RUN_VARIABLE, "NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE")
        self._errors = errors
        self.process = subprocess.Popen(
            [path, "-c", Path(product_probe.__file__).read_text(encoding="utf-8")],
            env={key: value for key, value in os.environ.items() if key not in left_out},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
        self.messages: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        threading.Thread(target=self._listen, name="products", daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with contextlib.suppress(ValueError, RecursionError):
                parsed = json.loads(line)
                message = parsed.get("trainmon") if isinstance(parsed, dict) else None
                if isinstance(message, dict):
                    self.messages.put(message)
        self.messages.put(None)

    def go(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):  # it died: `None` follows as its last message
            self.process.stdin.write(b"go\n")
            self.process.stdin.flush()

    def end(self) -> None:
        """Kill the child. One behind a wrapper ends when its stdin closes."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()

    def last_error(self) -> str:
        self._errors.seek(0)
        error_lines = self._errors.read(1 << 20).decode("utf-8", "replace").strip().splitlines()
        return clean(error_lines[-1], 200) if error_lines else f"exited with code {self.process.wait()} without output"


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


class _Readings:
    """The driver's readings before and during the measurement."""

    def __init__(self, source: GpuSource) -> None:
        self._source = source
        self.pid: int | None = None
        self.used_at = math.inf  # when the child was allowed to use the card
        self.by_card: dict[str, list[Gpu]] = {}  # by card

    def poll(self) -> None:
        now = time.monotonic()
        for gpu in self._source.read(now, {self.pid} if self.pid else frozenset(), whole=True).gpus:
            self.by_card.setdefault(gpu.uuid, []).append(gpu)

    def card(self, uuid: str | None) -> str | None:
        """Return the driver's UUID of CUDA's device; without CUDA's UUID that of the only card; None where unknown."""
        if uuid is None:
            return next(iter(self.by_card)) if len(self.by_card) == 1 else None
        bare = _bare(uuid)
        matching = [known for known in self.by_card if bare and _bare(known).startswith(bare)]
        return matching[0] if len(matching) == 1 else None


def _follow(child: _Child, source: GpuSource, path: str) -> Measured:
    """Collect the results of the child while reading the driver."""
    readings, measured, begun = _Readings(source), Measured(), 0.0
    until = time.monotonic() + PROBE_SECONDS
    go_at: float | None = None
    while True:
        readings.poll()
        now = time.monotonic()
        if go_at is not None and now >= go_at:
            readings.used_at, until, go_at = now, now + LIMIT, None
            child.go()
        try:
            message = child.messages.get(timeout=EVERY)
        except queue.Empty:
            if now > until:
                raise UserError(f"{path}: timeout; nothing was saved") from None
            continue
        if message is None:
            raise UserError(f"{path}: {child.last_error()}")
        if "refused" in message:
            raise UserError(
                f"{path}: {clean(message['refused'], 200)}; select the Python of the training with --python PATH"
            )
        if "ready" in message:
            readings.pid = message["ready"] if isinstance(message["ready"], int) else None
            measured.torch, measured.cuda = (clean(message.get(key, ""), 64) for key in ("torch", "cuda"))
            go_at = time.monotonic() + BEFORE
        elif "name" in message:
            measured.name, measured.uuid = clean(message["name"], MAX_NAME), _uuid(message.get("uuid"))
        elif "begin" in message:
            begun = time.monotonic()
        elif "format" in message:
            readings.poll()
            measured.results.append(_result(message, readings, readings.card(measured.uuid), begun))
        elif "done" in message:
            return _with_shared_use(measured, readings)


def _uuid(message: Any) -> str | None:
    """Return the UUID of the device, as in trainhooks: a MIG instance may report the UUID of its card."""
    word = os.environ.get("CUDA_VISIBLE_DEVICES", "").partition(",")[0].strip()
    if word.startswith("MIG-"):
        return clean(word, MAX_NAME)
    return (
        clean(message, MAX_NAME)
        if isinstance(message, str)
        else clean(word, MAX_NAME)
        if word.startswith("GPU-")
        else None
    )


def _bare(uuid: str) -> str:
    return uuid.lower().removeprefix("gpu-").removeprefix("mig-")


def _result(message: dict[str, Any], readings: _Readings, card: str | None, begun: float) -> Result:
    kind = next((known for known in FORMATS if known == message["format"]), "?")
    if "failed" in message:
        return Result(kind, failed=clean(message["failed"], 120))
    size = int(message["size"])
    speeds = sorted(2.0 * size**3 * message["products"] / second / 1e12 for second in message["seconds"])
    during = [gpu for gpu in readings.by_card.get(card or "", ()) if gpu.t >= begun]
    clocks = [float(gpu.sm_clock) for gpu in during if gpu.sm_clock is not None]
    powers = [gpu.power for gpu in during if gpu.power is not None]
    clock, power = (median(values) if values else None for values in (clocks, powers))
    return Result(kind, size, median(speeds), speeds[0], speeds[-1], clock, power)


def _with_shared_use(measured: Measured, readings: _Readings) -> Measured:
    """Add the reasons why other programs used, or may have used, the GPU."""
    uuid = readings.card(measured.uuid)
    if uuid is None:
        measured.shared_use = ["the driver does not report whether other programs used this GPU"]
        return measured
    before = [gpu for gpu in readings.by_card[uuid] if gpu.t < readings.used_at]
    during = [gpu for gpu in readings.by_card[uuid] if gpu.t >= readings.used_at]
    measured.card = readings.by_card[uuid][-1]
    if measured.card.mig:
        measured.shared_use.append("the GPU is split into MIG instances: select one with CUDA_VISIBLE_DEVICES=MIG-...")
        return measured
    busy = max((gpu.utilization for gpu in before if gpu.utilization is not None), default=None)
    if busy is not None and busy > MAX_IDLE_UTILIZATION:
        measured.shared_use.append(f"the GPU was {busy:.0f}% busy before the measurement")
    measured.shared_use += _foreign(before, during)
    if busy is None and all(gpu.processes is None for gpu in during):
        measured.shared_use.append("the driver does not report whether other programs used this GPU")
    return measured


def _foreign(before: list[Gpu], during: list[Gpu]) -> list[str]:
    """Return a text for every other process with a context on the card.

    Inside a container pids are meaningless; one of the unknown processes is the child.
    """
    others: dict[int, GpuProcess] = {}
    for gpu in before:
        others.update((process[0], process) for process in gpu.processes or ())
    for gpu in during:
        unsure = [process for process in gpu.processes or () if process[3] is None and process[0] not in others]
        others.update((process[0], process) for process in unsure[1:])
        others.update((process[0], process) for process in gpu.processes or () if process[3] is False)
    return [f"{clean(name, 60) or 'a process'} (pid {pid}) used the GPU too" for pid, name, *_ in others.values()]


# The result, saved and printed.

HEAD = ("format", "size", "TFLOPS", "of peak", "min", "max", "SM clock", "power")
UNKNOWN = "–"


def keep(measured: Measured) -> tuple[Path | None, str | None]:
    """Store a measurement. Return its file, or the reason why it was not stored."""
    if not any(result.failed is None for result in measured.results):
        return None, "no measurement succeeded"
    product = measured.product()
    if product is None:
        return None, "other programs used the GPU, or that is unknown"
    try:
        return product_store.keep(product), None
    except OSError as error:
        return None, f"cannot write the file: {error.strerror or error}"


def text(measured: Measured, kept: Path | None, why_not: str | None) -> str:
    peak = peak_of(measured.name)
    lines = [
        _card(measured),
        "square matrices of random values, timed by CUDA events: median of five 0.2 s windows after warm-up",
    ]
    lines += ["", *_table([HEAD, *(_row(result, peak) for result in measured.results if result.failed is None)])]
    failed = [result for result in measured.results if result.failed is not None]
    lines += [f"{result.format}: not measured: {result.failed}" for result in failed]
    lines.append("")
    if peak is None:
        lines.append(f"no listed peak for {measured.name or 'this GPU'}: reports cannot compare a training with it")
    elif peak.note:
        lines.append(peak.note)
    lines += [f"note: {reason}" for reason in measured.shared_use]
    lines.append(f"saved in {kept}: reports compare trainings with it" if kept else f"not saved: {why_not}")
    return "\n".join(lines) + "\n"


def mapping(measured: Measured, kept: Path | None, why_not: str | None) -> dict[str, Any]:
    peak, card = peak_of(measured.name), measured.card
    return {
        "gpu": {
            "name": measured.name,
            "uuid": card.uuid if card is not None else measured.uuid,
            "driver": card.driver if card is not None else None,
            "power_limit": card.power_limit if card is not None else None,
            "simulated": card.simulated if card is not None else None,
            "listed_as": kind_of(measured.name) if peak is not None else None,
        },
        "torch": measured.torch,
        "cuda": measured.cuda,
        "products": [
            {**asdict(result), "peak": _tflops(peak, result.format), "share": _share(peak, result)}
            for result in measured.results
        ],
        "others": measured.shared_use,
        "kept": None if kept is None else str(kept),
        "not_kept": why_not,
    }


def _card(measured: Measured) -> str:
    card = measured.card
    parts = [measured.name or "unnamed GPU", *([card.uuid] if card is not None else [])]
    if card is not None:
        parts += [f"driver {card.driver}"] if card.driver else []
        limit, default_limit = card.power_limit, card.power_limit_default
        lower = f" of {default_limit:.0f} W" if limit and default_limit and limit < default_limit else ""
        parts += [f"power limit {limit:.0f} W{lower}"] if limit else []
        parts += ["SIMULATED"] if card.simulated else []
    return ", ".join([*parts, f"torch {measured.torch}"])


def _row(result: Result, peak: Peak | None) -> tuple[str, ...]:
    tflops = _tflops(peak, result.format)
    of = f"{share(_share(peak, result))} of {tflops:,g}" if tflops else UNKNOWN
    clock = UNKNOWN if result.sm_clock is None else f"{result.sm_clock:,.0f} MHz"
    power = UNKNOWN if result.power is None else f"{result.power:.0f} W"
    figures = (f"{value:,.4g}" for value in (result.tflops, result.least, result.most))
    reached, least, most = figures
    return result.format, f"{result.size:,}", reached, of, least, most, clock, power


def _tflops(peak: Peak | None, kind: str) -> float | None:
    return peak.tflops(kind) if peak is not None else None


def _share(peak: Peak | None, result: Result) -> float | None:
    most = _tflops(peak, result.format)
    return result.tflops / most if most and result.failed is None else None


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[place]) for row in rows) for place in range(len(HEAD))]
    return ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]

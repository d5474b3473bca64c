"""Every event trainmon knows, as one dataclass each: the one schema of wire, journal and export.

A journal is JSON Lines: one event a line, ``kind`` first, ``seq`` rising by one for each ``producer``.
A line on the socket is the same line. All times are seconds; ``t`` and ``start`` are readings of the
machine's monotonic clock, ``wall`` is the Unix time at ``t`` and serves display only. Optional fields are
left out of a line while they hold their default. Readers ignore kinds and fields that they do not know.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from dataclasses import dataclass, field
from typing import Any, Callable, ClassVar, Dict, List, Optional, Tuple, Union

from trainhooks.libraries import library

PROTOCOL = 1  # The major version; a reader that meets a higher one says so.

MAX_LINE = 64 * 1024  # bytes, newline included
MAX_NAME = 128  # characters of a phase, metric, span, role... name
MAX_TEXT = 4096  # characters of a note, a reason, a fact
MAX_METRICS = 2000  # metric names a run; what comes after shares the bucket OVERFLOW
MAX_INTEGER = 2**53  # beyond it JSON readers in other languages lose digits
MAX_GPU_PROCESSES = 64  # on one GPU
OVERFLOW = "overflow"

Number = Union[int, float, str]  # a non-finite number travels as "nan", "inf" or "-inf"

# Python 3.9 is supported inside trainings, and these annotations are read at run time (by the monitor's
# decoder), so they are written without the newer `X | Y` and builtin-generic spellings.


@dataclass
class Event:
    """What every event has: who made it, its place in that producer's sequence, and when (monotonic seconds)."""

    kind: ClassVar[str] = ""
    producer: str
    seq: int
    t: float


@dataclass
class Hello(Event):
    """First line of a producer: who it is, and how its clock relates to the wall clock."""

    kind: ClassVar[str] = "hello"
    protocol: int = PROTOCOL
    source: str = "hooks"  # hooks | recorder | console | native
    wall: float = 0.0
    process_started: Optional[float] = None  # monotonic seconds at which the process began
    name: Optional[str] = None
    host: Optional[str] = None
    pid: Optional[int] = None
    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    restart: int = 0  # elastic restarts so far
    facts: Dict[str, Any] = field(default_factory=dict)


@dataclass
class Facts(Event):
    """Learnt after hello: configuration, total steps, torch flags, model size, devices. Later values win."""

    kind: ClassVar[str] = "facts"
    name: Optional[str] = None
    total_steps: Optional[int] = None
    start_step: Optional[int] = None  # steps done before this process began (resumed runs)
    facts: Dict[str, Any] = field(default_factory=dict)


Phase = Tuple[str, float, str, int]  # name, seconds, clock ("host" or "cuda"), times entered


@dataclass
class Step(Event):
    """One finished step. The seconds of its phases and the unnamed rest (`other`) add up to ``duration``."""

    kind: ClassVar[str] = "step"
    index: int = 0  # counts from 1
    start: float = 0.0
    duration: float = 0.0  # 0: not known
    phases: List[Phase] = field(default_factory=list)
    tokens: Optional[int] = None
    padded_tokens: Optional[int] = None
    samples: Optional[int] = None
    forwards: Optional[int] = None  # calls of the model in training mode, where they are seen and more than one
    lengths: Optional[Tuple[float, float, float]] = None  # sequence lengths: min, mean, max
    metrics: Dict[str, Number] = field(default_factory=dict)
    status: str = "ok"  # ok | skipped
    reason: Optional[str] = None
    role: Optional[str] = None
    stage: Optional[str] = None
    epoch: Optional[Number] = None
    background: List[Phase] = field(default_factory=list)  # phases of other threads, beside the step
    thread: Optional[str] = None  # set when the step ran beside the main loop, in a thread of its own


@dataclass
class GpuTime(Event):
    """How long the device took over a step that was told before, by CUDA events; sent once the device is done.

    Only a sample of the steps is timed: each stands for ``every`` steps. The seconds of the phases and the unnamed
    rest add up to ``seconds``. For ``busy`` of these, at least, the stream certainly had work in its queue: from the
    host recording a mark to the device passing it. The interval itself is the most that it can have been busy. A step
    that was to be timed and could not be has no seconds.

    Nor has a ``delayed`` step, which is no usual one, and stands for none: the device was held up at its begin, so that
    the host got ahead and kernels ran back to back. Its ``busy`` is then all the device's work, but for what it did in
    the intervals that are ``unsure``: there it may have waited for the host.
    """

    kind: ClassVar[str] = "gpu_time"
    step: int = 0
    seconds: float = 0.0  # from the step's begin to its end, as the device came by
    phases: List[Tuple[str, float]] = field(default_factory=list)
    busy: Optional[float] = None
    busy_phases: List[Tuple[str, float]] = field(default_factory=list)  # `busy` by phase; `other` among them
    lag: Optional[float] = None  # the furthest that the device was behind the host at a mark; 0: its queue was empty
    every: int = 1  # how many steps this one stands for
    since: Optional[int] = None  # the step that was timed before this one
    stretch: Optional[float] = None  # device seconds from that step's begin to this one's: of all steps in between
    # Looks at the training's stack while the step ran: phase, place, how many, and how many of them came while the
    # device was not certainly busy.
    looks: List[Tuple[str, str, int, int]] = field(default_factory=list)
    # Garbage collection, in seconds of the host: in all steps from the one that was timed before up to this one; and in
    # this one, by phase, while the device was not certainly busy. None: nobody listened.
    gc: Optional[float] = None
    gc_phases: Optional[List[Tuple[str, float]]] = None
    dropped: int = 0  # steps so far that could not be timed
    delayed: Optional[float] = None  # seconds for which the device was held up first
    unsure: List[Tuple[str, float]] = field(default_factory=list)  # seconds by phase


@dataclass
class Span(Event):
    """A finished stretch with a name: load, checkpoint, eval... ``own`` is the part in no step and no inner span."""

    kind: ClassVar[str] = "span"
    name: str = ""
    start: float = 0.0
    duration: float = 0.0
    own: Optional[float] = None  # None (a foreign writer): all of it
    step: Optional[int] = None  # the step it lies in
    thread: Optional[str] = None  # set when it ran beside the main loop
    detail: Optional[str] = None

    @property
    def own_seconds(self) -> float:
        return self.duration if self.own is None else self.own


@dataclass
class Metrics(Event):
    """Numbers logged outside a step, or ones that became readable only after their step was sent."""

    kind: ClassVar[str] = "metrics"
    values: Dict[str, Number] = field(default_factory=dict)
    step: Optional[int] = None
    role: Optional[str] = None


@dataclass
class Pulse(Event):
    """Once a second: what is open now and for how long, so that a long phase is visible while it lasts."""

    kind: ClassVar[str] = "pulse"
    step: Optional[int] = None
    step_open: Optional[float] = None
    phase: Optional[str] = None
    phase_open: Optional[float] = None
    role: Optional[str] = None
    stage: Optional[str] = None
    spans: List[Tuple[str, float]] = field(default_factory=list)  # open spans, outermost first: name, seconds
    frame: Optional[str] = None  # the main thread's innermost user frame, when something is open for long
    dropped: int = 0  # events lost so far by this producer (full disk, full queue)


@dataclass
class Frames(Event):
    """Where the training thread's stack stood, by what was open then: looks taken since the last of these."""

    kind: ClassVar[str] = "frames"
    rows: List[Tuple[str, str, int]] = field(default_factory=list)  # phase, "other" or "between steps"; place; looks


@dataclass
class Note(Event):
    """A line for the people who watch."""

    kind: ClassVar[str] = "note"
    text: str = ""
    level: str = "info"  # info | warning
    code: Optional[str] = None


@dataclass
class Bye(Event):
    """Last line of a producer that ended in good order."""

    kind: ClassVar[str] = "bye"
    error: Optional[str] = None  # the exception that ended the program, if one did
    dropped: int = 0


# Process id, name, bytes of GPU memory (None: not told), whether it belongs to this run (None: cannot be told).
GpuProcess = Tuple[int, str, Optional[int], Optional[bool]]


@dataclass
class Gpu(Event):
    """One reading of one GPU, or of one MIG instance. What the driver does not tell is absent.

    The fields below ``Rarely`` come in some readings only, all of them together; a reader keeps the last ones.
    With ``delta`` what is left out of those above is as it was in the reading before, except what is ``unknown`` now.
    """

    kind: ClassVar[str] = "gpu"
    uuid: str = ""
    index: int = 0
    name: Optional[str] = None
    utilization: Optional[float] = None  # percent of time a kernel ran
    memory_used: Optional[int] = None  # bytes
    memory_total: Optional[int] = None
    temperature: Optional[float] = None  # Celsius
    power: Optional[float] = None  # watts
    power_limit: Optional[float] = None  # the one that is enforced
    sm_clock: Optional[int] = None  # MHz
    sm_clock_max: Optional[int] = None
    memory_clock: Optional[int] = None
    reasons: Optional[int] = None  # clock event reasons, the driver's bit mask
    simulated: bool = False
    ours: Optional[bool] = None  # whether the run uses it; known to readers who have joined it with the hooks' facts
    mig_of: Optional[str] = None  # of a MIG instance: the UUID of the GPU that it is a part of
    memory_utilization: Optional[float] = None  # percent of time its memory was read or written
    memory_reserved: Optional[int] = None  # bytes that the driver keeps for itself
    memory_temperature: Optional[float] = None
    temperature_margin: Optional[float] = None  # degrees left until it slows down
    power_average: Optional[float] = None  # over the last second
    power_instant: Optional[float] = None
    energy: Optional[float] = None  # joules since the driver was loaded
    pstate: Optional[int] = None  # 0 is the fastest
    thermal_violation: Optional[float] = None  # share of time in which heat held the clocks back, 0..1
    power_violation: Optional[float] = None  # the same for the power limit
    brake_violation: Optional[float] = None  # the same for the power brake
    pcie_rx: Optional[float] = None  # bytes a second, into the GPU
    pcie_tx: Optional[float] = None
    nvlink_rx: Optional[float] = None
    nvlink_tx: Optional[float] = None
    sm_active: Optional[float] = None  # percent of the SMs that were busy
    sm_occupancy: Optional[float] = None  # percent of the warps that could be resident
    tensor_active: Optional[float] = None  # percent of time the tensor cores worked
    memory_active: Optional[float] = None  # percent of the memory's bandwidth
    xid: Optional[int] = None  # the newest critical error since the reading before
    delta: bool = False  # only what changed is told
    unknown: List[str] = field(default_factory=list)  # fields that were told before, and that nobody knows now
    # Rarely
    driver: Optional[str] = None  # the driver's version
    bus_id: Optional[str] = None
    mig: Optional[bool] = None  # whether it is split into MIG instances
    memory_clock_max: Optional[int] = None
    power_limit_default: Optional[float] = None
    temperature_limit: Optional[float] = None  # where the hardware slows it down
    temperature_max: Optional[float] = None  # where the driver begins to
    temperature_shutdown: Optional[float] = None
    memory_temperature_max: Optional[float] = None
    pcie_gen: Optional[int] = None
    pcie_gen_max: Optional[int] = None  # that GPU and slot together can do
    pcie_width: Optional[int] = None
    pcie_width_max: Optional[int] = None
    ecc_errors: Optional[int] = None  # uncorrected, since the driver was loaded
    ecc_corrected: Optional[int] = None
    remapped_rows: Optional[int] = None  # rows of its memory replaced by spare ones
    remap_pending: Optional[bool] = None
    remap_failed: Optional[bool] = None
    processes: Optional[List[GpuProcess]] = None

    @property
    def slows_at(self) -> Optional[float]:
        """Celsius from which on its clock is lowered."""
        return self.temperature_max or self.temperature_limit


@dataclass
class Host(Event):
    """One reading of the host and of the training's process tree. Bytes, percent of one core, per-second rates.

    ``tree`` is the training's processes. What is dear to read comes in some readings only.
    """

    kind: ClassVar[str] = "host"
    cores: Optional[int] = None
    cpu: Optional[float] = None  # percent of the whole machine
    load1: Optional[float] = None
    memory_used: Optional[int] = None
    memory_total: Optional[int] = None
    swap_used: Optional[int] = None
    disk_free: Optional[int] = None  # where the run directory lies
    disk_read: Optional[float] = None  # bytes a second
    disk_write: Optional[float] = None
    net_in: Optional[float] = None
    net_out: Optional[float] = None
    tree_cpu: Optional[float] = None  # percent of one core, the training's process tree
    tree_rss: Optional[int] = None
    tree_processes: Optional[int] = None
    tree_threads: Optional[int] = None
    note: Optional[str] = None  # one honest line about what cannot be read (e.g. no NVIDIA driver)
    runnable: Optional[int] = None  # threads on a core or waiting for one, on the whole machine
    swap_in: Optional[float] = None  # bytes a second
    swap_out: Optional[float] = None
    shm_used: Optional[int] = None  # of /dev/shm, through which DataLoader workers hand over their batches
    shm_total: Optional[int] = None
    pressure_cpu: Optional[float] = None  # percent of the last 10 s in which some task waited for it
    pressure_io: Optional[float] = None
    pressure_memory: Optional[float] = None
    cpu_limit: Optional[float] = None  # cores that the training's cgroup may use; None: no limit, or not told
    cpu_throttled: Optional[float] = None  # share of time in which that limit held it back, 0..1
    memory_limit: Optional[int] = None  # bytes, of its cgroup
    memory_limited: Optional[int] = None  # bytes that count towards that limit
    work_free: Optional[int] = None  # free bytes where the training works: its current directory
    tree_read: Optional[float] = None  # bytes a second, from disks
    tree_write: Optional[float] = None
    tree_busiest: Optional[float] = None  # percent of one core: the busiest thread
    tree_busiest_name: Optional[str] = None
    tree_waiting: Optional[float] = None  # share of the time its threads could run in which they waited for a core
    tree_files: Optional[int] = None  # open files
    tree_workers: Optional[int] = None  # DataLoader workers
    tree_executors: Optional[int] = None  # other processes that the trainers started
    cpu_stolen: Optional[float] = None  # percent of the whole machine that its hypervisor gave to other machines


@dataclass
class Exit(Event):
    """The end of the training process, as its parent saw it."""

    kind: ClassVar[str] = "exit"
    exit_code: Optional[int] = None
    signal: Optional[int] = None


KINDS: Dict[str, type] = {
    cls.kind: cls for cls in (Hello, Facts, Step, GpuTime, Span, Metrics, Pulse, Frames, Note, Bye, Gpu, Host, Exit)
}

# Control characters (C0, DEL, C1), line separators, bidirectional controls, zero-width and lone surrogates:
# none of them has a meaning in a name, and each can corrupt a terminal or disguise a text.
_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028\u2029\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]+"
)


def clean(text: Any, limit: int = MAX_TEXT) -> str:
    """`text` as one printable line of at most `limit` characters; runs of control characters become one space."""
    if not isinstance(text, str):
        try:
            text = str(text)
        except Exception:  # a foreign __str__ may raise anything
            text = f"<{type(text).__name__}>"
    return _UNPRINTABLE.sub(" ", text[: 4 * limit]).strip()[:limit].rstrip()


def escaped(text: str) -> str:
    """`text` with what `clean` removes written as JSON escapes it. In a line of JSON that changes no value."""
    return _UNPRINTABLE.sub(lambda found: "".join(f"\\u{ord(each):04x}" for each in found.group()), text)


def number(value: Any) -> Optional[Number]:
    """`value` as it travels: an int, a finite float, or "nan", "inf", "-inf"; None where it is no number."""
    kind = type(value)
    if kind is float:
        return value if math.isfinite(value) else repr(value)
    if kind is int:
        return value if -MAX_INTEGER <= value <= MAX_INTEGER else _float(value)
    if kind is bool:
        return int(value)
    if isinstance(value, (int, float)) or hasattr(value, "__float__"):
        return _float(value)
    return None


def _float(value: Any) -> Optional[Number]:
    try:
        try:
            return number(float(value))
        except OverflowError:
            return "inf" if value > 0 else "-inf"
    except Exception:  # a foreign __float__ may raise anything; then it is no number
        return None


_ALWAYS = frozenset(("protocol", "rank", "status"))  # written even where they hold their default

_DEFAULTS: Dict[type, List[Tuple[str, Any]]] = {}


def _defaults(cls: type) -> List[Tuple[str, Any]]:
    rows = []
    for f in dataclasses.fields(cls):
        default = f.default if f.default_factory is dataclasses.MISSING else f.default_factory()
        rows.append((f.name, _DEFAULTS if f.name in _ALWAYS else default))
    _DEFAULTS[cls] = rows
    return rows


def to_dict(event: Event) -> Dict[str, Any]:
    """The event as the mapping that one line holds: `kind` first, defaults left out."""
    cls = type(event)
    out: Dict[str, Any] = {"kind": cls.kind}
    for name, default in _DEFAULTS.get(cls) or _defaults(cls):
        value = getattr(event, name)
        if value is not default and value != default:
            out[name] = value
    return out


def encoder() -> Callable[[Dict[str, Any]], bytes]:
    """The fastest JSON encoder at hand: msgspec where it is installed, else the standard library."""
    msgspec = library("msgspec")
    if msgspec is None:
        encode = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"), allow_nan=False, default=str).encode
        return lambda mapping: encode(mapping).encode("ascii")
    fast: Callable[[Dict[str, Any]], bytes] = msgspec.json.Encoder(enc_hook=str).encode
    return fast


def lines_encoder() -> Callable[[List[Dict[str, Any]]], bytes]:
    """As `encoder`, for several events at once: each on a line of its own, ended by a newline."""
    msgspec = library("msgspec")
    if msgspec is None:
        encode = encoder()
        return lambda mappings: b"".join(encode(mapping) + b"\n" for mapping in mappings)
    fast: Callable[[List[Dict[str, Any]]], bytes] = msgspec.json.Encoder(enc_hook=str).encode_lines
    return fast

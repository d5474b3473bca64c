"""Every event as a dataclass: the one schema of wire, journal and export.

A journal is JSON Lines: one event a line, ``kind`` first, ``seq`` rising by one for each ``producer`` and event. A line
of several steps takes as many numbers. A line on the socket is the same line. All times are seconds; ``t`` and
``start`` are readings of the machine's monotonic clock, ``wall`` is the Unix time at ``t``, for display only. Optional
fields are left out of a line while they hold their default. Readers ignore kinds and fields that they do not know.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Dict, List, Optional, Tuple, Union

from trainhooks.protocol.limits import Number
from trainhooks.protocol.places import Place

PROTOCOL = 2  # docs/protocol.md says what it is; a reader that meets a higher one says so. 1 had no `steps`.

# Trainings may run on Python 3.9, and the decoder reads these annotations at run time: no `X | Y`, no `list[X]`.
# Events are constructed by keyword only, as a test checks: `kw_only` dataclasses need Python 3.10.


@dataclass
class Event:
    """What every event has: its producer, its place in that one's sequence ("" and 0 until it is written), its time."""

    kind: ClassVar[str] = ""
    producer: str
    seq: int
    t: float

    @property
    def next_seq(self) -> int:
        """Return the number of the producer's next event."""
        return self.seq + 1


@dataclass
class Hello(Event):
    """The first line of a producer: who it is, and how its clock relates to the wall clock."""

    kind: ClassVar[str] = "hello"
    protocol: int = PROTOCOL
    source: str = "hooks"  # hooks | recorder | console | native | actor
    wall: float = 0.0
    process_started: Optional[float] = None  # monotonic seconds at which the process began
    name: Optional[str] = None
    host: Optional[str] = None
    pid: Optional[int] = None
    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    restart: int = 0  # elastic restarts so far
    role: Optional[str] = None  # among processes that differ in what they do: the class of an actor
    facts: Dict[str, Any] = field(default_factory=dict)


@dataclass
class Facts(Event):
    """Facts known after hello: configuration, total steps, torch flags, devices... Later values win."""

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
    duration: float = 0.0  # 0: unknown
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
    odd_parts: Optional[int] = None  # set by a reader: phases that it left out, as their time was no time
    uncounted: Optional[bool] = None  # set when the step did work of which neither tokens nor samples are known
    measured: Optional[bool] = None  # set when a trace of it, or of a step beside it, made it longer


# The work of a step, by the names of its fields; the first three are amounts that a speed is told by.
AMOUNTS = ("tokens", "padded_tokens", "samples", "forwards")
StepColumn = Union[int, List[Optional[int]], None]  # one number for all steps, or one each; null: not counted


@dataclass
class Steps(Event):
    """Consecutive finished steps of one kind, as columns: each list has an item for each step.

    The first step has the number ``seq`` and the index ``index``, each further one the next of both. A step's ``t`` is
    its end, ``start`` + ``duration``; the line's is that of the last one. All steps are done (``ok``), timed, of the
    main loop, and went through the same phases in the same order. Numbers are finite: a step with a loss that is not
    has a line of its own.
    """

    kind: ClassVar[str] = "steps"
    index: int = 0
    start: List[float] = field(default_factory=list)
    duration: List[float] = field(default_factory=list)
    phases: List[Tuple[str, List[float], str, int]] = field(default_factory=list)  # as Phase, seconds for each step
    tokens: StepColumn = None
    padded_tokens: StepColumn = None
    samples: StepColumn = None
    forwards: StepColumn = None
    metrics: Dict[str, List[Optional[Union[int, float]]]] = field(default_factory=dict)  # null: the step lacks it
    role: Optional[str] = None
    stage: Optional[str] = None
    epoch: Optional[Number] = None
    uncounted: Optional[bool] = None
    measured: Optional[bool] = None

    def __len__(self) -> int:
        return len(self.start)

    @property
    def next_seq(self) -> int:
        return self.seq + len(self.start)


@dataclass
class GpuTime(Event):
    """The time of an earlier step by the device's clock (CUDA events), sent once the device is done.

    Only a sample of the steps is timed: each stands for ``every`` steps. The seconds of the phases and the unnamed rest
    add up to ``seconds``. For ``busy`` of these at least the stream had work in its queue: from the host recording a
    mark to the device reaching it. A step that was to be timed and could not be has no seconds.
    """

    kind: ClassVar[str] = "gpu_time"
    step: int = 0
    seconds: float = 0.0  # from the step's begin to its end, as the device reached them
    phases: List[Tuple[str, float]] = field(default_factory=list)
    busy: Optional[float] = None
    busy_phases: List[Tuple[str, float]] = field(default_factory=list)  # `busy` by phase; `other` among them
    lag: Optional[float] = None  # the furthest that the device was behind the host at a mark; 0: its queue was empty
    every: int = 1  # how many steps this one stands for
    since: Optional[int] = None  # the step that was timed before this one
    stretch: Optional[float] = None  # device seconds from that step's begin to this one's: of all steps in between
    # Garbage collection in seconds of the host: in all steps since the last timed one; and in this step by phase, while
    # the device was not certainly busy. None: not measured.
    gc: Optional[float] = None
    gc_phases: Optional[List[Tuple[str, float]]] = None
    dropped: int = 0  # steps so far that could not be timed
    # No longer written: seconds for which older hooks held the device up first. Such a step is like no other.
    delayed: Optional[float] = None


# What ran in traced steps: its name, the phase in which the host began it, how often, seconds.
TraceRow = Tuple[str, str, int, float]


@dataclass
class Trace(Event):
    """What ran in a few steps in a row, as torch's profiler recorded it. Seconds and counts are of all these steps.

    Of a step that takes long, it is what ran in a part of it: then `steps` is 0, and `parts` says in which phases.
    """

    kind: ClassVar[str] = "trace"
    device: str = "cpu"  # "cuda": kernels, copies, memsets of the device; "cpu": operators of the host, their own time
    first: int = 0  # the first of these steps
    steps: int = 0
    seconds: float = 0.0  # from the first one's begin to the last one's end, by the host's clock
    rows: List[TraceRow] = field(default_factory=list)
    calls: List[TraceRow] = field(default_factory=list)  # of the CUDA runtime, by the host
    bytes: List[Tuple[str, str, int]] = field(default_factory=list)  # that copies moved: name, phase, bytes
    shapes: List[Tuple[str, str]] = field(default_factory=list)  # of the longest call of an operator
    busy: Optional[float] = None  # in which at least one row ran on the device
    kernel_seconds: Optional[float] = None  # the same with what ran side by side counted twice
    exposed: Optional[float] = None  # in which nothing but collectives ran on the device; None: none did
    idle: List[TraceRow] = field(default_factory=list)  # the device's gaps, by what the host did in them
    streams: Optional[int] = None
    pause: float = 0.0  # for which the training thread stood still, before and after
    left_out: Optional[str] = None  # what is missing, and why
    parts: List[Tuple[str, int, float]] = field(default_factory=list)  # phase, times in it, seconds of the device
    asked: Optional[int] = None  # its number among those of this process that a person asked for; None: nobody did


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
    frame: Optional[str] = None  # the training thread's innermost user frame, where no step has ended for long
    activity: Optional[str] = None  # what a library does there
    busy: Optional[float] = None  # cores that the process has used since the pulse before, where there is a frame
    # Other threads of the program, once nothing has ended for long, and where they have moved: name, line, activity.
    threads: Optional[List[Tuple[str, str, str]]] = None
    # The newest collectives that it has called, where torch records them: process group, count in it, call with sizes.
    collectives: Optional[List[Tuple[str, int, str]]] = None
    dropped: int = 0  # events lost so far by this producer (full disk, full queue)


@dataclass
class Frames(Event):
    """Stack samples of the training thread since the last such event, taken at equal distances."""

    kind: ClassVar[str] = "frames"
    # Phase, "other" or "between steps"; place; samples.
    rows: List[Tuple[str, Place, int]] = field(default_factory=list)
    begin: Optional[float] = None  # when the first of them was taken


@dataclass
class Collectives(Event):
    """When a rank called its collectives in some steps, where torch's flight recorder knows them: on the CPU."""

    kind: ClassVar[str] = "collectives"
    first: int = 0  # the first of these steps
    steps: int = 0
    begin: Optional[float] = None  # of the first step; the event's time is the end of the last one
    seconds: List[Tuple[str, float]] = field(default_factory=list)  # of these steps, and between them, by phase
    kinds: List[Tuple[str, str, str, int]] = field(default_factory=list)  # process group, call, phase, bytes
    # Row of `kinds`, count in the process group, step, and microseconds from `begin`: to the call, and to the next call
    # or phase.
    calls: List[Tuple[int, int, int, int, int]] = field(default_factory=list)


ASKED = "asked"  # the code of the note that a journal has of each request at the process's socket


@dataclass
class Note(Event):
    """A line of text that viewers show."""

    kind: ClassVar[str] = "note"
    text: str = ""
    level: str = "info"  # info | warning
    code: Optional[str] = None


@dataclass
class Bye(Event):
    """Last line of a producer that ended in good order."""

    kind: ClassVar[str] = "bye"
    error: Optional[str] = None  # the exception that ended the program, if one did
    place: Optional[str] = None  # the user's line that raised it
    dropped: int = 0


# Process id, name, bytes of GPU memory (None: unknown), whether it belongs to this run (None: unknown).
GpuProcess = Tuple[int, str, Optional[int], Optional[bool]]


@dataclass
class Gpu(Event):
    """One reading of a GPU or a MIG instance. What the driver does not report is absent.

    Fields below ``Rarely`` come in some readings only; a reader keeps the last ones. With ``delta`` fields left out are
    as in the reading before, except those that are ``unknown`` now.
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
    ours: Optional[bool] = None  # whether the run uses it; readers learn it from the hooks' facts
    mig_of: Optional[str] = None  # of a MIG instance: the UUID of the GPU that it is a part of
    memory_utilization: Optional[float] = None  # percent of time its memory was read or written
    memory_reserved: Optional[int] = None  # bytes that the driver keeps for itself
    memory_temperature: Optional[float] = None
    temperature_margin: Optional[float] = None  # degrees left until it slows down
    power_average: Optional[float] = None  # over the last second
    power_instant: Optional[float] = None
    energy: Optional[float] = None  # joules since the driver was loaded
    pstate: Optional[int] = None  # 0 is the fastest
    thermal_violation: Optional[float] = None  # share of time in which heat lowered the clocks, 0..1
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
    delta: bool = False  # only what changed is given
    unknown: List[str] = field(default_factory=list)  # fields that were known before
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
    users: Optional[List[str]] = None  # whose each of them is; empty: unknown

    @property
    def slows_at(self) -> Optional[float]:
        """Return the temperature from which the clock is lowered, degrees Celsius; None if unknown."""
        return self.temperature_max or self.temperature_limit


@dataclass
class Host(Event):
    """One reading of the host and of the training's process tree. What is slow to read comes in some readings only."""

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
    tree_rss: Optional[int] = None  # pages that its processes share are counted once, where the kernel tells them
    trainers_rss: Optional[int] = None  # of `tree_rss`, the processes that report steps
    tree_processes: Optional[int] = None
    tree_threads: Optional[int] = None
    note: Optional[str] = None  # what cannot be read (e.g. no NVIDIA driver)
    runnable: Optional[int] = None  # threads on a core or waiting for one, on the whole machine
    swap_in: Optional[float] = None  # bytes a second
    swap_out: Optional[float] = None
    shm_used: Optional[int] = None  # of /dev/shm, where DataLoader workers leave their batches
    shm_total: Optional[int] = None
    pressure_cpu: Optional[float] = None  # percent of the last 10 s in which some task waited for it
    pressure_io: Optional[float] = None
    pressure_memory: Optional[float] = None
    cpu_limit: Optional[float] = None  # cores that the training's cgroup may use; None: no limit, or unknown
    cpu_throttled: Optional[float] = None  # share of time in which that limit throttled it, 0..1
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
    tree_stopped: Optional[int] = None  # processes that a signal or a debugger has stopped
    tree_ended: Optional[int] = None  # processes that ended and that their parent has not waited for
    tree_ended_by: Optional[str] = None  # how the newest of them ended: `exit code 1`, `SIGKILL`
    output: Optional[float] = None  # bytes a second that the training prints
    cpu_stolen: Optional[float] = None  # percent of the machine that its hypervisor gave to others
    others_busiest: Optional[float] = None  # percent of one core: the busiest process beside it, on a busy host
    others_busiest_name: Optional[str] = None


@dataclass
class Exit(Event):
    """The end of the training process, as its parent saw it."""

    kind: ClassVar[str] = "exit"
    exit_code: Optional[int] = None
    signal: Optional[int] = None
    error: Optional[str] = None  # what the program printed last of an error, where it failed
    place: Optional[str] = None  # the user's line in it
    oom_kills: Optional[int] = None  # processes of its control group that the kernel killed meanwhile, out of memory


KINDS: Dict[str, type] = {
    cls.kind: cls
    for cls in (
        Hello,
        Facts,
        Step,
        Steps,
        GpuTime,
        Trace,
        Span,
        Metrics,
        Pulse,
        Frames,
        Collectives,
        Note,
        Bye,
        Gpu,
        Host,
        Exit,
    )
}

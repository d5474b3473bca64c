"""Views of runs that never ran: realistic ones for the eye, and hostile ones for the tests. No clock, no randomness."""

from __future__ import annotations

import math
import sys
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean

sys.path.insert(0, str(Path(__file__).parent))  # for those who import it from elsewhere

from sample_run import (
    BETWEEN,
    PADDING,
    PRICE,
    REASON,
    RECENT,
    SAMPLES,
    SKIPPED,
    STARTED,
    STARTUP,
    TOTAL,
    USUAL,
    Course,
    alerts,
    findings,
    loss,
    phases_of,
    reward,
    stage_of,
    tokens_of,
)

from monitor.diagnosis.diagnose import set_gain
from monitor.diagnosis.rules.stalls import BY_HAND, NOT_PYTHON, NOTHING_REPORTS, OUT_OF_REACH, STARTING_ADVICE
from monitor.model.device.throttle_watch import ThrottleEvent
from monitor.model.report import (
    Alert,
    Dropped,
    Finding,
    GpuRow,
    HostRow,
    MetricRow,
    NamedSeconds,
    Outcome,
    PhaseRow,
    Progress,
    RankRow,
    Report,
    Run,
    SlowStep,
    Straggler,
    Throughput,
    Wall,
)
from monitor.model.steps.baseline import MIN_SLOW_RATIO
from monitor.model.steps.series import Curve
from monitor.model.steps.step_intervals import Effect
from monitor.model.view import Details, GpuDetail, OpenWork, View
from monitor.units import brief, share
from trainhooks.protocol.events import Gpu, Host, Step

__all__ = ["USUAL", "loss", "phases_of", "reward"]  # of the run, by way of its views

GIB = 1024**3


def curve(values: list[float], first: int = 1, width: int = 1) -> Curve:
    x = [float(first + index * width) for index in range(len(values))]
    return Curve(x, list(values), list(values), list(values), width)


def curve_at(values: dict[int, float]) -> Curve:
    """Of what did not occur in every step."""
    return replace(curve(list(values.values())), x=[float(step) for step in values])


def phase_row(name: str, values: list[float], total: float) -> PhaseRow:
    ordered = sorted(values)
    return PhaseRow(
        name, sum(values) / total, fmean(values), ordered[len(values) // 2], ordered[int(len(values) * 0.95)],
        ordered[-1], "host", len(values),
    )  # fmt: skip


def metric_row(values: list[float]) -> MetricRow:
    finite = [value for value in values if math.isfinite(value)]
    last = values[-1] if math.isfinite(values[-1]) else "nan"
    return MetricRow(last, fmean(finite), min(finite), max(finite), len(values), len(values) - len(finite))


def gpu(index: int, busy: float = 87.0) -> GpuRow:
    return GpuRow(
        f"GPU-{index:08d}", index, "NVIDIA H200", busy - index, int((61.2 + index) * GIB), 139 * GIB, 68.0 + index,
        612.0 - 9 * index, 700.0, 1785 - 15 * index, 1980, ["power cap"] if index == 3 else [],
    )  # fmt: skip


def host_row(note: str | None = None) -> HostRow:
    return HostRow(
        cores=16, cpu=37.0, load1=6.21, memory_used=int(42.1 * GIB), memory_total=128 * GIB, swap_used=0,
        disk_free=211 * GIB, disk_read=12.5e6, disk_write=3.1e6, net_in=1.3e6, net_out=82e3, tree_cpu=512.0,
        tree_rss=int(18.2 * GIB), tree_processes=9, tree_threads=84, note=note,
    )  # fmt: skip


NO_GPU = "no NVIDIA GPU here: the driver's library libnvidia-ml.so.1 was not found"


def running(steps: int = 214, gpus: int = 1, extra_seconds: float = 42.0, pace: float = 1.0, gain: float = 1.0) -> View:
    """RL on code: `steps` of 600 are done, three of them slow, three skipped, and the next is open."""
    course = Course(steps, pace, gain)
    worked, open_for = sum(course.totals), extra_seconds + 1.5 if extra_seconds else 0.0
    elapsed = course.begins[-1] + open_for
    a_step = (course.begins[-1] - course.begins[0]) / steps
    left = max(0.0, (TOTAL - steps) * a_step - open_for)
    skipped = len(course.skipped())
    spans = {each.name: sum(other.duration for other in course.spans if other.name == each.name)
             for each in course.spans}  # fmt: skip
    report = Report(
        run=Run("20251009-rl-7f3a", "rl-code-rft", ["python", "rl_code.py"], "h200-box-04", STARTED, 1),
        outcome=Outcome("running"),
        progress=Progress(
            steps, TOTAL, steps - skipped, skipped, {REASON: skipped} if skipped else {}, steps / TOTAL,
            left, left * 0.93, left * 1.08, elapsed, elapsed / 3600 * PRICE, (elapsed + left) / 3600 * PRICE,
        ),
        throughput=Throughput(
            **asdict(course.rates(steps)), recent=course.rates(RECENT),
            recent_seconds=course.seconds(RECENT), recent_steps=RECENT,
        ),
        wall=Wall(elapsed, course.begins[0], worked + open_for, spans, BETWEEN * steps),
        phases=[phase_row(name, values, worked) for name, values in course.by_phase().items()],
        metrics={name: metric_row(list(values.values())) for name, values in course.metrics().items()},
        slow_steps=course.slow(),
        startup=[NamedSeconds(name, seconds) for name, seconds in STARTUP.items()],
        gpus=[gpu(index) for index in range(gpus)],
        host=host_row(None if gpus else NO_GPU),
        ranks=[RankRow(0, course.usual_step, None, steps)],
        findings=findings(course, elapsed),
        alerts=alerts(course),
        dropped=Dropped(),
    )  # fmt: skip
    numbered = list(enumerate(course.done, 1))
    for each in report.findings:
        set_gain(report, each)
    return View(
        report=report,
        verdict=report.findings[0],
        open=OpenWork(
            steps + 1, open_for, "generation", extra_seconds, silent_for=0.4,
            parts=[(None, 1.5), ("generation", extra_seconds)], typical=course.usual_step,
            limit=MIN_SLOW_RATIO * course.usual_step,
        ),
        step_seconds=curve(course.totals),
        phase_seconds={name: curve_at({step: each[name] for step, each in numbered if name in each})
                       for name in course.by_phase()},
        metrics={name: curve_at(values) for name, values in course.metrics().items()},
        tokens_per_second=curve_at({step: tokens_of(step) / course.totals[step - 1]
                                    for step in course.worked()}),
        console=tuple(course.printed(step) for step in range(max(1, steps - 64), steps + 1)),
        console_lines=1000 + steps,
        details=details(course, report.gpus, elapsed),
    )  # fmt: skip


def spread(values: list[float]) -> list[tuple[float, int]]:
    """Values counted in bars 8% wide."""
    bars: dict[int, int] = {}
    for value in values:
        bars[int(math.log(value) // 0.08)] = bars.get(int(math.log(value) // 0.08), 0) + 1
    return [(math.exp(0.08 * bar), count) for bar, count in sorted(bars.items())]


def event(course: Course, step: int) -> Step:
    seconds, total, start = course.done[step - 1], course.totals[step - 1], course.begins[step - 1]
    rows = [(name, value, "host", 1) for name, value in seconds.items() if name != "other"]
    if step in SKIPPED:
        why = {"status": "skipped", "reason": REASON}
        return Step("r0", step, start + total, step, start, total, rows, stage=stage_of(step), **why)
    metrics = {name: "nan" if math.isnan(value) else round(value, 8) for name, value in course.logged(step).items()}
    tokens = tokens_of(step)
    return Step(
        "r0", step, start + total, step, start, total, rows, tokens, tokens + PADDING, SAMPLES, metrics=metrics,
        stage=stage_of(step),
    )  # fmt: skip


def reading(row: GpuRow, t: float) -> Gpu:
    wave = 4 * math.sin(t / 9 + row.index)
    driver, others = int(0.6 * GIB), int(2.6 * GIB)
    mine = (row.memory_used or 0) - driver - others
    return Gpu(
        "node", int(t), t, row.uuid, row.index, row.name, (row.utilization or 0) + wave, row.memory_used,
        row.memory_total, row.temperature, (row.power or 0) + 5 * wave, row.power_limit,
        int((row.sm_clock or 0) + 3 * wave), row.sm_clock_max, simulated=row.simulated, reasons=0,
        memory_reserved=driver, temperature_max=87.0, pcie_rx=2.1e9, pcie_tx=0.4e9, driver="570.86.15",
        processes=[(4242, "python rl_code.py", mine, True), (977, "jupyter", others, False)], users=["ada", "bob"],
    )  # fmt: skip


def details(course: Course, gpus: list[GpuRow], now: float) -> Details:
    steps = course.steps
    return Details(
        steps=tuple(event(course, step) for step in range(max(1, steps - 127), steps + 1)),
        spans=tuple(course.spans),
        gpus={row.uuid: gpu_detail(row, now) for row in gpus},
        host=tuple(Host("node", at, now - 40 + at, cpu=30 + 25 * math.sin((at + steps) / 5)) for at in range(40)),
        kinds=tuple(course.kind(stage) for stage in dict.fromkeys(map(stage_of, course.worked()))),
        distributions={name: spread(values) for name, values in course.by_phase().items()},
        frames={"generation": [("rl_code.py:118 sample", 803), ("transformers/generation/utils.py:2701", 41)]},
        wall_offset=STARTED,
    )


def gpu_detail(row: GpuRow, now: float) -> GpuDetail:
    return GpuDetail(tuple(reading(row, now - 60 + second) for second in range(60)), 1950, (5, 5, 16, 16))


HOT = ((120, 147), (200, 214))  # steps; the second time goes on


def throttled() -> View:
    """Two simulated GPUs; one of them grew too hot for some thirty steps, and is so again."""
    view, course = running(gpus=2), Course(214)
    now = view.report.wall.total or 0.0
    times = [(course.begins[first - 1], course.end(last) if last < course.steps else now) for first, last in HOT]
    gpus = [replace(each, simulated=True, ours=True) for each in view.report.gpus]
    gpus[1] = replace(
        gpus[1], sm_clock=1290, temperature=88.0, reasons=["hardware slowdown", "hardware thermal"],
        throttle={"hardware thermal": sum(end - begin for begin, end in times)},
    )  # fmt: skip
    held = tuple(
        ThrottleEvent(gpus[1].uuid, 1, "hardware thermal", "HW thermal", "thermal-throttle", begin,
                 end if end < now else None, end - begin, 1980, 1290, 1215, 1980, 0.35,
                 effect=Effect(last - first + 1, sum(course.totals[first - 1 : last]), 0.21, first, last))
        for (begin, end), (first, last) in zip(times, HOT, strict=True)
    )  # fmt: skip
    detail = replace(view.details, throttle_events=held, gpus={each.uuid: gpu_detail(each, now) for each in gpus})
    return replace(view, report=replace(view.report, gpus=gpus), details=detail, label="SIMULATED GPU")


def of_ranks(number: int, slowest: int) -> View:
    """DDP; one rank's host is slow, and the others wait for it."""
    view = running(gpus=8)
    step, done = view.open.typical or 0.0, view.report.progress.steps_done
    waits = [0.0002 if rank == slowest else 0.12 + 0.002 * (rank % 9) for rank in range(number)]
    usual = {row.name: row.mean * step / sum(each.mean for each in view.report.phases) for row in view.report.phases}
    rows = [
        RankRow(
            rank, step, each * step, done, each * step, each,
            phases={**usual, "training": usual["training"] + each * step,
                    "generation": usual["generation"] - each * step},
        )
        for rank, each in enumerate(waits)
    ]  # fmt: skip
    part = fmean(each for rank, each in enumerate(waits) if rank != slowest)
    own, others = (rows[at].phases["generation"] for at in (slowest, 0))
    slow = Straggler(slowest, part, part * step, 63, "generation", own, others)
    title = f"Rank {slowest} is slowest: the others wait for it {share(part)} of the step-to-step time, at least"
    evidence = [f"{brief(slow.seconds)} a step in training, over the last {slow.steps} steps"]
    finding = Finding(
        code="straggler",
        severity="warning",
        title=title,
        evidence=evidence,
        advice="Compare its data wait",
        lost_fraction=part,
    )
    run = replace(view.report.run, ranks=number)
    report = replace(view.report, run=run, ranks=rows, straggler=slow, findings=[finding])
    set_gain(report, finding)
    return replace(view, report=report, verdict=finding)


def eight_ranks() -> View:
    return of_ranks(8, 3)


def many_ranks(number: int = 64) -> View:
    return of_ranks(number, 37)


EMPTY_REPORT_PARTS = {
    "throughput": Throughput(), "phases": [], "metrics": {}, "slow_steps": [], "startup": [], "gpus": [], "ranks": [],
    "findings": [], "alerts": [], "dropped": Dropped(),
}  # fmt: skip
NOTHING = Finding(code="nothing", severity="info", title="Nothing stands out yet: too few steps to judge")


def waiting() -> View:
    """Started a moment ago; the training has not said a word."""
    report = Report(
        run=Run(name="rl-code-rft"), outcome=Outcome(), progress=Progress(), wall=Wall(), host=HostRow(),
        **EMPTY_REPORT_PARTS,
    )  # fmt: skip
    return View(report, NOTHING, OpenWork(), Curve(), {}, {}, Curve())


def starting() -> View:
    view = waiting()
    report = replace(
        view.report,
        startup=[NamedSeconds("load models", 41.3), NamedSeconds("import torch", 8.1), NamedSeconds("other", 0.8)],
        progress=Progress(steps_total=TOTAL, elapsed_seconds=50.2), wall=Wall(50.2, 50.2), host=host_row(NO_GPU),
    )  # fmt: skip
    loading = Finding(code="none", severity="info", title="Starting: load models for 41 s")
    return replace(view, report=report, verdict=loading, open=OpenWork(spans=[("load models", 41.3)], silent_for=0.2))


def unheard() -> View:
    """Launched two minutes ago; nothing in it has reported in."""
    view = waiting()
    title = "No step seen in 2 min 10 s: nothing in the program has reported in"
    finding = Finding(
        code=NOTHING_REPORTS,
        severity="info",
        title=title,
        evidence=[STARTING_ADVICE, OUT_OF_REACH, NOT_PYTHON],
        advice=BY_HAND,
    )
    report = replace(
        view.report, progress=Progress(elapsed_seconds=130.2), wall=Wall(130.2, 130.2), findings=[finding],
        startup=[NamedSeconds("other", 130.2)], host=host_row(NO_GPU),
    )  # fmt: skip
    return replace(view, report=report, verdict=finding, console=("Loading the corpus", "epoch 1"), console_lines=2)


def from_console(imported: bool = False) -> View:
    view = running()
    return replace(view, report=replace(view.report, run=replace(view.report.run, source="console", imported=imported)))


def silent() -> View:
    view = running()
    return replace(view, open=replace(view.open, silent_for=35.2))


def ended(
    state: str, exit_code: int | None = None, signal: int | None = None, error: str | None = None, **run: float
) -> View:
    """One that finished has done all its steps."""
    view = running(TOTAL if state == "finished" else 214, extra_seconds=0.0, **run)
    report = replace(view.report, outcome=Outcome(state, exit_code, signal, error))
    return replace(view, report=report, open=OpenWork())


def replayed() -> View:
    return replace(running(), label="REPLAY", loading=0.43)


HOSTILE_NAMES = (
    "loss[/foo]",
    "[@click=app.quit]x",
    "\x1b]52;c;eHg=\x07clip",
    "\x1b[2J\x9b31mred\x1b[0m",
    "abc\u202etxt.exe\u2066\u200b",
    "漢字メトリック損失関数",
    "🔥👩‍👩‍👧🚀 loss",
    "x" * 10_000,
    "e\u0301\u0301\u0301combining",
    "tab\tnew\nline\rcr",
)


def hostile(name: str) -> View:
    """A foreign name in every place that can hold one."""
    view = running(gpus=2)
    report = view.report
    slow = SlowStep(88, 0, 65.3, 18.0, name, {name: 45.2, "training": 2.5}, {name: 9.0}, name, name)
    finding = Finding(code=name, severity="warning", title=name, evidence=[name], advice=name, lost_fraction=0.4)
    phase = replace(report.phases[0], name=name)
    report = replace(
        report,
        run=replace(report.run, name=name, host=name),
        outcome=Outcome("running", error=name),
        progress=replace(report.progress, skipped={name: 3}),
        wall=replace(report.wall, spans={name: 120.0}),
        phases=[phase, *report.phases[1:]],
        metrics={name: report.metrics["loss"], **report.metrics},
        slow_steps=[slow],
        startup=[NamedSeconds(name, 4.0)],
        gpus=[replace(each, name=name, reasons=[name]) for each in report.gpus],
        host=replace(report.host, note=name),
        findings=[finding],
        alerts=[Alert(STARTED + 5, name, name), Alert(STARTED + 6, name, str(slow), slow.step, slow.rank)],
    )
    return replace(
        view,
        report=report,
        verdict=finding,
        open=OpenWork(88, 9.0, name, 8.0, name, name, [(name, 4.0)], 0.1),
        phase_seconds={name: view.phase_seconds["generation"], **view.phase_seconds},
        metrics={name: view.metrics["loss"], **view.metrics},
        notes=[name],
        console=(name, *view.console),
        label=name,
    )

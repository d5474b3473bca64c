"""Views of runs that never ran: realistic ones for the eye, and hostile ones for the tests. No clock, no randomness."""

from __future__ import annotations

import math
import random
from dataclasses import replace

from monitor.diagnosis.silence import BY_HAND, CODE, NOT_PYTHON, OUT_OF_REACH, STARTING
from monitor.model.detail_rows import Details, GpuDetail, KindRow
from monitor.model.held_back import HeldBack
from monitor.model.overlap import Effect
from monitor.model.report import (
    Alert,
    Curve,
    Dropped,
    Finding,
    GpuRow,
    HostRow,
    MetricRow,
    NamedSeconds,
    OpenWork,
    Outcome,
    PhaseRow,
    Progress,
    RankRow,
    Rates,
    Report,
    Run,
    SlowStep,
    Straggler,
    Throughput,
    View,
    Wall,
)
from trainhooks.events import Gpu, Host, Span, Step

GIB = 1024**3
STARTED = 1_760_000_000.0
TOTAL = 600
USUAL = {"generation": 10.9, "test_generation": 2.4, "log_probs": 1.2, "execution": 1.9, "training": 1.4}
SLOW = {88: ("execution", 24.0), 131: ("generation", 31.0), 207: ("generation", 45.2)}


def phases_of(step: int) -> dict[str, float]:
    """Seconds of each phase of a step: always the same for the same step."""
    noise = random.Random(step)
    seconds = {name: usual * noise.uniform(0.86, 1.16) for name, usual in USUAL.items()}
    if step % 9 == 4:
        seconds["generation"] *= 0.35  # a cache hit
    if step in SLOW:
        name, value = SLOW[step]
        seconds[name] = value
    seconds["other"] = noise.uniform(0.15, 0.4)
    return seconds


def curve(values: list[float], first: int = 1, width: int = 1) -> Curve:
    x = [float(first + index * width) for index in range(len(values))]
    return Curve(x, list(values), list(values), list(values), width)


def reward(step: int) -> float:
    return 0.18 + 0.42 * (1 - math.exp(-step / 140)) + random.Random(step * 7).uniform(-0.09, 0.09)


def loss(step: int) -> float:
    if step in (61, 62):
        return math.nan
    return 0.9 + 1.9 * math.exp(-step / 45) + random.Random(step * 13).uniform(-0.06, 0.06)


def phase_row(name: str, values: list[float], total: float) -> PhaseRow:
    ordered = sorted(values)
    return PhaseRow(
        name, sum(values) / total, sum(values) / len(values), ordered[len(values) // 2],
        ordered[int(len(values) * 0.95)], ordered[-1], "host", len(values),
    )  # fmt: skip


def metric_row(values: list[float]) -> MetricRow:
    finite = [value for value in values if math.isfinite(value)]
    last = values[-1] if math.isfinite(values[-1]) else "nan"
    return MetricRow(last, sum(finite) / len(finite), min(finite), max(finite), len(values), len(values) - len(finite))


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
VERDICT = Finding(
    "sequential-generation",
    "warning",
    "Generation takes 61 % of every step: 11 generate() calls a step, each with a batch of one",
    ["generation 10.9 s of 18.0 s a step (median of 211 steps)", "11.0 calls a step, 1.0 sequence a call"],
    "Put the prompts of a step into one batched generate() call, or serve generation with vLLM",
    0.48,
)
FINDINGS = [
    VERDICT,
    Finding(
        "slow-steps", "info", "3 of 214 steps took more than twice the usual time; generation grew most in two of them",
        ["step 207 took 65.3 s, usual 18.0 s: generation 45.2 s", "together 72.1 s, 2 % of the run"],
        "Look for long completions: cap max_new_tokens, or stop early", 0.02, [88, 131, 207],
    ),
    Finding("steps-skipped", "info", "3 of 214 steps did no work (empty code generated)", ["they took 0.4 s each"], ""),
]  # fmt: skip
CONSOLE = tuple(
    f"[step {step}] reward={reward(step):.3f} loss={loss(step):.3f} passed {step % 4}/5 tests, kl=0.0{step % 7}1"
    for step in range(150, 215)
)


def running(steps: int = 214, gpus: int = 1, extra_seconds: float = 42.0) -> View:
    """RL on code: at step `steps` of 600, three slow steps, three skipped."""
    done = [phases_of(step) for step in range(1, steps + 1)]
    totals = [sum(each.values()) for each in done]
    names = list(done[0])
    stepping = sum(totals)
    between = 0.31 * steps
    elapsed = 44.6 + stepping + between + extra_seconds
    rates = Rates(1 / (sum(totals[-20:]) / len(totals[-20:])), 412.3, 0.88, None)
    metrics = {
        "reward": [reward(step) for step in range(1, steps + 1)],
        "loss": [loss(step) for step in range(1, steps + 1)],
        "gen_passed": [float(step * 7 % 6) for step in range(1, steps + 1)],
        "kl": [0.01 * math.sin(step / 11) ** 2 for step in range(1, steps + 1)],
        "learning_rate": [1e-5 * (1 - step / 700) for step in range(1, steps + 1)],
    }
    slow = [
        SlowStep(step, 0, totals[step - 1], 18.0, culprit, done[step - 1], dict(USUAL))
        for step, (culprit, _) in SLOW.items()
        if step <= steps
    ]
    mean = stepping / steps
    skipped = {"empty code generated": 3} if steps > 9 else {}
    report = Report(
        run=Run("20251009-rl-7f3a", "rl-code-rft", ["python", "rl_code.py"], "h200-box-04", STARTED, 1),
        outcome=Outcome("running"),
        progress=Progress(
            steps, TOTAL, steps - sum(skipped.values()), sum(skipped.values()), skipped, steps / TOTAL,
            (TOTAL - steps) * mean, (TOTAL - steps) * mean * 0.93, (TOTAL - steps) * mean * 1.08, elapsed,
            elapsed / 3600 * 2.49, elapsed / 3600 * 2.49 * TOTAL / steps,
        ),
        throughput=Throughput(steps / (stepping + between), 398.7, 0.84, None, rates),
        wall=Wall(elapsed, 44.6, stepping, {"checkpoint": 18.4}, between, 0.0),
        phases=[phase_row(name, [each[name] for each in done], stepping) for name in names],
        metrics={name: metric_row(values) for name, values in metrics.items()},
        slow_steps=slow,
        startup=[NamedSeconds("import torch", 8.1), NamedSeconds("load models", 31.0), NamedSeconds("CUDA init", 2.2)],
        gpus=[gpu(index) for index in range(gpus)],
        host=host_row(None if gpus else NO_GPU),
        ranks=[RankRow(0, 18.0, None, steps)],
        findings=FINDINGS,
        alerts=[Alert(STARTED + 1200.0, "skipped", "3 steps in a row did no work: empty code generated"),
                *(Alert(STARTED + 60.0 + 18 * each.step, "slow-step", str(each)) for each in slow)],
        dropped=Dropped(),
    )  # fmt: skip
    return View(
        report=report,
        verdict=VERDICT,
        open=OpenWork(
            steps,
            extra_seconds + 1.5,
            "generation",
            extra_seconds,
            silent_for=0.4,
            parts=[(None, 0.6), ("reward", 0.9), ("generation", extra_seconds)],
            usual=18.0,
        ),
        step_seconds=curve(totals),
        phase_seconds={name: curve([each[name] for each in done]) for name in names},
        metrics={name: curve(values) for name, values in metrics.items()},
        tokens_per_second=curve([7400 / total for total in totals]),
        console=CONSOLE,
        console_lines=1214 + steps,
        details=details(steps, done, report.gpus),
    )


def spread(values: list[float]) -> list[tuple[float, int]]:
    """Values counted in bars 8 % wide."""
    bars: dict[int, int] = {}
    for value in values:
        bars[int(math.log(value) // 0.08)] = bars.get(int(math.log(value) // 0.08), 0) + 1
    return [(math.exp(0.08 * bar), count) for bar, count in sorted(bars.items())]


def event(step: int, start: float) -> Step:
    seconds = phases_of(step)
    rows = [(name, value, "host", 1) for name, value in seconds.items() if name != "other"]
    metrics = {"reward": round(reward(step), 4), "loss": "nan" if math.isnan(loss(step)) else round(loss(step), 4)}
    skipped = step in (150, 171, 190)
    return Step(
        "r0", step, start + sum(seconds.values()), step, start, sum(seconds.values()), rows, 7400 + step, 9100, 4,
        metrics=metrics, status="skipped" if skipped else "ok", reason="empty code generated" if skipped else None,
    )  # fmt: skip


def reading(row: GpuRow, t: float) -> Gpu:
    wave = 4 * math.sin(t / 9 + row.index)
    mine = [(4242, "python rl_code.py", int(58 * GIB), True), (977, "jupyter", int(2.1 * GIB), False)]
    return Gpu(
        "node", int(t), t, row.uuid, row.index, row.name, (row.utilization or 0) + wave, row.memory_used,
        row.memory_total, row.temperature, (row.power or 0) + 5 * wave, row.power_limit,
        int((row.sm_clock or 0) + 3 * wave), row.sm_clock_max, simulated=row.simulated, reasons=0,
        memory_reserved=int(0.6 * GIB), temperature_max=87.0, processes=mine, pcie_rx=2.1e9, pcie_tx=0.4e9,
    )  # fmt: skip


def details(steps: int, done: list[dict[str, float]], gpus: list[GpuRow]) -> Details:
    starts = [0.0]
    for each in done:
        starts.append(starts[-1] + sum(each.values()) + 0.31)
    first = max(1, steps - 127)
    now = starts[-1]
    half = steps // 2
    return Details(
        steps=tuple(event(step, starts[step - 1]) for step in range(first, steps + 1)),
        spans=(
            *(Span("r0", at, starts[at], "checkpoint", starts[at], 6.1, step=at) for at in range(50, steps, 50)),
            *(Span("r0", at, starts[at], "eval", starts[at], 21.0, step=at) for at in range(90, steps, 90)),
        ),
        gpus={
            row.uuid: GpuDetail(tuple(reading(row, now - 60 + second) for second in range(60)), 1950, (5, 5, 16, 16))
            for row in gpus
        },
        host=tuple(Host("node", at, at, cpu=30 + 25 * math.sin((at + steps) / 5)) for at in range(40)),
        kinds=(
            KindRow("generator", "rollout", half, min(128, half), 13.4, {"generation": 10.9, "execution": 1.9}),
            KindRow("trainer", None, half, min(128, half), 2.6, {"log_probs": 1.2, "training": 1.4}),
        ),
        distributions={name: spread([each[name] for each in done]) for name in done[0]},
        frames={"generation": [("rl_code.py:118 sample", 803), ("transformers/generation/utils.py:2701", 41)]},
        wall_offset=STARTED,
    )  # fmt: skip


def throttled() -> View:
    """Two simulated GPUs; one of them grew too hot for thirty steps."""
    view = running(gpus=2)
    gpus = [replace(each, simulated=True, ours=True) for each in view.report.gpus]
    gpus[1] = replace(gpus[1], sm_clock=1290, temperature=88.0, reasons=["hardware slowdown", "hardware thermal"],
                      throttle={"hardware thermal": 541.0})  # fmt: skip
    effect = Effect(31, 560.0, 0.21, 120, 150)
    held = HeldBack(gpus[1].uuid, 1, "hardware thermal", "HW thermal", "thermal-throttle", 2200.0, 2741.0, 541.0,
                    1980, 1290, 1215, 1980, 0.35, effect=effect)  # fmt: skip
    detail = replace(view.details, held_back=(held,))
    return replace(view, report=replace(view.report, gpus=gpus), details=detail, label="SIMULATED GPU")


def many_ranks(number: int = 64) -> View:
    """A large job in which rank 37 makes the others wait."""
    view = eight_ranks()
    rows = [RankRow(rank, 0.412, 0.003 if rank == 37 else 0.04 + 0.001 * (rank % 9), 214) for rank in range(number)]
    finding = replace(view.verdict, title=view.verdict.title.replace("Rank 3", "Rank 37"))
    run = replace(view.report.run, ranks=number)
    report = replace(view.report, ranks=rows, straggler=Straggler(37, 0.12, 0.05, 63), findings=[finding], run=run)
    return replace(view, report=report, verdict=finding)


EMPTY_REPORT_PARTS = {
    "throughput": Throughput(), "phases": [], "metrics": {}, "slow_steps": [], "startup": [], "gpus": [], "ranks": [],
    "findings": [], "alerts": [], "dropped": Dropped(),
}  # fmt: skip
NOTHING = Finding("nothing", "info", "Nothing stands out yet: too few steps to judge")


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
    loading = Finding("none", "info", "Starting: load models, 41 s")
    return replace(view, report=report, verdict=loading, open=OpenWork(spans=[("load models", 41.3)], silent_for=0.2))


def unheard() -> View:
    """Launched two minutes ago; nothing in it has reported in."""
    view = waiting()
    title = "No step seen in 2 min 10 s: nothing in the program has reported in"
    finding = Finding(CODE, "info", title, [STARTING, OUT_OF_REACH, NOT_PYTHON], BY_HAND)
    report = replace(
        view.report, progress=Progress(elapsed_seconds=130.2), wall=Wall(130.2, 130.2), findings=[finding],
        startup=[NamedSeconds("other", 130.2)], host=host_row(NO_GPU),
    )  # fmt: skip
    return replace(view, report=report, verdict=finding, console=("Loading the corpus", "epoch 1"), console_lines=2)


def from_console(imported: bool = False) -> View:
    view = running()
    return replace(view, report=replace(view.report, run=replace(view.report.run, source="console", imported=imported)))


def eight_ranks() -> View:
    """DDP on eight GPUs; rank 3's host is slow, and the others wait for it."""
    view = running(gpus=8)
    rows = [RankRow(rank, 0.412, 0.003 if rank == 3 else 0.047 + 0.001 * rank, 214) for rank in range(8)]
    title = "Rank 3 is slowest: the others wait 12 % of each step for it, at least"
    finding = Finding("straggler", "warning", title, ["50 ms a step in backward"], "Compare its data wait", 0.11)
    run = replace(view.report.run, ranks=8)
    report = replace(view.report, run=run, ranks=rows, straggler=Straggler(3, 0.12, 0.05, 63), findings=[finding])
    return replace(view, report=report, verdict=finding)


def silent() -> View:
    view = running()
    return replace(view, open=replace(view.open, silent_for=35.2))


def ended(state: str, exit_code: int | None = None, signal: int | None = None, error: str | None = None) -> View:
    view = running()
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
    finding = Finding(name, "warning", name, [name], name, 0.4)
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
        alerts=[Alert(STARTED + 5, name, name), Alert(STARTED + 6, name, str(slow))],
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

"""The trace screen: what ran in a few traced steps, by class, and the costliest kernels or operators."""

from __future__ import annotations

from monitor import units
from monitor.model.device.kernel_classes import label_of
from monitor.model.device.trace_report import Kernel, TraceReport, TraceShare, figures
from monitor.model.view import View
from monitor.tui.drawing.rows import Row, column, text_width, wrap
from monitor.tui.panels.base import ViewOptions
from monitor.tui.screens.page import Body, screen

BAR = 24  # cells
PHASE, SHARE, TIME, CALLS = 14, 6, 9, 8


@screen
class Trace(Body):
    screen_name = "trace"
    title = "Traced steps"
    about = (
        "A few steps of the training are recorded by torch's profiler: kernels where a GPU is used and sets the pace,"
        " else operators, with their own time and the shapes of their longest call.",
        "A kernel belongs to the phase in which the host launched it, though it may run later. Shares are of the time"
        " in which something ran. The steps that a trace made longer are no part of medians and slow steps.",
    )

    entry_actions = ("ask",)  # not in the footer where no training can be asked

    def data(self, view: View, options: ViewOptions) -> object:
        return view.report.traced, view.report.run.facts.tracing, view.report.outcome.state, options.replay

    def do_ask(self) -> None:
        self.app.call_later(self.app.run_action, "ask_for_trace")

    def everything(self, view: View, options: ViewOptions, width: int) -> list[Row]:
        self.empty = options.replay or view.report.outcome.state != "running"
        trace = view.report.traced
        if trace is None:
            why = view.report.run.facts.tracing or "not known yet"
            return [
                [("  no step was traced", "muted")],
                [],
                *wrap([("  tracing: ", "muted"), (why, "text")], width - 2),
            ]
        rows = [*_head(trace, width), [], *_classes(trace.classes, width)]
        if trace.idle:
            rows += [[], [(" GPU idle while the host was", "muted")], *_classes(trace.idle, width)]
        return [*rows, [], *_kernels(trace, width)]


def _head(trace: TraceReport, width: int) -> list[Row]:
    steps, *rest = figures(trace)
    return wrap([(f" {steps}", "text bold"), (", " + ", ".join(rest), "text")], width - 1, 1)


def _classes(shares: list[TraceShare], width: int) -> list[Row]:
    out: list[Row] = []
    names = max((text_width(row.name) for row in shares), default=0)
    room = max(0, min(BAR, width - names - SHARE - TIME - 3))
    for row in shares:
        line: Row = [
            (" " + column(row.name, names) + " ", "text"),
            (column(units.bar(row.share, room), room), "accent"),
        ]
        line.append((column(units.share(row.share), SHARE, right=True), "text bold"))
        out.append([*line, (column(units.duration(row.seconds), TIME, right=True), "text")])
    return out


def _kernels(trace: TraceReport, width: int) -> list[Row]:
    longest = max((text_width(_name(row)) for row in trace.kernels), default=0)
    room = max(12, min(longest, width - PHASE - SHARE - TIME - CALLS - 3))
    what = "kernel" if trace.device == "cuda" else "operator"
    head = [(" " + column(what, room) + " " + column("phase", PHASE), "muted")]
    head += [
        (column(text, cells, right=True), "muted")
        for text, cells in (("share", SHARE), ("a step", TIME), ("calls", CALLS))
    ]
    return [head, *(_kernel(row, room) for row in trace.kernels)]


def _kernel(row: Kernel, room: int) -> Row:
    return [
        (" " + column(_name(row), room) + " " + column(row.phase, PHASE), "text"),
        (column(units.share(row.share), SHARE, right=True), "text bold"),
        (column(units.duration(row.seconds), TIME, right=True), "text"),
        (column(units.number(row.count), CALLS, right=True), "text"),
    ]


def _name(row: Kernel) -> str:
    name = label_of(row.name)
    return f"{name}  {row.shapes}" if row.shapes else name

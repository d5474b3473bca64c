"""An MFU that a program prints of itself: nanoGPT's is of an A100's peak, on whatever card it runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from monitor.model.compute.mfu import mfu_of_program
from monitor.model.report import Throughput
from monitor.model.steps.series import Column
from monitor.reports.run_text import text
from tests.console.conftest import Live
from trainhooks.protocol.events import Metrics, Note

from .conftest import Story, report_of
from .test_mfu import run

H100 = "NVIDIA H100 80GB HBM3"
SAID = ["console: left out, because it cannot be true: mfu -100.0"]
EACH = 989 / 312


def told(
    printed: float, ours: float | None, peak: float | None = 989.0, notes: tuple[str, ...] = (), name: str = "mfu"
) -> str | None:
    column = Column()
    for step in range(20):
        column.add(step, printed)
    return mfu_of_program({"loss": Column(), name: column}, notes, ours, peak, H100)


@pytest.mark.parametrize("name", ["mfu", "train/mfu", "MFU"])
@pytest.mark.parametrize(
    ("printed", "ours"), [(40.0, 0.126), (0.40, 0.126), (95.0, 0.30), (0.6, 0.0019), (44.0, 0.126)]
)
def test_a_share_of_an_a100_on_an_h100(printed: float, ours: float, name: str) -> None:
    words = told(printed, ours, name=name)
    assert words is not None and "relative to an A100's 312 TFLOPS; of NVIDIA H100 80GB HBM3's 989 TFLOPS" in words


def test_it_tells_what_that_is_of_this_card() -> None:
    assert told(40.0, 0.126) == (
        "the program prints MFU 40%, relative to an A100's 312 TFLOPS; of NVIDIA H100 80GB HBM3's 989 TFLOPS it is 13%"
    )


@pytest.mark.parametrize(
    ("printed", "ours", "peak"),
    [
        (40.0, 0.41, 989.0),  # of this card
        (40.0, 0.20, 989.0),  # of something else
        (40.0, 0.40, 312.0),  # an A100
        (40.0, 0.40, 362.0),  # an L40S, whose peak is much the same
        (40.0, None, 989.0),  # nothing to hold it against
        (40.0, 0.126, None),  # a card that is not listed
        (0.0, 0.126, 989.0),
        (20.0, 0.378, 165.0),  # half of what is known: the peak of two cards says as much
    ],
)
def test_of_everything_else_nothing_is_said(printed: float, ours: float | None, peak: float | None) -> None:
    assert told(printed, ours, peak) is None


def test_what_prints_as_nanogpt_does_divides_as_it_does() -> None:
    """It says -100% before it has measured: that gives it away where nothing else is known."""
    words = told(40.0, None, notes=tuple(SAID))
    assert words is not None and "like nanoGPT" in words and words.endswith("13%")
    assert told(20.0, 0.378, 165.0, tuple(SAID)) is not None
    assert told(40.0, None, 312.0, tuple(SAID)) is None and told(40.0, 0.41, notes=tuple(SAID)) is None


def throughput(printed: float, notes: tuple[str, ...] = (), facts: dict[str, Any] | None = None, **gpu: Any) -> Any:
    """A run of 40% of an H200's peak, that prints a share of its own."""
    story = run(facts, gpu)
    for note in notes:
        story.tell(Note, text=note)
    for step in range(20):
        story.tell(Metrics, values={"mfu": printed}, step=step)
    return report_of(story)


def test_a_report_says_so() -> None:
    report = throughput(40.0 * EACH * 0.66, facts=None)
    assert report.throughput.mfu_of_program is None, "it cannot be told what that is of"
    report = throughput(99.0, ("console: left out, because it cannot be true: mfu -100.0",), {"model": {}})
    assert report.throughput.mfu is None and "like nanoGPT" in report.throughput.mfu_of_program
    assert report.throughput.mfu_of_program in text(report)
    split = throughput(99.0, tuple(SAID), {"model": {}}, mig=True)
    assert split.throughput.mfu_of_program is None
    assert isinstance(split.throughput, Throughput)


def nanogpt(percent: float) -> Story:
    """What the recorder of the output tells of nanoGPT's own lines, beside a run of 40% of its GPU's peak."""
    live = Live()
    for step in range(0, 30):
        mfu = -100.0 if step < 5 else percent
        live.at(101.0 + step, f"iter {step}: loss 3.2012, time 1000.11ms, mfu {mfu:.2f}%\n")
    told = Story(producer="console", source="console")
    told.events += [replace(event, producer="console", seq=index + 1) for index, event in enumerate(live.end().events)]
    return told


def test_nanogpt_s_own_lines_on_another_card() -> None:
    """From the bytes that it prints, while the hooks tell its steps."""
    gpu = {"name": H100}
    report = report_of(run(gpu=gpu, step={"tokens": 2048, "samples": 1}), nanogpt(31.7))  # of an A100: 10% of an H100
    assert report.run.source == "hooks" and report.throughput.mfu == pytest.approx(0.1, rel=0.01)
    assert report.throughput.mfu_of_program is not None
    assert "prints MFU 32%, relative to an A100's 312 TFLOPS" in report.throughput.mfu_of_program
    assert "10%" in report.throughput.mfu_of_program and report.throughput.mfu_of_program in text(report)

    report = report_of(run({"model": {}}, gpu), nanogpt(31.7))
    assert report.throughput.mfu is None
    assert "an A100's 312 TFLOPS" in str(report.throughput.mfu_of_program)
    a100 = report_of(run(gpu={"name": "NVIDIA A100-SXM4-80GB"}, step={"tokens": 2048, "samples": 1}), nanogpt(31.7))
    assert a100.throughput.mfu is not None and a100.throughput.mfu_of_program is None

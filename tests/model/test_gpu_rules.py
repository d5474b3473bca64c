"""Findings on GPUs: named with their numbers where something is wrong, and silent where nothing is."""

from __future__ import annotations

from typing import Any

import pytest

from monitor.model.report import Finding

from .gpu_plays import Play

OVER = "(ended)"
SLOW_LINK = {"pcie_gen": 1, "pcie_gen_max": 5, "pcie_width": 16, "pcie_width_max": 16}
NARROW_LINK = {"pcie_gen": 4, "pcie_gen_max": 4, "pcie_width": 8, "pcie_width_max": 16}
STRANGER: dict[str, Any] = {"processes": [(7, "jupyter", 2**33, False)]}

# finding -> the readings that lead to it, and what it must say
TABLE: dict[str, tuple[dict[str, Any], str]] = {
    "thermal-throttle": ({"reasons": 0x40, "sm_clock": 1290}, "1,980 → 1,290 MHz"),
    "power-brake": ({"reasons": 0x88, "sm_clock": 1290}, "limited by the power brake: 1,980 → 1,290 MHz"),
    "hw-slowdown": ({"reasons": 0x8, "sm_clock": 1290}, "limited by hardware slowdown: 1,980 → 1,290 MHz"),
    "power-capped": ({"reasons": 0x4, "sm_clock": 1290}, "limited by power: 1,980 → 1,290 MHz"),
    "low-clocks": ({"reasons": 0x0, "sm_clock": 1290}, "throttle reason unavailable: 1,980 → 1,290 MHz"),
    "pcie-downtrained": (SLOW_LINK, "generation 1 of 5"),
    "gpu-error": ({"xid": 79}, "1 error: XID 79: "),
    "gpu-shared": (STRANGER, "jupyter (8.0 GiB)"),
}
HEALTHY: dict[str, dict[str, Any]] = {
    "thermal-throttle": {"temperature": 86.0, "reasons": 0x4},
    "power-brake": {"power": 700.0, "power_limit": 700.0, "reasons": 0x4},
    "hw-slowdown": {"reasons": 0x10},
    "power-capped": {"reasons": 0x4, "power_limit": 700.0, "power_limit_default": 700.0, "sm_clock": 1890},
    "low-clocks": {"reasons": 0x2, "sm_clock": 1755},
    "pcie-downtrained": {**SLOW_LINK, "utilization": 0.0},
    "gpu-error": {"ecc_errors": 12, "ecc_corrected": 900, "remapped_rows": 3, "xid": 0},
    "gpu-shared": {"processes": [(1, "python", 2**36, True), (2, "Xorg", 2**28, False), (3, "?", 2**34, None)]},
}


@pytest.mark.parametrize("code", TABLE)
def test_each_finding_is_made_once_with_its_numbers(code: str) -> None:
    fields, words = TABLE[code]
    (finding,) = Play().read(60).read(40, **fields).findings()
    assert finding.code == code and words in finding.title
    assert finding.title.startswith("GPU 0") and finding.evidence and finding.advice
    wanted = {"power-capped": "info", "gpu-error": "critical"}.get(code, "warning")
    assert finding.severity == wanted


@pytest.mark.parametrize("code", TABLE)
def test_each_finding_is_silent_on_a_healthy_gpu(code: str) -> None:
    assert Play().read(60).read(200, **HEALTHY[code]).codes() == []


@pytest.mark.parametrize("code", sorted(set(TABLE) - {"gpu-error"}))
def test_each_finding_is_silent_on_a_flicker(code: str) -> None:
    assert Play().read(60).read(1, **TABLE[code][0]).read(60).codes() == []


@pytest.mark.parametrize("code", sorted(set(TABLE) - {"gpu-error", "gpu-shared"}))
def test_each_finding_is_silent_on_an_idle_gpu(code: str) -> None:
    fields = {"reasons": 0, **TABLE[code][0]}
    assert Play().read(60).read(60, **{**fields, "reasons": fields["reasons"] | 0x1, "utilization": 0.0}).codes() == []


@pytest.mark.parametrize("code", sorted(set(TABLE) - {"gpu-error"}))
def test_a_short_event_that_is_over_is_information(code: str) -> None:
    fields, _ = TABLE[code]
    play = Play().read(60).read(40, **fields).read(100, **{"processes": [], **SLOW_LINK, "pcie_gen": 5})
    assert [finding.severity for finding in play.findings()] == ["warning" if code == "gpu-shared" else "info"]
    play.t = 4000.0
    (finding,) = play.findings(over=True)
    assert (finding.code, finding.severity) == (code, "info")
    assert OVER in finding.title and "ongoing" not in "".join(finding.evidence)


@pytest.mark.parametrize("code", sorted(set(TABLE) - {"gpu-error"}))
def test_no_event_is_open_after_the_end_of_the_run(code: str) -> None:
    (finding,) = Play().read(60).read(40, **TABLE[code][0]).findings(over=True)
    assert OVER in finding.title and "ongoing" not in "".join(finding.evidence)


def test_another_program_counts_from_the_first_step_on() -> None:
    """One that has ended by then, as the run before, has slowed down no step."""
    play = Play().read(60).read(40, **STRANGER).read(100, processes=[])
    assert not play.findings(first_step=110.0)
    assert play.findings(first_step=80.0)[0].code == "gpu-shared"
    (finding,) = Play().read(60).read(40, **STRANGER).findings(first_step=110.0)
    assert finding.code == "gpu-shared", "it goes on"


@pytest.mark.parametrize("code", sorted(set(TABLE) - {"gpu-error", "gpu-shared", "pcie-downtrained"}))
def test_a_finding_is_over_once_no_gpu_is_throttled(code: str) -> None:
    play = Play().read(60).read(40, **TABLE[code][0])
    assert not play.findings()[0].over
    (finding,) = play.read(100).findings()
    assert finding.over and finding.lost_fraction is not None, "what it cost is still known"


@pytest.mark.parametrize("code", sorted(set(TABLE) - {"gpu-error", "gpu-shared", "pcie-downtrained"}))
def test_an_event_that_ended_gains_nothing_though_it_may_come_back(code: str) -> None:
    play = Play().read(60).read(40, **TABLE[code][0]).read(4)
    [row], [finding] = play.evidence().episodes, play.findings()
    assert row.end is None and row.last_seen == 100.0 and finding.over and OVER in finding.title
    assert finding.lost_fraction is not None, "what it cost is still known"
    [again], [row] = play.read(2, **TABLE[code][0]).findings(), play.evidence().episodes
    assert row.last_seen is None and not again.over


def test_the_title_names_the_gpu_that_is_throttled_now() -> None:
    hot: dict[str, Any] = {"reasons": 0x40, "sm_clock": 1290}
    play = Play(2).read(60).read(50, gpu=0, **hot).read(8, gpu=1, **hot)
    assert play.findings()[0].title.startswith("GPU 1 ") and not play.findings()[0].over


@pytest.mark.parametrize(("clock", "severity"), [(900, "warning"), (1300, "warning"), (1700, "info")])
def test_a_low_clock_is_one_step_less_grave_than_what_it_costs(clock: int, severity: str) -> None:
    assert Play().read(60).read(40, reasons=0x20, sm_clock=clock).findings()[0].severity == severity
    assert Play().read(60).read(40, reasons=0x4, sm_clock=600).findings()[0].severity == "info"


def test_longer_steps_tell_more_than_the_clock() -> None:
    play = Play().train(60, 0.5).train(100, 0.8).read(60).read(40, reasons=0x20, sm_clock=1700)
    assert play.findings()[0].severity == "warning"


def cut(**more: Any) -> Play:
    """A training of two minutes on eight GPUs, one of which is too hot for 20 s and makes all wait."""
    play = Play(8).read(60, temperature=70.0)
    play.read(20, gpu=3, reasons=0x40, sm_clock=1290, temperature=93.0, temperature_max=87.0, **more)
    play.read(40, temperature=70.0)
    return play.train(60, 0.5).train(80, 0.59).train(120, 0.5)


def test_an_event_of_twenty_seconds_is_shown_with_its_steps() -> None:
    (finding,) = cut().findings(over=True)
    assert finding.code == "thermal-throttle" and finding.title.startswith("GPU 3 ") and OVER in finding.title
    assert finding.title.endswith("1,980 → 1,290 MHz, steps +18%")
    event, heat = finding.evidence
    for part in ("GPU 3 ", "19.0 s", "1,980 → 1,290 MHz", "steps 12", "18% longer", "1,980 MHz"):
        assert part in event
    assert "GPU 3 " in heat and "93 °C" in heat and "87 °C" in heat
    assert finding.severity == "info", "two percent of the time, and over"
    assert finding.steps[0] in (120, 121, 122, 123) and len(finding.steps) == 20
    assert finding.lost_fraction == pytest.approx(19 * 0.18 / 1.18 / 120, rel=0.05)


def test_the_same_without_the_cut_says_nothing() -> None:
    play = Play(8).read(120, reasons=0x4, temperature=70.0).train(120, 0.5)
    assert play.codes() == play.codes(over=True) == []


def test_other_peoples_gpus_are_not_this_runs_trouble() -> None:
    play = cut()
    assert play.findings(over=True, used_gpus={"GPU-0", "GPU-1"}) == []
    assert [finding.code for finding in play.findings(over=True, used_gpus={"GPU-3"})] == ["thermal-throttle"]


def test_several_gpus_are_one_finding() -> None:
    play = Play(8).read(60)
    for _ in range(30):
        play.read(1, reasons=0x20, sm_clock=1400)
    (finding,) = play.findings()
    assert finding.title.startswith("8 GPUs") and finding.title.endswith(": 1,980 → 1,400 MHz")
    assert len(finding.evidence) == 5 and finding.evidence[-1].startswith("4 more")
    assert finding.lost_fraction == pytest.approx(29 * (1 - 1400 / 1980) / 90, rel=0.01), "they wait for each other"


def test_open_events_come_before_costlier_ones() -> None:
    play = Play(2).read(60).read(60, gpu=0, reasons=0x40, sm_clock=990).read(30)
    play.read(10, gpu=1, reasons=0x20, sm_clock=1800)
    (finding,) = play.findings()
    assert finding.title.startswith("GPU 1 ") and finding.title.endswith(": 1,980 → 1,800 MHz")
    assert "GPU 0" in finding.evidence[1]


def test_without_clocks_nothing_is_invented() -> None:
    play = Play(sm_clock=None, sm_clock_max=None).read(60).read(30, reasons=0x40)
    (finding,) = play.findings()
    assert finding.code == "thermal-throttle" and "MHz" not in finding.title
    assert finding.lost_fraction is None and finding.steps == [] and finding.severity == "warning"


def test_a_lowered_limit_is_shown_with_the_default() -> None:
    play = Play(reasons=0x4, sm_clock=1380, power_limit=350.0, power_limit_default=700.0).read(60)
    (finding,) = play.findings()
    assert finding.code == "power-capped" and finding.title.endswith("at 1,380 MHz of 1,980")
    assert any("350 W" in line and "700 W" in line for line in finding.evidence)


def test_an_unknown_reason_bit_is_shown_in_hex() -> None:
    (finding,) = Play().read(60).read(40, reasons=0x800, sm_clock=1200).findings()
    assert finding.code == "low-clocks"
    assert "0x800" in finding.evidence[-1]


def errors(**fields: Any) -> list[Finding]:
    return Play().read(10, ecc_errors=5).read(10, **fields).findings()


def test_errors_by_their_kind() -> None:
    (program,) = errors(xid=31)
    assert program.severity == "warning" and "compute-sanitizer" in program.advice
    (memory,) = errors(ecc_errors=7)
    assert memory.severity == "critical" and "2 uncorrected memory errors during this run" in memory.title
    (both,) = errors(ecc_errors=6, xid=31)
    assert both.severity == "critical" and len(both.evidence) == 2 and "checkpoint" in both.advice
    (unknown,) = errors(xid=999)
    assert unknown.severity == "warning" and "XID 999" in unknown.title and "sanitizer" not in unknown.advice
    (waits,) = errors(remap_pending=True)
    assert waits.severity == "warning" and "reset" in waits.title
    assert errors(remap_failed=True)[0].severity == "critical"
    assert errors(ecc_errors=5) == errors(ecc_errors=0) == []


def test_half_of_the_lanes_is_information() -> None:
    (finding,) = Play().read(60, **NARROW_LINK).findings()
    assert finding.severity == "info" and "8 of 16 lanes" in finding.title
    assert Play().read(60, **{**NARROW_LINK, "pcie_width": 4}).findings()[0].severity == "warning"


def test_a_stranger_of_unknown_size_is_named() -> None:
    (finding,) = Play().read(60, processes=[(9, "blender", None, False)]).findings()
    assert "blender (memory unknown)" in finding.title


def test_application_clocks_are_named() -> None:
    (finding,) = Play().read(60).read(40, reasons=0x2, sm_clock=1290).findings()
    assert finding.code == "low-clocks" and "application clocks" in finding.title


def test_a_limit_that_was_there_all_the_time_has_no_known_cost() -> None:
    """Nothing tells what the clock would be without it: that is unknown, and not 0."""
    (finding,) = Play().read(100, reasons=0x4, sm_clock=1300, power_limit=300.0, power_limit_default=700.0).findings()
    assert finding.code == "power-capped" and finding.lost_fraction is None

"""Findings on GPUs: named with their numbers where something is wrong, and silent where nothing is."""

from __future__ import annotations

from typing import Any

import pytest

from monitor.diagnosis.gpu import WORTH
from monitor.model.report import Finding

from .gpu_plays import Play

SLOW_LINK = {"pcie_gen": 1, "pcie_gen_max": 5, "pcie_width": 16, "pcie_width_max": 16}
NARROW_LINK = {"pcie_gen": 4, "pcie_gen_max": 4, "pcie_width": 8, "pcie_width_max": 16}
STRANGER: dict[str, Any] = {"processes": [(7, "jupyter", 2**33, False)]}

# finding -> the readings that lead to it, and what it must say
TABLE: dict[str, tuple[dict[str, Any], str]] = {
    "thermal-throttle": ({"reasons": 0x40, "sm_clock": 1290}, "1,980 → 1,290 MHz"),
    "power-brake": ({"reasons": 0x88, "sm_clock": 1290}, "power brake: 1,980 → 1,290 MHz"),
    "hw-slowdown": ({"reasons": 0x8, "sm_clock": 1290}, "slowed down by its hardware: 1,980 → 1,290 MHz"),
    "power-capped": ({"reasons": 0x4, "sm_clock": 1290}, "power limit: 1,980 → 1,290 MHz"),
    "low-clocks": ({"reasons": 0x0, "sm_clock": 1290}, "no reason is given: 1,980 → 1,290 MHz"),
    "pcie-downtrained": (SLOW_LINK, "generation 1 of 5"),
    "gpu-error": ({"xid": 79}, "reports an error: XID 79: the GPU has fallen off the bus"),
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
def test_each_finding_is_told_once_with_its_numbers(code: str) -> None:
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
def test_what_was_short_and_is_over_is_no_alarm(code: str) -> None:
    fields, _ = TABLE[code]
    play = Play().read(60).read(40, **fields).read(100, **{"processes": [], **SLOW_LINK, "pcie_gen": 5})
    assert [each.severity for each in play.findings()] == ["info" if code in INFO else "warning"]
    play.t = 40 / WORTH + 60.0
    (finding,) = play.findings(over=True)
    assert (finding.code, finding.severity) == (code, "info")
    assert " is " not in finding.title.partition(":")[0] and "it goes on" not in "".join(finding.evidence)


@pytest.mark.parametrize("code", sorted(set(TABLE) - {"gpu-error"}))
def test_nothing_goes_on_after_the_end_of_the_run(code: str) -> None:
    (finding,) = Play().read(60).read(40, **TABLE[code][0]).findings(over=True)
    assert " was " in finding.title and "it goes on" not in "".join(finding.evidence)


INFO = ("power-capped", "pcie-downtrained")


@pytest.mark.parametrize("code", sorted(set(TABLE) - {"gpu-error", "gpu-shared", "pcie-downtrained"}))
def test_a_cause_is_over_once_no_gpu_is_held_back_any_more(code: str) -> None:
    play = Play().read(60).read(40, **TABLE[code][0])
    assert not play.findings()[0].over
    (finding,) = play.read(100).findings()
    assert finding.over and finding.lost_fraction is not None, "what it has cost is still told"


@pytest.mark.parametrize("code", sorted(set(TABLE) - {"gpu-error", "gpu-shared", "pcie-downtrained"}))
def test_an_episode_that_has_let_go_promises_nothing_though_it_may_come_back(code: str) -> None:
    play = Play().read(60).read(40, **TABLE[code][0]).read(4)
    [row], [finding] = play.evidence().episodes, play.findings()
    assert row.end is None and row.let_go == 100.0 and finding.over and " was " in finding.title
    assert finding.lost_fraction is not None, "what it has cost is still told"
    [again], [row] = play.read(2, **TABLE[code][0]).findings(), play.evidence().episodes
    assert row.let_go is None and not again.over


def test_the_gpu_that_is_held_back_is_named_and_not_the_one_that_has_let_go() -> None:
    hot: dict[str, Any] = {"reasons": 0x40, "sm_clock": 1290}
    play = Play(2).read(60).read(50, gpu=0, **hot).read(8, gpu=1, **hot)
    assert play.findings()[0].title.startswith("GPU 1 is too hot") and not play.findings()[0].over


def test_half_of_the_clock_gone_is_critical() -> None:
    assert Play().read(60).read(40, reasons=0x20, sm_clock=900).findings()[0].severity == "critical"
    assert Play().read(60).read(40, reasons=0x20, sm_clock=1200).findings()[0].severity == "warning"
    assert Play().read(60).read(40, reasons=0x4, sm_clock=600).findings()[0].severity == "info"


def test_steps_half_as_long_again_are_critical() -> None:
    play = Play().train(60, 0.5).train(100, 0.8).read(60).read(40, reasons=0x20, sm_clock=1700)
    assert play.findings()[0].severity == "critical"


def cut(**more: Any) -> Play:
    """A training of two minutes on eight GPUs, one of which is too hot for 20 s and makes all wait."""
    play = Play(8).read(60, temperature=70.0)
    play.read(20, gpu=3, reasons=0x40, sm_clock=1290, temperature=93.0, temperature_max=87.0, **more)
    play.read(40, temperature=70.0)
    return play.train(60, 0.5).train(80, 0.59).train(120, 0.5)


def test_a_cut_of_twenty_seconds_is_named_with_its_steps() -> None:
    (finding,) = cut().findings(over=True)
    assert finding.title == "GPU 3 was too hot and clocked down: 1,980 → 1,290 MHz, steps +18 %"
    told, heat = finding.evidence
    assert told.startswith("GPU 3 hardware thermal for 19.0 s, 1,980 → 1,290 MHz, steps 12")
    assert told.endswith("18 % longer, others like it at 1,980 MHz meanwhile")
    assert heat == "GPU 3 reached 93 °C under load; it slows down from 87 °C on"
    assert finding.severity == "warning"
    assert finding.steps[0] in (120, 121, 122, 123) and len(finding.steps) == 20
    assert finding.lost_fraction == pytest.approx(19 * 0.18 / 1.18 / 120, rel=0.05)


def test_the_same_without_the_cut_says_nothing() -> None:
    play = Play(8).read(120, reasons=0x4, temperature=70.0).train(120, 0.5)
    assert play.codes() == play.codes(over=True) == []


def test_other_peoples_gpus_are_not_this_runs_trouble() -> None:
    play = cut()
    assert play.findings(over=True, ours={"GPU-0", "GPU-1"}) == []
    assert [each.code for each in play.findings(over=True, ours={"GPU-3"})] == ["thermal-throttle"]


def test_several_gpus_are_one_finding() -> None:
    play = Play(8).read(60)
    for _ in range(30):
        play.read(1, reasons=0x20, sm_clock=1400)
    (finding,) = play.findings()
    assert finding.title == "8 GPUs are too hot and clocked down: 1,980 → 1,400 MHz"
    assert len(finding.evidence) == 5 and finding.evidence[-1] == "4 episodes more"
    assert finding.lost_fraction == pytest.approx(29 * (1 - 1400 / 1980) / 90, rel=0.01), "they wait for each other"


def test_the_worst_that_goes_on_is_told_first() -> None:
    play = Play(2).read(60).read(60, gpu=0, reasons=0x40, sm_clock=990).read(30)
    play.read(10, gpu=1, reasons=0x20, sm_clock=1800)
    (finding,) = play.findings()
    assert finding.title == "GPU 1 is too hot and clocked down: 1,980 → 1,800 MHz"
    assert "GPU 0" in finding.evidence[1]


def test_without_clocks_nothing_is_invented() -> None:
    play = Play(sm_clock=None, sm_clock_max=None).read(60).read(30, reasons=0x40)
    (finding,) = play.findings()
    assert finding.title == "GPU 0 is too hot and clocked down"
    assert finding.lost_fraction is None and finding.steps == [] and finding.severity == "warning"


def test_a_lowered_limit_is_told_with_what_the_card_comes_with() -> None:
    play = Play(reasons=0x4, sm_clock=1380, power_limit=350.0, power_limit_default=700.0).read(60)
    (finding,) = play.findings()
    assert finding.title == "GPU 0 is clocked down by its power limit: at 1,380 MHz of 1,980"
    assert "GPU 0 has a limit of 350 W; the card comes with 700 W" in finding.evidence


def test_an_unknown_bit_is_told_as_it_came() -> None:
    (finding,) = Play().read(60).read(40, reasons=0x800, sm_clock=1200).findings()
    assert finding.code == "low-clocks"
    assert "the driver gives a reason that is not known here: 0x800" in finding.evidence


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
    assert waits.severity == "warning" and "waits for a reset" in waits.title
    assert errors(remap_failed=True)[0].severity == "critical"
    assert errors(ecc_errors=5) == errors(ecc_errors=0) == []


def test_half_of_the_lanes_is_information() -> None:
    (finding,) = Play().read(60, **NARROW_LINK).findings()
    assert finding.severity == "info" and "8 of 16 lanes" in finding.title
    assert Play().read(60, **{**NARROW_LINK, "pcie_width": 4}).findings()[0].severity == "warning"


def test_a_stranger_of_unknown_size_is_named() -> None:
    (finding,) = Play().read(60, processes=[(9, "blender", None, False)]).findings()
    assert "blender (memory unknown)" in finding.title


def test_a_clock_that_was_set_is_said_to_be_set() -> None:
    (finding,) = Play().read(60).read(40, reasons=0x2, sm_clock=1290).findings()
    assert finding.code == "low-clocks" and "as its application clocks are set" in finding.title


def test_a_limit_that_was_there_all_the_time_has_no_known_cost() -> None:
    """Nothing tells what the clock would be without it: that is unknown, and not 0."""
    (finding,) = Play().read(100, reasons=0x4, sm_clock=1300, power_limit=300.0, power_limit_default=700.0).findings()
    assert finding.code == "power-capped" and finding.lost_fraction is None

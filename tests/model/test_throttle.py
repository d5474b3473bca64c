"""Episodes: each reason begins once, holds, clears, and is no alarm where nothing is wrong."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor import gpu_lines
from monitor.arrays import np
from monitor.model.device.throttle_events import CLEAR_SECONDS, MAX_EPISODES
from monitor.model.device.throttle_watch import (
    MAX_WATCHED_GPUS,
    ClockBaseline,
    Throttles,
    throttle_event,
    throttle_events,
)
from monitor.model.steps.baseline import StepKind
from monitor.model.steps.step_intervals import MAX_BLOCKS, StepTimes
from trainhooks.protocol.events import Gpu

from .gpu_plays import Play

# What each row of the table looks like while it lasts. A hardware slowdown comes with the bit of its cause.
ROWS: dict[str, dict[str, Any]] = {
    gpu_lines.SOFTWARE_THERMAL: {"reasons": 0x20, "sm_clock": 1500},
    gpu_lines.HARDWARE_THERMAL: {"reasons": 0x48, "sm_clock": 990},
    gpu_lines.HARDWARE_SLOWDOWN: {"reasons": 0x8, "sm_clock": 990},
    gpu_lines.POWER_BRAKE: {"reasons": 0x88, "sm_clock": 990},
    gpu_lines.POWER_CAP: {"reasons": 0x4, "sm_clock": 1500},
    gpu_lines.LOW_CLOCKS: {"reasons": 0x2, "sm_clock": 1200},
    gpu_lines.THERMAL: {"reasons": None, "thermal_violation": 0.4, "sm_clock": 1500},
}
LONG = 40  # seconds, beyond every hold


@pytest.mark.parametrize("reason", ROWS)
def test_each_row_begins_once_holds_and_clears(reason: str) -> None:
    play = Play().read(60).read(LONG, **ROWS[reason])
    assert play.news == [("GPU-0", True, reason)]
    (episode,) = play.episodes()
    assert (episode.start, episode.last, episode.end) == (61.0, 100.0, None)
    assert (episode.clock_from, episode.clock_to, episode.lowest) == (1980, *[ROWS[reason]["sm_clock"]] * 2)
    play.read(int(CLEAR_SECONDS) - 1)
    assert play.episodes()[0].open and len(play.news) == 1, "it may only have paused"
    play.read(60)
    assert play.news == [("GPU-0", True, reason), ("GPU-0", False, reason)]
    (episode,) = play.episodes()
    assert (episode.start, episode.end, episode.seconds) == (61.0, 100.0, 39.0)
    assert play.throttles.gpus["GPU-0"].throttle_seconds() == {reason: 39.0}


@pytest.mark.parametrize("reason", ROWS)
def test_each_row_can_come_again(reason: str) -> None:
    play = Play().read(60)
    for _ in range(3):
        play.read(LONG, **ROWS[reason]).read(30)
    assert [row[1] for row in play.news] == [True, False] * 3
    assert play.throttles.gpus["GPU-0"].throttle_seconds() == {reason: 117.0}


@pytest.mark.parametrize("reason", ROWS)
@pytest.mark.parametrize("innocent", ["idle", "flicker", "now and then"])
def test_each_row_keeps_silent_where_it_is_nothing(reason: str, innocent: str) -> None:
    play = Play().read(60)
    if innocent == "idle":  # the same bits and clocks with nothing to do
        row = ROWS[reason]
        play.read(LONG, **{**row, "reasons": (row["reasons"] or 0) | 0x1, "utilization": 0.0})
        play.read(LONG, **{**row, "utilization": 4.0})
    for _ in range({"flicker": 1, "now and then": 20}.get(innocent, 0)):
        play.read(1, **ROWS[reason]).read(7)
    assert play.news == [] and play.episodes() == []
    assert play.throttles.gpus["GPU-0"].throttle_seconds() == {}


def test_a_hold_is_of_seconds_and_of_readings() -> None:
    hot = ROWS[gpu_lines.HARDWARE_THERMAL]
    assert Play().read(60).read(20, every=0.1, **hot).read(20).news == [], "twenty readings of two seconds"
    assert Play().read(60).read(2, every=4.0, **hot).read(20).news == [], "two readings of four seconds"
    assert Play().read(60).read(3, every=4.0, **hot).news == [("GPU-0", True, gpu_lines.HARDWARE_THERMAL)]
    assert Play().read(60).read(25, **ROWS[gpu_lines.LOW_CLOCKS]).read(60).news == [], "clocks settle slowly"


def test_a_pause_of_some_seconds_is_not_the_end() -> None:
    play = Play().read(60)
    for _ in range(10):
        play.read(10, **ROWS[gpu_lines.SOFTWARE_THERMAL]).read(8)
    assert play.news == [("GPU-0", True, gpu_lines.SOFTWARE_THERMAL)]
    assert play.throttles.gpus["GPU-0"].throttle_seconds()[gpu_lines.SOFTWARE_THERMAL] == pytest.approx(100, abs=1)


def test_the_drivers_idle_bit_decides_even_where_the_last_second_was_busy() -> None:
    play = Play().read(60).read(60, reasons=0x1 | 0x20, sm_clock=345).read(60, reasons=0x1, sm_clock=345)
    assert play.news == []


@pytest.mark.parametrize("clock", [1980, 1875, 1755, 1410])
def test_a_power_cap_on_a_busy_gpu_is_normal(clock: int) -> None:
    play = Play(sm_clock=clock, reasons=0x4, power=699.0, power_limit=700.0, power_limit_default=700.0)
    for wobble in (0, 15, 45, -30) * 100:
        play.read(1, sm_clock=clock + wobble)
    assert play.news == []


def test_a_clock_that_moves_with_the_kernels_under_a_power_cap_is_normal() -> None:
    play = Play(reasons=0x4)
    for second in range(1200):
        play.read(1, sm_clock=1980 - 15 * (second % 24))
    assert play.news == []


@pytest.mark.parametrize("bits", [0x1, 0x2, 0x10, 0x100, 0x113, 0x200, 1 << 40])
def test_harmless_and_unknown_bits_at_full_speed_are_no_episode(bits: int) -> None:
    assert Play().read(60).read(300, reasons=bits & ~0x1).read(300, reasons=bits).news == []


def test_a_toggling_bit_is_one_episode() -> None:
    play = Play().read(60)
    for _ in range(20):
        play.read(1, **ROWS[gpu_lines.HARDWARE_THERMAL]).read(1)
    assert play.news == [("GPU-0", True, gpu_lines.HARDWARE_THERMAL)]
    assert play.throttles.gpus["GPU-0"].throttle_seconds()[gpu_lines.HARDWARE_THERMAL] == pytest.approx(19, abs=1)


def test_the_cause_is_named_and_not_its_general_bit_beside_it() -> None:
    play = Play().read(60).read(20, reasons=0x8 | 0x40 | 0x4, sm_clock=900)
    assert play.news == [("GPU-0", True, gpu_lines.HARDWARE_THERMAL)]
    play = Play().read(60).read(20, reasons=0x20 | 0x80, sm_clock=900)
    assert {row[2] for row in play.news} == {gpu_lines.SOFTWARE_THERMAL, gpu_lines.POWER_BRAKE}


def test_a_counter_of_the_driver_keeps_an_episode_where_its_bit_was_missed() -> None:
    play = Play().read(60).read(5, reasons=0x40, sm_clock=990).read(30, thermal_violation=0.6, sm_clock=1200)
    assert play.news == [("GPU-0", True, gpu_lines.HARDWARE_THERMAL)]
    assert Play().read(60).read(60, thermal_violation=0.02, brake_violation=0.0).news == []
    assert Play().read(60).read(9, brake_violation=0.5).news == [("GPU-0", True, gpu_lines.POWER_BRAKE)]


def test_a_lowered_limit_is_a_power_cap_from_the_first_moment() -> None:
    play = Play(reasons=0x4, sm_clock=1380, power_limit=350.0, power_limit_default=700.0).read(LONG)
    assert play.news == [("GPU-0", True, gpu_lines.POWER_CAP)]
    assert "at 1,380 MHz of 1,980" in throttle_event(play.throttles.gpus["GPU-0"], play.episodes()[0]).line()


def test_a_gpu_that_is_hot_from_the_first_moment_is_measured_by_what_comes_after() -> None:
    play = Play().read(30, **ROWS[gpu_lines.SOFTWARE_THERMAL])
    watch = play.throttles.gpus["GPU-0"]
    assert watch.clock_drop(play.episodes()[0]) is None
    assert throttle_event(watch, play.episodes()[0]).line() == "GPU 0 software thermal, at 1,500 MHz of 1,980"
    play.read(60)
    assert throttle_event(watch, play.episodes()[0]).line() == "GPU 0 software thermal, 1,980 → 1,500 MHz"


def test_others_of_its_kind_are_the_measure_where_it_has_none_itself() -> None:
    play = Play(4).read(60, gpu=2, sm_clock=1500)
    assert play.news == [("GPU-2", True, gpu_lines.LOW_CLOCKS)]
    (episode,) = play.episodes(2)
    assert (episode.clock_from, episode.clock_to, episode.others) == (1980, 1500, 1980)
    mixed = Play(2)
    for _ in range(90):
        mixed.read(1, gpu=0, name="NVIDIA A10", sm_clock=1500, sm_clock_max=1695)
    assert mixed.news == [], "a GPU of another kind is no measure"


def test_a_power_cap_beside_faster_ones_of_its_kind() -> None:
    play = Play(4, reasons=0x4).read(60, gpu=1, sm_clock=1500)
    assert play.news == [("GPU-1", True, gpu_lines.POWER_CAP)]
    assert (
        throttle_event(play.throttles.gpus["GPU-1"], play.episodes(1)[0]).line() == "GPU 1 power cap, 1,980 → 1,500 MHz"
    )
    assert Play(4, reasons=0x4).read(300, gpu=1, sm_clock=1770).news == [], "chips differ"


def test_a_reason_that_comes_ends_the_riddle() -> None:
    play = Play().read(60).read(40, reasons=0, sm_clock=1500).read(60, reasons=0x4, sm_clock=1680)
    assert play.news == [
        ("GPU-0", True, gpu_lines.LOW_CLOCKS),
        ("GPU-0", False, gpu_lines.LOW_CLOCKS),
        ("GPU-0", True, gpu_lines.POWER_CAP),
    ]
    beside = Play(2).read(60, gpu=1, sm_clock=1500).read(30, gpu=1, sm_clock=1680, reasons=0x4)
    assert beside.news == [("GPU-1", True, gpu_lines.LOW_CLOCKS), ("GPU-1", False, gpu_lines.LOW_CLOCKS)]


def test_low_clocks_do_not_become_the_new_measure() -> None:
    play = Play(sm_clock_max=None).read(30).read(3000, sm_clock=1200)
    assert play.news == [("GPU-0", True, gpu_lines.LOW_CLOCKS)] and play.episodes()[0].open


@pytest.mark.parametrize("utilization", [None, 50.0])
def test_low_clocks_need_full_load(utilization: float | None) -> None:
    assert Play().read(60).read(300, sm_clock=1200, utilization=utilization).news == []


def test_a_gap_in_the_watch_is_not_claimed() -> None:
    play = Play().read(60).read(20, **ROWS[gpu_lines.HARDWARE_THERMAL])
    play.t += 3600
    play.read(20, **ROWS[gpu_lines.HARDWARE_THERMAL])
    assert [row[1] for row in play.news] == [True, False, True]
    assert play.throttles.gpus["GPU-0"].throttle_seconds() == {gpu_lines.HARDWARE_THERMAL: 38.0}


def test_rare_readings_of_the_link_and_of_processes() -> None:
    """They come every ten seconds, and under load only do they say something of the link."""
    slow = {"pcie_gen": 1, "pcie_gen_max": 5, "pcie_width": 16, "pcie_width_max": 16}
    foreign = {"processes": [(1, "train", 2**36, True), (7, "jupyter", 2**33, False), (8, "Xorg", 2**27, False)]}
    play = Play()
    for _ in range(10):
        play.read(1, **slow, **foreign).read(9)
    assert {row[2] for row in play.news} == {gpu_lines.PCIE_LINK, gpu_lines.FOREIGN}
    assert play.throttles.gpus["GPU-0"].throttle_seconds() == {}, "neither lowers a clock"
    shared = next(each for each in play.episodes() if each.reason == gpu_lines.FOREIGN)
    assert shared.seconds == 90.0 and shared.detail == "jupyter (8.0 GiB)"
    for _ in range(3):
        play.read(1, **{**slow, "pcie_gen": 5}, processes=[]).read(9)
    assert [row[1] for row in play.news] == [True, True, False, False]
    rested = Play().read(60, **slow)
    for _ in range(10):
        rested.read(1, **slow, utilization=0.0).read(5, utilization=0.0)
    assert rested.news == [("GPU-0", True, gpu_lines.PCIE_LINK)], "at rest nothing is known of it"
    resting = Play()
    for _ in range(10):
        resting.read(1, **slow, utilization=0.0).read(9)
    assert resting.news == [], "a link rests while the GPU does"


# Lines


def test_the_line_people_want() -> None:
    play = Play(4).train(60, 0.5).read(60).read(30, gpu=3, **ROWS[gpu_lines.HARDWARE_THERMAL], temperature=93.0)
    play.train(90, 0.59).read(30).train(120, 0.5)
    (row,) = throttle_events(play.throttles, play.timelines)
    assert row.line("since 14:02") == "GPU 3 hardware thermal since 14:02, 1,980 → 990 MHz, steps +18%"
    assert row.effect.steps == pytest.approx(50, abs=2)
    assert row.effect.first == pytest.approx(121, abs=2) and row.effect.last == pytest.approx(171, abs=2)
    assert throttle_events(play.throttles, play.timelines, used_gpus={"GPU-0"}) == []


def test_a_late_reader_says_the_same() -> None:
    """Who attaches late reads all steps first, then all GPU readings."""
    late, live = Play(), Play()
    late.train(60, 0.5).train(90, 0.75).train(120, 0.5)
    late.read(60).read(30, **ROWS[gpu_lines.POWER_BRAKE]).read(30)
    live.read(30).train(20, 0.5).read(30).train(60, 0.5)
    live.read(30, **ROWS[gpu_lines.POWER_BRAKE]).train(90, 0.75).read(30).train(120, 0.5)
    assert throttle_events(late.throttles, late.timelines) == throttle_events(live.throttles, live.timelines)
    assert throttle_events(late.throttles, late.timelines)[0].effect.slower == pytest.approx(0.5)


def effect_of(play: Play) -> float | None:
    return throttle_events(play.throttles, play.timelines)[0].effect.slower


def test_what_cannot_be_compared_stays_unknown() -> None:
    few = Play().train(60, 0.5).read(60).read(10, reasons=0x40).train(70, 5.0)
    assert effect_of(few) is None, "two steps are chance"
    edges = Play().read(205).read(39, reasons=0x40).read(200).train(400, 10.0)
    assert effect_of(edges) is None, "of five steps that it touches two lie mostly outside"
    always = Play().read(60, reasons=0x40).train(60, 0.5)
    assert effect_of(always) is None, "there are no others to compare with"
    unwatched = Play().train(60, 0.5)
    unwatched.t = 60.0
    unwatched.read(60, reasons=0x40).train(120, 0.7)
    assert effect_of(unwatched) is None, "nobody knows how the GPU ran in the steps before"
    two_speeds = Play().read(60).read(30, reasons=0x40).read(60)
    two_speeds.ran([(i, i + (0.05 if i * 7 % 13 < 6 else 0.9)) for i in range(150)])
    assert effect_of(two_speeds) is None, "the steps differ by themselves"


def test_roles_are_compared_with_their_like() -> None:
    """More of the long role inside the episode must not look like slower steps."""
    play = Play().read(400).read(300, reasons=0x40).read(100)
    for i in range(800):
        long = i % 2 if i < 400 or i >= 700 else i % 4 != 0
        play.ran([(i, i + (0.9 if long else 0.1))], StepKind("generator" if long else "trainer"))
    assert effect_of(play) == pytest.approx(0.0, abs=1e-6)


def test_no_effect_is_told_as_none() -> None:
    play = Play().read(60).read(60, reasons=0x20).read(60).train(180, 0.5)
    assert effect_of(play) == pytest.approx(0.0)
    assert throttle_events(play.throttles, play.timelines)[0].steps_words() == "steps +0%"


# Bounds and invariants

MASKS = st.integers(0, 0x3FF) | st.none() | st.just(1 << 60)


@st.composite
def readings(draw: st.DrawFn) -> list[Gpu]:
    """Any readings of two GPUs: long stretches, odd clocks, gaps, a clock that goes back."""
    out: list[Gpu] = []
    t = 0.0
    for _ in range(draw(st.integers(1, 12))):
        fields = {
            "utilization": draw(st.none() | st.sampled_from([0.0, 29.0, 31.0, 85.0, 100.0])),
            "reasons": draw(MASKS),
            "sm_clock": draw(st.none() | st.sampled_from([0, 210, 990, 1500, 1980, 2**53])),
            "sm_clock_max": draw(st.none() | st.sampled_from([0, 1980])),
            "power_limit": draw(st.none() | st.sampled_from([0.0, 350.0, 700.0])),
            "power_limit_default": draw(st.none() | st.just(700.0)),
            "thermal_violation": draw(st.none() | st.floats(0, 1)),
            "pcie_gen": draw(st.none() | st.integers(0, 5)),
            "pcie_gen_max": draw(st.none() | st.just(5)),
            "processes": draw(st.none() | st.just([]) | st.just([(1, "x", None, False)])),
        }
        index = draw(st.integers(0, 1))
        for _ in range(draw(st.integers(1, 40))):
            t += draw(st.sampled_from([1.0, 1.0, 1.0, 0.1, 4.0, 9.0, 100.0, -5.0, 0.0]))
            out.append(Gpu("r", 0, t, f"GPU-{index}", index, **fields))
    return out


@pytest.mark.long
@settings(max_examples=80)
@given(readings())
def test_any_readings_keep_the_account_straight(told_readings: list[Gpu]) -> None:
    throttles = Throttles()
    news: dict[tuple[str, str], list[bool]] = {}
    for reading in told_readings:
        for episode in throttles.add_reading(reading):
            assert episode.held
            news.setdefault((episode.uuid, episode.reason), []).append(episode.open)
    for watch in throttles.gpus.values():
        assert watch.last is not None
        elapsed = watch.last - watch.first
        episodes = watch.episodes.all_episodes()
        ends: dict[str, float] = {}
        for each in episodes:
            assert watch.first <= each.start <= each.last <= watch.last
            assert each.end is None or each.end >= each.start
            assert 0 <= each.seconds <= each.last - each.start + 1e-9
            assert each.start > ends.get(each.reason, -math.inf), "two of one reason at a time"
            ends[each.reason] = each.last
        seconds = watch.episodes.seconds()
        assert all(0 <= each <= elapsed + 1e-9 for each in seconds.values())
        assert watch.loaded <= elapsed + 1e-9
        for reason in {each.reason for each in episodes}:
            told = news[watch.uuid, reason]
            assert told == [i % 2 == 0 for i in range(len(told))], "each begins once and ends at most once"
            assert sum(told) == sum(each.reason == reason for each in episodes)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(throttles), type=Throttles) == throttles


# In sixteenths of a second, which add up exactly: pause and length of steps; begin and length of stretches.
STEP_ROWS = st.lists(st.tuples(st.integers(0, 80), st.integers(1, 320)), max_size=60)
STRETCHES = st.lists(st.tuples(st.integers(0, 3200), st.integers(1, 1600)), max_size=5)


@given(STEP_ROWS, STRETCHES)
def test_steps_are_counted_as_they_overlap(rows: list[tuple[int, int]], stretches: list[tuple[int, int]]) -> None:
    steps: list[tuple[float, float]] = []
    t = 0.0
    for pause, seconds in rows:
        t += pause / 16
        steps.append((t, t + seconds / 16))
        t += seconds / 16
    timelines = Play().ran(steps).timelines
    intervals = [(start / 16, (start + length) / 16) for start, length in stretches]
    for (start, end), effect in zip(intervals, timelines.effects(intervals, (0.0, 1e9)), strict=True):
        touched = [i for i, (a, b) in enumerate(steps) if min(b, end) > max(a, start)]
        assert effect.steps == len(touched)
        if touched:
            assert (effect.first, effect.last) == (touched[0] + 1, touched[-1] + 1)
            most = sum(steps[i][1] - steps[i][0] for i in touched)
            assert effect.seconds <= min(most, end - start) + 1e-6


def test_everything_stays_small() -> None:
    play = Play()
    for _ in range(MAX_EPISODES + 30):
        play.read(4, **ROWS[gpu_lines.SOFTWARE_THERMAL]).read(int(CLEAR_SECONDS))
    episodes = play.throttles.gpus["GPU-0"].episodes
    assert len(episodes.past) == MAX_EPISODES
    assert episodes.seconds() == {gpu_lines.SOFTWARE_THERMAL: 3.0 * (MAX_EPISODES + 30)}, "seconds are of all"
    reference = ClockBaseline()
    for clock in range(-10, 100_000):
        reference.add(clock)
    assert len(reference.bins) <= 401
    throttles = Throttles()
    for i in range(200):
        throttles.add_reading(Gpu("r", 0, 1.0, f"u{i}", i, xid=i))
    assert len(throttles.gpus) == MAX_WATCHED_GPUS


@pytest.mark.parametrize("n", [10, MAX_BLOCKS - 1, MAX_BLOCKS, MAX_BLOCKS + 1, 3 * MAX_BLOCKS + 77, 100_000])
@pytest.mark.parametrize("portion", [7, 64, 5000])
def test_the_line_of_steps_keeps_them_all(n: int, portion: int) -> None:
    times = StepTimes()
    for first in range(0, n, portion):
        numbers = np.arange(first, min(n, first + portion))
        times.extend(2.0 * numbers, 2.0 * numbers + 1.0, numbers + 1)
    blocks = times.blocks()
    assert len(blocks) <= MAX_BLOCKS
    assert sum(block.count for block in blocks) == n and sum(block.seconds for block in blocks) == n
    assert (blocks[0].start, blocks[-1].end) == (0.0, 2.0 * n - 1.0)
    assert (blocks[0].first, blocks[-1].last) == (1, n)
    assert all(a.last + 1 == b.first and a.end <= b.start for a, b in pairwise(blocks))


def test_a_short_cut_in_a_long_run_is_still_compared() -> None:
    """Four hours of 0.2 s, of which two minutes are slower: told from blocks of some seconds."""
    play = Play()
    play.train(7200, 0.2).train(7320, 0.3).train(14400, 0.2)
    play.read(7200).read(120, reasons=0x40, sm_clock=1200).read(300)
    (row,) = throttle_events(play.throttles, play.timelines)
    assert row.effect.slower == pytest.approx(0.5, abs=0.05)
    assert row.effect.steps == pytest.approx(400, abs=40)


# Words


def test_reasons_in_words() -> None:
    assert gpu_lines.reasons_in_words(None) == gpu_lines.reasons_in_words(0) == []
    assert gpu_lines.reasons_in_words(0x4 | 0x20) == ["power cap", "software thermal"]
    assert gpu_lines.reasons_in_words(0x1 | 0x200 | 0x400) == ["idle", "0x600"]
    assert len({reason.name for reason in gpu_lines.BY_NAME.values()}) == len(gpu_lines.BY_NAME) == 13
    assert all(reason.meaning and reason.short for reason in gpu_lines.BY_NAME.values())
    harmless = {bit for bit, reason in gpu_lines.BITS.items() if reason.code is None}
    assert harmless == {0x1, 0x2, 0x10, 0x100}


def test_the_reference_is_what_the_gpu_reaches_and_no_moment_of_boost() -> None:
    reference = ClockBaseline()
    assert reference.clock is None
    for _ in range(7):
        reference.add(1755)
    assert reference.clock is None, "seven readings may all be of the ramp up"
    for _ in range(146):
        reference.add(1755)
    for _ in range(7):
        reference.add(1980)
    assert reference.clock == 1755
    for _ in range(16):
        reference.add(1980)
    assert reference.clock == 1980

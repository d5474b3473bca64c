"""Readings written by what changed, and made whole again."""

from __future__ import annotations

import random
from dataclasses import fields
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from monitor.gpu_lines import (
    COMPLETE_SECONDS,
    COUNTER_FIELDS,
    DELTA_FIELDS,
    DIGITS,
    MAX_DELTA_SECONDS,
    DeltaEncoder,
    complete,
)
from monitor.model.fold import fold
from monitor.model.state import RunState
from monitor.sources.decode import decode
from tests.gpu.conftest import Stub, scene
from trainhooks.protocol.encoding import encoder, to_dict
from trainhooks.protocol.events import Gpu

encode = encoder()


def reading(t: float, **figures: Any) -> Gpu:
    return Gpu("n", 1, t, uuid="GPU-1", **{"name": "NVIDIA H200", "power": 612.5, "sm_clock": 1980, **figures})


def read_back(written: list[Gpu]) -> list[Gpu]:
    """As the state has them that reads these lines."""
    state = RunState()
    for gpu in written:
        event = decode(encode(to_dict(gpu)))
        assert isinstance(event, Gpu)
        fold(state, event)
    return [each for readings in state.gpus.values() for each in readings]


def test_the_fields_are_a_readings_own() -> None:
    names = [field.name for field in fields(Gpu)]
    assert set(DELTA_FIELDS) | set(DIGITS) <= set(names)
    rare = set(names[names.index("driver") :])
    assert not rare & set(DELTA_FIELDS), "what comes rarely is told by coming"
    assert set(names) - rare - set(DELTA_FIELDS) == {
        "producer", "seq", "t", "uuid", "index", "simulated", "ours", "mig_of", "xid", "delta", "unknown",
    }  # fmt: skip


def test_only_what_changed_is_written() -> None:
    thinner = DeltaEncoder()
    first, second, third = (thinner.encode(reading(t, power=p)) for t, p in ((1.0, 600.0), (2.0, 600.04), (3.0, 610.0)))
    assert first.delta is False and first.name == "NVIDIA H200"
    assert to_dict(second) == {"kind": "gpu", "producer": "n", "seq": 1, "t": 2, "uuid": "GPU-1", "delta": True}
    assert third.power == 610 and third.sm_clock is None


def test_what_is_no_longer_known_is_not_what_it_was() -> None:
    thinner = DeltaEncoder()
    written = [thinner.encode(reading(1.0)), thinner.encode(reading(2.0, power=None)), thinner.encode(reading(3.0))]
    assert written[1].unknown == ["power"]
    assert [each.power for each in read_back(written)] == [612.5, None, 612.5]


def test_an_error_is_of_its_own_moment_and_rare_figures_stay_rare() -> None:
    thinner = DeltaEncoder()
    written = [thinner.encode(reading(1.0, xid=48, pcie_gen=5)), thinner.encode(reading(2.0))]
    found = read_back(written)
    assert [each.xid for each in found] == [48, None] and [each.pcie_gen for each in found] == [5, None]


def test_every_tenth_line_is_whole() -> None:
    thinner = DeltaEncoder()
    written = [thinner.encode(reading(float(t), energy=float(t))) for t in range(31)]
    assert [t for t, each in enumerate(written) if not each.delta] == [0, 10, 20, 30]
    assert [each.energy for each in read_back(written)][::10] == [0, 10, 20, 30]


def test_a_reader_who_comes_late_knows_nothing_that_it_was_not_told() -> None:
    thinner = DeltaEncoder()
    written = [thinner.encode(reading(float(t))) for t in range(12)]
    late = read_back(written[5:])
    assert [each.sm_clock for each in late] == [None] * 5 + [1980] * 2


def test_lost_lines_are_not_filled_in_for_long() -> None:
    thinner = DeltaEncoder()
    before = thinner.encode(reading(0.0))
    delta = thinner.encode(reading(5.0))
    delta.t = MAX_DELTA_SECONDS + 1
    assert complete(delta, before).sm_clock is None
    assert thinner.encode(reading(COMPLETE_SECONDS)).delta is False


def test_a_clock_that_goes_back_begins_anew() -> None:
    thinner = DeltaEncoder()
    thinner.encode(reading(100.0))
    assert thinner.encode(reading(1.0)).delta is False


figures = st.fixed_dictionaries(
    {name: st.none() | st.sampled_from([0.0, 1.0, 2.5]) for name in ("power", "utilization", "sm_active", "pcie_rx")}
)


@given(st.lists(figures, min_size=1, max_size=25))
def test_what_is_read_is_what_was_measured(told: list[dict[str, float | None]]) -> None:
    """But for digits that the sensors do not have."""
    thinner = DeltaEncoder()
    measured = [reading(float(t), **each) for t, each in enumerate(told)]
    found = read_back([thinner.encode(each) for each in measured])
    assert len(found) == len(measured)
    for ours, theirs in zip(found, measured, strict=True):
        for name in set(DELTA_FIELDS) - set(COUNTER_FIELDS):
            mine, other = getattr(ours, name), getattr(theirs, name)
            if other is None or name not in DIGITS:
                assert mine == other, name
            else:
                assert abs(mine - other) <= 0.5 * 10 ** -DIGITS[name], name


def test_eight_gpus_at_work_write_little_more_than_half(stub: Stub) -> None:
    """Every figure that moves in a training moves in each reading."""
    dice = random.Random(1)
    polls = []
    for second in range(30):
        lines = [scene("h200x8")]
        for gpu in range(8):
            power = dice.randint(590_000, 655_000)
            moving = {"utilization": dice.randint(95, 100), "power": power, "energy": 918_273_645 + 612_500 * second}
            moving |= {"sm_clock": dice.choice([1980, 1965]), "memory_utilization": dice.randint(50, 66)}
            moving |= {"field.185": power + 500, "field.186": power - 9000}
            lines += [f"gpu{gpu}.{key} = {value}" for key, value in moving.items()]
            lines += [f"gpu{gpu}.gpm.{n} = {dice.uniform(30, 90):.6f}" for n in (2, 3, 5, 10, 20, 21)]
        polls.append((1000.0 + 1.000123 * second, "\n".join(lines) + "\n"))
    thinner = DeltaEncoder()
    readings = [Gpu(**gpu) for poll in stub.play(*polls) for gpu in poll.gpus]
    before = sum(len(encode(to_dict(gpu))) for gpu in readings)
    after = sum(len(encode(to_dict(thinner.encode(gpu)))) for gpu in readings)
    assert after < 0.6 * before

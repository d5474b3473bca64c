"""Numbers carry their unit, and what is unknown is never zero."""

import math

import pytest

from monitor import units as fmt


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"), (math.nan, "–"), (math.inf, "–"), (-1.0, "–"), (0, "0 s"),
        (0.00042, "420 µs"), (0.0001, "100 µs"), (0.000077, "77 µs"),
        (0.0042, "4.2 ms"), (0.42, "420 ms"), (0.9996, "1.00 s"), (4.204, "4.20 s"),
        (9.996, "10.0 s"), (18.24, "18.2 s"), (59.94, "59.9 s"), (59.96, "1 min 0 s"), (2807, "46 min 47 s"),
        (3599.6, "1 h 0 min"), (6720, "1 h 52 min"), (86399, "1 d 0 h"), (200_000, "2 d 8 h"),
    ],
)  # fmt: skip
def test_durations(seconds: float | None, text: str) -> None:
    assert fmt.duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "–"), (0.4, "400 ms"), (8.37, "8.4 s"), (19.7, "20 s"), (99.4, "99 s"), (140, "2.3 min"), (3342, "56 min"),
     (6700, "1.9 h"), (90 * 3600, "90 h"), (20 * 86400, "20 d")],
)  # fmt: skip
def test_a_rough_duration_has_two_figures(seconds: float | None, text: str) -> None:
    assert fmt.rough(seconds) == text


@pytest.mark.parametrize("seconds", [0.1 * 1.3**power for power in range(60)])
def test_every_duration_names_its_units_and_has_no_colon(seconds: float) -> None:
    words = fmt.duration(seconds).split()
    assert set(words[1::2]) <= {"ms", "s", "min", "h", "d"}
    assert ":" not in fmt.duration(seconds)


def test_an_age_ticks_in_whole_seconds() -> None:
    assert [fmt.age(value) for value in (None, 0.4, 42.9, 75.2)] == ["–", "0 s", "42 s", "1 min 15 s"]


def test_a_range_is_one_value_where_its_ends_read_the_same() -> None:
    assert fmt.duration_range(6720, 7740) == "1 h 52 min – 2 h 9 min"
    assert fmt.duration_range(18.21, 18.22) == "18.2 s"
    assert fmt.duration_range(None, None, 90) == "about 1 min 30 s"
    assert fmt.duration_range(None, None) == "–"


@pytest.mark.parametrize(
    ("rate", "text"),
    [(None, "–"), (0.0, "–"), (math.nan, "–"), (3.42, "3.42 it/s"), (1 / 18.2, "18.2 s/it"), (123.4, "123 it/s")],
)
def test_pace_always_has_its_unit(rate: float | None, text: str) -> None:
    assert fmt.pace(rate) == text


@pytest.mark.parametrize(
    ("rate", "text"),
    [(None, "–"), (0.0, "0 tok/s"), (412.3, "412 tok/s"), (19_800, "19,800 tok/s"), (1_240_000, "1.24M tok/s"),
     (0.88, "0.880 tok/s")],
)  # fmt: skip
def test_rates(rate: float | None, text: str) -> None:
    assert fmt.rate(rate, "tok/s") == text


@pytest.mark.parametrize(
    ("fraction", "text"),
    [(None, "–"), (0.0, "0%"), (0.0004, "<0.1%"), (0.0123, "1.2%"), (0.612, "61%"), (1.0, "100%")],
)
def test_shares(fraction: float | None, text: str) -> None:
    assert fmt.share(fraction) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "–"),
        (0, "0 B"),
        (512, "512 B"),
        (1023, "1.0 KiB"),
        (139 * 1024**3, "139 GiB"),
        (61.2 * 1024**3, "61.2 GiB"),
    ],
)
def test_sizes(count: float | None, text: str) -> None:
    assert fmt.size(count) == text


def test_where_nothing_moves_no_bytes_are_counted() -> None:
    assert [fmt.flow(rate) for rate in (None, 0.0, 2048.0)] == ["–", "none", "2.0 KiB/s"]


def test_used_and_total_share_a_unit() -> None:
    gib = 1024**3
    assert fmt.size_of(61.2 * gib, 139 * gib) == "61.2 of 139 GiB"
    assert fmt.size_of(None, 139 * gib) == "– of 139 GiB"
    assert fmt.size_of(5 * gib, None) == "5.0 GiB"
    assert fmt.size_of(None, None) == "–"


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), ("nan", "nan"), (math.nan, "nan"), (-math.inf, "-inf"), (0, "0"), (0.41321, "0.4132"),
     (1234, "1,234"), (1.2e-5, "1.2e-05"), (1e300, "1e+300"), (-3.5, "-3.500")],
)  # fmt: skip
def test_metric_values(value: float | str | None, text: str) -> None:
    assert fmt.number(value) == text


def test_axis_labels_are_short_and_have_a_unit() -> None:
    assert [fmt.axis_seconds(value) for value in (0.0004, 0.4, 30, 120, 7200)] == [
        "400 µs",
        "400 ms",
        "30 s",
        "2 min",
        "2 h",
    ]


def test_signals_have_names() -> None:
    assert fmt.signal_name(9) == "SIGKILL"
    assert fmt.signal_name(999) == "signal 999"


def test_bars_show_everything_above_zero() -> None:
    assert fmt.bar(0.0, 10) == ""
    assert fmt.bar(1e-9, 10) == "▏"
    assert fmt.bar(0.5, 4) == "██"
    assert fmt.bar(7.0, 4) == "████"

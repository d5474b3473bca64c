"""A mean over episodes stands for so many values, with their number, sum and extremes."""

from __future__ import annotations

import pytest

from monitor.model.steps.episodes import episode_values


@pytest.mark.parametrize("returns", [[3.0], [1.0, 4.0], [1.0, 4.0, 4.0, 8.0, 2.5]])
def test_number_sum_and_extremes_are_those_of_the_episodes(returns: list[float]) -> None:
    values = {"episodes": len(returns), "episode_return": sum(returns) / len(returns)}
    if len(returns) > 1:
        values |= {"episode_return_min": min(returns), "episode_return_max": max(returns)}
    found = episode_values("episode_return", values)
    assert (len(found), sum(found)) == (len(returns), pytest.approx(sum(returns)))
    assert (min(found), max(found)) == (min(returns), max(returns))


@pytest.mark.parametrize("count", [0, "many", float("nan"), None, -3])
def test_numbers_that_cannot_be_are_no_reason_to_fail(count: object) -> None:
    values = {"episode_return": 2.0, "episodes": count, "episode_return_min": 1.0, "episode_return_max": 3.0}
    assert episode_values("episode_return", values) == [2.0]
    assert episode_values("loss", values | {"loss": 0.5}) == [0.5]

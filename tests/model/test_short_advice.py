"""Advice in little room."""

from __future__ import annotations

from monitor.diagnosis.explain import shorten_advice

ADVICE = (
    "Cool it: air flow, dust, fans. A power limit a little lower (nvidia-smi -pl) often costs less than the heat does."
)


def test_advice_is_cut_between_its_clauses_or_left_out() -> None:
    assert shorten_advice(ADVICE, 200) == ADVICE
    assert shorten_advice(ADVICE, 60) == "Cool it: air flow, dust, fans"
    assert shorten_advice(ADVICE, 20) == "Cool it" and shorten_advice(ADVICE, 5) == ""
    assert shorten_advice("Save more rarely, and keep less", 20) == "Save more rarely"
    assert all(len(shorten_advice(ADVICE, room)) <= room for room in range(120))

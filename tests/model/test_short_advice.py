"""Advice in little room."""

from __future__ import annotations

from monitor.diagnosis.explain import shortened

ADVICE = (
    "Cool it: air flow, dust, fans. A power limit a little lower (nvidia-smi -pl) often costs less than the heat does."
)


def test_advice_is_cut_between_its_clauses_or_left_out() -> None:
    assert shortened(ADVICE, 200) == ADVICE
    assert shortened(ADVICE, 60) == "Cool it: air flow, dust, fans"
    assert shortened(ADVICE, 20) == "Cool it" and shortened(ADVICE, 5) == ""
    assert shortened("Save more rarely, and keep less", 20) == "Save more rarely"
    assert all(len(shortened(ADVICE, room)) <= room for room in range(120))

"""Whether a training that is started here outlives the terminal it was started from."""

from __future__ import annotations

from monitor.doctor.check import Check
from monitor.running import ties

PART = "logging out"


def logout(tied: ties.Tie | None) -> Check:
    """
    Args:
        tied: what `monitor.running.ties.tie` found for a program that is started as this one was.
    """
    if tied is None:
        return Check(PART, "works", "nothing seen that would end a training when its terminal closes or you log out")
    if tied.to_us:
        return Check(PART, "limited", tied.text, "A training lasts as long as trainmon does here; `run` stays for it.")
    return Check(PART, "limited", tied.text)

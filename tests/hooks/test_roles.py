"""Processes of one program that differ in what they do: no two roles share a rank, and a replaced one keeps its own."""

from __future__ import annotations

from pathlib import Path

from trainhooks.protocol.rundir import claim_rank
from trainhooks.protocol.vocabulary import method_phase


def test_no_two_roles_have_a_number_in_common(tmp_path: Path) -> None:
    assert [claim_rank(tmp_path, "Actor", rank) for rank in (0, 1)] == [0, 1]
    assert [claim_rank(tmp_path, "Critic", rank) for rank in (0, 1)] == [2, 3]
    assert [claim_rank(tmp_path, "Actor", rank) for rank in (0, 1)] == [0, 1], "a process in its place"


def test_methods_are_phases_by_their_names() -> None:
    names = ("generate_sequences", "update_weights", "compute_log_prob", "compute_rewards", "collect", "learn", "ping")
    expected = ["generation", "weight_sync", "log_probs", "reward", "rollout", "training", "ping"]
    assert [method_phase(name) for name in names] == expected

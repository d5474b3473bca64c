"""DataLoader workers told from executor children."""

from __future__ import annotations

import pytest

from monitor.sources.process_tree import WORKER_NAME, Member, count

TRAIN = ("python", "train.py")
SPAWN = (
    "python",
    "-c",
    "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5)",
    "--multiprocessing-fork",
)
TRACKER = ("python", "-c", "from multiprocessing.resource_tracker import main;main(5)")


def member(parent: int, command: tuple[str, ...], name: str = "python") -> Member:
    return Member(parent, name, command)


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({10: member(1, TRAIN)}, (0, 0)),
        # forked workers as torch names them, and a forked executor
        ({10: member(1, TRAIN), 11: member(10, TRAIN, WORKER_NAME), 12: member(10, TRAIN, WORKER_NAME),
          13: member(10, TRAIN)}, (2, 1)),
        # a torch that does not name them yet: forked, and spawned
        ({10: member(1, TRAIN), 11: member(10, TRAIN), 12: member(10, SPAWN), 13: member(10, TRACKER)}, (2, 0)),
        # programs run by the reward, with children of their own
        ({10: member(1, TRAIN), 11: member(10, ("python", "-c", "print(1)")), 12: member(11, ("sh", "-c", "true"))},
         (0, 2)),
        # a compiler's workers are neither
        ({10: member(1, TRAIN), 11: member(10, ("python", "/x/torch/_inductor/compile_worker/__main__.py"))}, (0, 0)),
        # a launcher above the trainer, a neighbor beside it
        ({9: member(1, ("torchrun",)), 10: member(9, TRAIN), 11: member(10, TRAIN), 20: member(9, ("tensorboard",))},
         (1, 0)),
    ],
)  # fmt: skip
def test_kinds(members: dict[int, Member], expected: tuple[int, int]) -> None:
    assert count(members, {10}) == expected


def test_ranks_that_were_spawned_are_trainers() -> None:
    members = {10: member(1, TRAIN), 11: member(10, SPAWN), 12: member(10, SPAWN), 13: member(12, SPAWN)}
    assert count(members, {11, 12}) == (1, 0)


def test_without_a_trainer_only_names_count() -> None:
    assert count({10: member(1, TRAIN), 11: member(10, TRAIN)}, set()) == (None, None)
    assert count({10: member(1, TRAIN), 11: member(10, TRAIN, WORKER_NAME)}, set()) == (1, None)


def test_a_circle_of_parents_ends() -> None:
    assert count({10: member(11, TRAIN), 11: member(10, TRAIN)}, {99}) == (0, 0)

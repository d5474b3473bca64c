"""What the hooks read of torch's flight recorder."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import torch, torch.distributed as dist
from trainhooks.recording.collectives import newest_collectives
assert newest_collectives() is None
store = dist.HashStore()
dist.init_process_group("gloo", rank=0, world_size=1, store=store)
assert newest_collectives() is None
for number in range(20):
    dist.all_reduce(torch.ones(number + 1))
other = dist.new_group([0], group_desc='evil\\x1b[2J{"collective_seq_id"')
dist.barrier(group=other)
for row in newest_collectives():
    print(*row, sep="|")
"""


def test_the_newest_collectives_are_told_with_their_group_count_and_sizes() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    first, *others = done.stdout.splitlines()
    assert first.startswith("evil") and first.endswith("|1|barrier") and "\x1b" not in first
    assert others == [f"default_pg|{count}|all_reduce [{count}] float" for count in range(20, 13, -1)]

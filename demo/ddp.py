"""Data-parallel training over processes: each rank reads its own part of the text, the gradients are averaged.

    trainmon run -- torchrun --standalone --nproc-per-node 2 demo/ddp.py
    trainmon run -- torchrun --standalone --nproc-per-node 2 demo/ddp.py --uneven

With --uneven the last rank gets sequences twice as long as the others', as in unbalanced data. Its steps take longer,
and the other ranks wait for it while the gradients are averaged. The gradients are exchanged by gloo, which needs no
GPU.
"""

from __future__ import annotations

import argparse
import os
import time

import torch
import torch.distributed as dist
from small_gpt import SmallGPT
from stdlib_text import source
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

LENGTH = 128
TEXT_BYTES = 1_000_000
LOG_EVERY = 10


class Pieces(Dataset[torch.Tensor]):
    """One rank's part of the text, cut into pieces of `length` tokens plus the target of the last one."""

    def __init__(self, rank: int, ranks: int, length: int) -> None:
        share = TEXT_BYTES // ranks
        text = source(TEXT_BYTES)[rank * share : (rank + 1) * share]
        tokens = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
        self.pieces = tokens[: len(tokens) // (length + 1) * (length + 1)].view(-1, length + 1)

    def __len__(self) -> int:
        return len(self.pieces)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.pieces[index]


def train(args: argparse.Namespace, rank: int, ranks: int) -> None:
    last = rank == ranks - 1
    pieces = Pieces(rank, ranks, 2 * LENGTH if args.uneven and last else LENGTH)
    loader = DataLoader(pieces, batch_size=args.batch, shuffle=True, drop_last=True)
    model = DistributedDataParallel(SmallGPT(longest=2 * LENGTH))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step, tokens, logged = 0, 0, time.monotonic()
    while step < args.steps:
        for ids in loader:
            loss = model(ids[:, :-1], ids[:, 1:])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            step, tokens = step + 1, tokens + ids[:, 1:].numel()
            if rank == 0 and step % LOG_EVERY == 0:
                speed, tokens, logged = tokens / (time.monotonic() - logged), 0, time.monotonic()
                print(f"step {step}/{args.steps} | loss {loss.item():.3f} | {speed:.0f} tokens/s on rank 0", flush=True)
            if step == args.steps:
                break


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    add = parser.add_argument
    add("--steps", type=int, default=400, help="training steps (default: %(default)s)")
    add("--batch", type=int, default=8, help="sequences of each rank in a step (default: %(default)s)")
    add("--uneven", action="store_true", help="twice the length for the last rank")
    args = parser.parse_args()
    if "RANK" not in os.environ:
        parser.error("start it with torchrun, as in: torchrun --standalone --nproc-per-node 2 demo/ddp.py")
    return args


def main() -> None:
    args = parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)  # the ranks share the cores
    dist.init_process_group("gloo")
    train(args, dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

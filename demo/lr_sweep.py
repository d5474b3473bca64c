"""A sweep over learning rates: the same small GPT is trained with each in turn, as separate runs of one group.

    python demo/lr_sweep.py                          # four runs, some minutes on two CPU cores
    python demo/lr_sweep.py --steps 50 --rates 1e-3 1e-2
    trainmon run -- python demo/lr_sweep.py --lr 1e-3    # one of them alone

The text is the standard library's source, one byte per token, in a memory-mapped file; batches are taken at random
positions. If trainmon is installed, each run is started with `trainmon run`, named after its rate and tagged with the
group; `trainmon attach` shows the running one, `trainmon ls` all of them. The training code itself does not use
trainmon.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from small_gpt import SmallGPT
from stdlib_text import source
from torch import Tensor

RATES = ("1e-4", "3e-4", "1e-3", "3e-3")
TEXT_BYTES = 2_000_000
VALIDATION_SHARE = 0.1
BATCH, LENGTH = 16, 128
LOG_EVERY = 10
VALIDATION_BATCHES = 8


class Tokens:
    """The text on disk, read on demand."""

    def __init__(self, path: Path) -> None:
        everything = np.memmap(path, dtype=np.uint8, mode="r")
        cut = int(len(everything) * (1 - VALIDATION_SHARE))
        self.parts = {"train": everything[:cut], "validation": everything[cut:]}

    def get_batch(self, part: str, generator: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Return sequences from random positions and their targets, both (BATCH, LENGTH)."""
        data = self.parts[part]
        starts = generator.integers(0, len(data) - LENGTH - 1, size=BATCH)
        rows = np.stack([data[start : start + LENGTH + 1] for start in starts]).astype(np.int64)
        ids = torch.from_numpy(rows)
        return ids[:, :-1], ids[:, 1:]


def rate_at(step: int, steps: int, highest: float) -> float:
    """Return the rate: warm-up over the first tenth of the steps, then a cosine down to a tenth of the highest."""
    warmup = max(1, steps // 10)
    if step < warmup:
        return highest * (step + 1) / warmup
    return highest * (0.55 + 0.45 * math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


@torch.no_grad()
def validate(model: SmallGPT, tokens: Tokens) -> float:
    model.eval()
    generator = np.random.default_rng(1)  # the same batches every time
    losses: list[float] = [model(*tokens.get_batch("validation", generator)).item() for _ in range(VALIDATION_BATCHES)]
    model.train()
    return sum(losses) / len(losses)


def train(lr: float, steps: int, tokens: Tokens) -> float:
    """Train once; return the validation loss."""
    torch.manual_seed(0)
    # A second thread does not speed up matrices this small, and slows them down if another program needs the core.
    torch.set_num_threads(1)
    generator = np.random.default_rng(0)
    model = SmallGPT(longest=LENGTH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.95), weight_decay=0.1)
    logged = time.monotonic()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step, steps, lr)
        ids, targets = tokens.get_batch("train", generator)
        loss = model(ids, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if (step + 1) % LOG_EVERY == 0:
            milliseconds = (time.monotonic() - logged) / LOG_EVERY * 1000
            logged = time.monotonic()
            print(f"iter {step + 1}: loss {loss.item():.4f}, time {milliseconds:.2f}ms", flush=True)
    reached = validate(model, tokens)
    print(f"lr {lr:g}: validation loss {reached:.4f} after {steps} steps", flush=True)
    return reached


def sweep(args: argparse.Namespace, directory: Path) -> int:
    """Start a run for each rate; return how many failed."""
    tokens = directory / "tokens.bin"
    tokens.write_bytes(source(TEXT_BYTES))
    reached: dict[str, float] = {}
    for number, rate in enumerate(args.rates, 1):
        result = directory / f"{rate}.json"
        print(f"Run {number} of {len(args.rates)}: learning rate {rate}", flush=True)
        script = [sys.executable, __file__, "--lr", rate, "--steps", str(args.steps)]
        script += ["--tokens", str(tokens), "--result", str(result)]
        done = subprocess.run(watched(script, rate, args.group, len(args.rates)))
        if done.returncode == 0:
            reached[rate] = json.loads(result.read_text())["validation_loss"]
        else:
            print(f"Learning rate {rate}: ended with code {done.returncode}", file=sys.stderr)
    best = min(reached, key=lambda rate: reached[rate], default=None)
    for rate, loss in reached.items():
        print(f"  lr {rate:>6}  validation loss {loss:.4f}{'  <- best' if rate == best else ''}")
    return len(args.rates) - len(reached)


def watched(script: list[str], rate: str, group: str, planned: int) -> list[str]:
    """Return the command under `trainmon run`, or unchanged if trainmon is not installed beside this Python."""
    trainmon = Path(sys.executable).with_name("trainmon")
    if not trainmon.exists():
        return script
    tags = ["--tag", f"group={group}", "--tag", f"planned={planned}", "--tag", f"lr={rate}"]
    return [str(trainmon), "run", "--no-tui", "--name", f"lr-{rate}", *tags, "--", *script]


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    add = parser.add_argument
    add("--rates", nargs="+", default=list(RATES), metavar="RATE", help=f"what to try (default: {' '.join(RATES)})")
    add("--steps", type=int, default=400, help="steps of each run (default: %(default)s)")
    add("--group", default=time.strftime("sweep-%m%d-%H%M%S"), help="what the runs have in common (default: the time)")
    add("--lr", type=float, help="train once, with this rate")
    add("--tokens", type=Path, help="with --lr: the text's file (default: made anew)")
    add("--result", type=Path, help="with --lr: write the validation loss there, as JSON")
    return parser.parse_args()


def main() -> int:
    args = parse_args()
    with tempfile.TemporaryDirectory(prefix="lr-sweep-") as scratch:
        if args.lr is None:
            return 1 if sweep(args, Path(scratch)) else 0
        path = args.tokens or Path(scratch) / "tokens.bin"
        if args.tokens is None:
            path.write_bytes(source(TEXT_BYTES))
        loss = train(args.lr, args.steps, Tokens(path))
        if args.result is not None:
            args.result.write_text(json.dumps({"validation_loss": loss}))
        return 0


if __name__ == "__main__":
    sys.exit(main())

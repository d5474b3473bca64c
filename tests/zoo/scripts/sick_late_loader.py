"""Two ranks, one of which reads its samples from a slow disk."""

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

MENDED = "mended" in sys.argv[1:]  # both from a fast one


class Texts(Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, index):
        if dist.get_rank() == 1 and not MENDED:
            time.sleep(0.002)
        return torch.full((64,), index / 4000), index % 10


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    texts = Texts()
    loader = DataLoader(texts, batch_size=8, sampler=DistributedSampler(texts))
    model = DDP(nn.Sequential(nn.Linear(64, 2048), nn.ReLU(), nn.Linear(2048, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step, (x, y) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0 and step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

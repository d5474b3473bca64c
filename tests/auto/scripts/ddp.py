"""DistributedDataParallel over gloo: by torchrun, or by mp.spawn when called with the word."""

import os
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main(rank=None, world=None, store=None):
    torch.set_num_threads(1)
    if rank is None:
        dist.init_process_group("gloo")
    else:
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    torch.manual_seed(0)
    data = TensorDataset(torch.randint(0, 32, (48, 6)))
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False))
    model = DistributedDataParallel(nn.Sequential(nn.Embedding(32, 8), nn.Flatten(), nn.Linear(48, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        for (x,) in loader:
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if dist.get_rank() == 0:
                print(loss.item().hex(), flush=True)
    dist.barrier()
    time.sleep(0.5)  # gloo's threads may hold tensors until then; at the interpreter's end that aborts (pytorch#179291)
    dist.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[1:2] == ["spawn"]:
        store = f"/tmp/trainmon-test-store-{os.getpid()}"
        mp.spawn(main, args=(2, store), nprocs=2)
        if os.path.exists(store):
            os.unlink(store)
    else:
        main()

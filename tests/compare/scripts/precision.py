"""Matrix products in float32, or in the format that --dtype names."""

import argparse

import torch

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--dtype", default="float32")
    dtype = getattr(torch, parser.parse_args().dtype)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256)).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    for batch in torch.utils.data.DataLoader(torch.randn(12_000, 256).to(dtype), batch_size=100):
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

"""A transformer's layer on sequences of --length=N tokens."""

import sys

import torch

if __name__ == "__main__":
    torch.set_num_threads(1)
    length = next(int(word.partition("=")[2]) for word in sys.argv if word.startswith("--length="))
    embed = torch.nn.Embedding(100, 64)
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    model = torch.nn.Sequential(embed, layer, torch.nn.Linear(64, 100))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = torch.randint(0, 100, (480, length))
    for ids in torch.utils.data.DataLoader(torch.utils.data.TensorDataset(data), batch_size=4):
        model(ids[0]).logsumexp(-1).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

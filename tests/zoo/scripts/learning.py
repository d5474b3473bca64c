"""A small classifier whose steps are done as the first word says: wrong in one way, or unusual and right."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

kind = sys.argv[1]
torch.manual_seed(0)
torch.set_num_threads(1)
EPOCHS, WIDTH = 16, 512
x = torch.randn(2048, 64)
y = (x[:, 0] + x[:, 1] > 0).long()
train = DataLoader(TensorDataset(x[:1536], y[:1536]), batch_size=48, shuffle=True)
held_out = DataLoader(TensorDataset(x[1536:], y[1536:]), batch_size=48)
backbone = nn.Sequential(nn.Linear(64, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU())
model = nn.Sequential(backbone, nn.Dropout(0.2), nn.Linear(WIDTH, 2))
trained = list(model.parameters())
if kind == "old_head":  # the optimizer is made for a model that is replaced
    trained = list(nn.Linear(WIDTH, 2).parameters())
elif kind == "frozen_backbone":
    backbone.requires_grad_(False)
optimizer = torch.optim.SGD(trained, lr=0.0 if kind == "no_rate" else 0.01, momentum=0.9)
batches = len(train)
planned = batches * EPOCHS // 4 if kind == "short_schedule" else batches * EPOCHS
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.0, 1.0 - step / planned))


def evaluate() -> float:
    """Return the accuracy on what was held out."""
    right = 0
    for inputs, labels in held_out:
        right += int((model(inputs).argmax(1) == labels).sum())
    return right / 512


def zero(done: int) -> None:
    """Zero the gradients in the way of this kind."""
    if kind == "by_hand":
        for parameter in trained:
            parameter.grad = None
    elif kind == "by_data":
        for parameter in trained:
            if parameter.grad is not None:
                parameter.grad.data.zero_()
    elif kind == "by_model":
        model.zero_grad()
    elif kind == "accumulated":
        if done % 4 == 0:
            optimizer.zero_grad()
    elif kind != "never_zeroed":
        optimizer.zero_grad()


done = 0
for epoch in range(EPOCHS):
    if kind != "eval_left_on" or epoch == 0:
        model.train()
    if kind == "frozen_norms":
        backbone[1].eval()
    for inputs, labels in train:
        zero(done)
        done += 1
        loss = nn.functional.cross_entropy(model(inputs), labels)
        if kind == "retained":
            loss.backward(retain_graph=True)
        elif kind == "twice":  # the second pass needs the graph of the first one
            loss.backward(retain_graph=True)
            (0.1 * loss).backward()
        elif kind == "assigned":
            for parameter, gradient in zip(trained, torch.autograd.grad(loss, trained)):
                parameter.grad = gradient
        else:
            loss.backward()
        if kind != "accumulated" or done % 4 == 0:
            optimizer.step()
        schedule.step()
    model.eval()
    if kind == "eval_with_gradients":
        accuracy = evaluate()
    else:
        with torch.no_grad():
            accuracy = evaluate()
print(f"accuracy {accuracy:.2f}")

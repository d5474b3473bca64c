"""ignite's `create_supervised_trainer`, as its README shows."""

import torch
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.metrics import Accuracy, Loss
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(640, 64), torch.randint(0, 10, (640,)))
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
criterion = nn.CrossEntropyLoss()
trainer = create_supervised_trainer(model, torch.optim.SGD(model.parameters(), lr=0.1), criterion)
evaluator = create_supervised_evaluator(model, metrics={"accuracy": Accuracy(), "nll": Loss(criterion)})


@trainer.on(Events.ITERATION_COMPLETED(every=10))
def log_training_loss(engine):
    print(f"Epoch[{engine.state.epoch}], Iter[{engine.state.iteration}] Loss: {engine.state.output:.4f}")


@trainer.on(Events.EPOCH_COMPLETED)
def log_validation_results(engine):
    evaluator.run(DataLoader(data, batch_size=64))
    print(f"Validation - Epoch: {engine.state.epoch} Avg loss: {evaluator.state.metrics['nll']:.4f}")


trainer.run(DataLoader(data, batch_size=32, shuffle=True), max_epochs=5)

"""skorch's `NeuralNetClassifier.fit`, as its README shows."""

import numpy as np
import torch
from skorch import NeuralNetClassifier
from torch import nn

torch.manual_seed(0)
drawn = np.random.default_rng(0)
X, y = drawn.normal(size=(1000, 20)).astype(np.float32), drawn.integers(0, 2, 1000)


class MyModule(nn.Module):
    def __init__(self, num_units=10):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(20, num_units), nn.ReLU(), nn.Dropout(0.5), nn.Linear(num_units, 2))

    def forward(self, X, **kwargs):
        return self.layers(X).softmax(dim=-1)


net = NeuralNetClassifier(MyModule, max_epochs=10, lr=0.1, iterator_train__shuffle=True)
net.fit(X, y.astype(np.int64))

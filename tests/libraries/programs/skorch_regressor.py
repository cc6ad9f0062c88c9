"""skorch: every optimizer gets a closure that clears and runs backward, LBFGS many times a step."""

import numpy as np
import torch
from skorch import NeuralNetRegressor
from skorch.callbacks import GradientNormClipping, LRScheduler

torch.manual_seed(0)
inputs = np.linspace(-2, 2, 120, dtype=np.float32).reshape(-1, 1)
outputs = np.tanh(2 * inputs)


class Curve(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(1, 8), torch.nn.Sigmoid(), torch.nn.Linear(8, 1)
        )

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return self.layers(features)


clipped = NeuralNetRegressor(
    Curve,
    optimizer=torch.optim.RMSprop,
    lr=0.02,
    max_epochs=4,
    batch_size=20,
    callbacks=[GradientNormClipping(0.5), LRScheduler("ExponentialLR", gamma=0.9)],
    verbose=0,
)
curved = NeuralNetRegressor(
    Curve, optimizer=torch.optim.LBFGS, lr=0.2, max_epochs=2, batch_size=60, verbose=0
)
total = 0.0
for regressor in (clipped, curved):
    regressor.fit(inputs, outputs)
    total += regressor.history[-1, "train_loss"]
print("final", repr(float(total)))

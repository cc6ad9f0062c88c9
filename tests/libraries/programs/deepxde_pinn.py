"""deepxde: Adam and then LBFGS do everything inside step(closure); inputs are leaves with gradients."""

import os

os.environ["DDE_BACKEND"] = "pytorch"

import deepxde
import numpy as np
import torch

deepxde.config.set_random_seed(0)
time = deepxde.geometry.TimeDomain(0, 2)


def decay(t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """How far y is from obeying y' = -y."""
    return deepxde.grad.jacobian(y, t) + y


start = deepxde.icbc.IC(time, lambda _: 1, lambda _, at_start: at_start)
problem = deepxde.data.PDE(time, decay, start, num_domain=12, num_boundary=2)
model = deepxde.Model(problem, deepxde.nn.FNN([1, 12, 1], "tanh", "Glorot normal"))
model.compile("adam", lr=0.01)
model.train(iterations=80, verbose=0)
deepxde.optimizers.config.set_LBFGS_options(maxiter=25)
model.compile("L-BFGS")
history, _ = model.train(verbose=0)
print("final", repr(float(np.sum(history.loss_train[-1]))))

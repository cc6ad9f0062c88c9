"""botorch: scipy reads the gradients that backward leaves; no torch optimizer holds the parameters."""

import torch
from botorch.acquisition import LogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from botorch.optim.fit import fit_gpytorch_mll_torch
from gpytorch.mlls import ExactMarginalLogLikelihood

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
places = torch.rand(12, 1)
heights = torch.cos(6 * places) + 0.05 * torch.randn_like(places)
by_scipy = SingleTaskGP(places, heights)
fit_gpytorch_mll(ExactMarginalLogLikelihood(by_scipy.likelihood, by_scipy))
by_adam = SingleTaskGP(places, heights)
fit_gpytorch_mll_torch(ExactMarginalLogLikelihood(by_adam.likelihood, by_adam), step_limit=30)
_, gain = optimize_acqf(
    LogExpectedImprovement(by_scipy, best_f=heights.max()),
    bounds=torch.tensor([[0.0], [1.0]]),
    q=1,
    num_restarts=2,
    raw_samples=8,
)
print("final", repr(gain.item() + by_adam.likelihood.noise.item()))

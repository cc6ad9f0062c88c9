"""sbi: a normalizing flow is trained with clipping and early stopping in the library's own loop."""

import torch
from sbi.inference import NPE
from sbi.utils import BoxUniform

torch.manual_seed(0)
prior = BoxUniform(low=torch.zeros(2), high=torch.ones(2))
causes = prior.sample((200,))
effects = causes.square() + 0.05 * torch.randn(200, 2)
inference = NPE(prior, density_estimator="maf", show_progress_bars=False)
inference.append_simulations(causes, effects)
inference.train(training_batch_size=40, max_num_epochs=4, clip_max_norm=2.0)
print("final", repr(float(inference.summary["training_loss"][-1])))

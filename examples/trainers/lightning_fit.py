"""Lightning: one callback watches the fit. `optimizer_zero_grad` does nothing, so a finding is logged.

Needs lightning. It prints:

    ZG101 stale-gradient
"""

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

from zerograd.integrations.lightning import WatchGradients


class Line(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch, number):
        features, target = batch
        return torch.nn.functional.mse_loss(self.layer(features), target)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

    def optimizer_zero_grad(self, epoch, number, optimizer):
        pass  # "it is faster without": this is the mistake


torch.manual_seed(0)
inputs = torch.rand(32, 2)
loader = DataLoader(TensorDataset(inputs, inputs.sum(dim=1, keepdim=True)), batch_size=4)
watch = WatchGradients()
trainer = lightning.Trainer(
    accelerator="cpu",
    max_epochs=2,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    callbacks=[watch],  # this line watches
)
trainer.fit(Line(), loader)
for finding in watch.report.findings:
    print(finding.code, finding.name)

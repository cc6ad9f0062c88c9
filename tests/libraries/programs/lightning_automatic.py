"""lightning: only the last backward of a window runs inside step; an epoch ends in a short one."""

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(3, 10), torch.nn.Tanh(), torch.nn.Linear(10, 1)
        )
        self.total = 0.0

    def training_step(self, batch, number):
        features, target = batch
        loss = torch.nn.functional.mse_loss(self.layers(features), target)
        self.total += loss.item()
        return loss

    def validation_step(self, batch, number):
        features, target = batch
        self.log("error", torch.nn.functional.l1_loss(self.layers(features), target))

    def configure_optimizers(self):
        optimizer = torch.optim.RMSprop(self.parameters(), lr=0.01)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.8)]


lightning.seed_everything(0, verbose=False)
inputs = torch.rand(77, 3)
data = TensorDataset(inputs, inputs.norm(dim=1, keepdim=True))
module = Regression()
trainer = lightning.Trainer(
    accelerator="cpu",
    accumulate_grad_batches=3,
    gradient_clip_val=0.3,
    max_epochs=3,
    enable_checkpointing=False,
    enable_model_summary=False,
    enable_progress_bar=False,
    logger=False,
)
trainer.fit(module, DataLoader(data, batch_size=7), DataLoader(data, batch_size=40))
print("final", repr(module.total))

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset


class Line(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch, number):
        features, target = batch
        return torch.nn.functional.mse_loss(self.layer(features), target)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def optimizer_zero_grad(self, epoch, number, optimizer):
        optimizer.zero_grad()


lightning.seed_everything(0, verbose=False)
inputs = torch.rand(32, 2)
module = Line()
trainer = lightning.Trainer(
    accelerator="cpu",
    max_epochs=2,
    enable_checkpointing=False,
    enable_model_summary=False,
    enable_progress_bar=False,
    logger=False,
)
trainer.fit(module, DataLoader(TensorDataset(inputs, inputs.sum(dim=1, keepdim=True)), 4))
print("final", repr(module.layer.weight.sum().item()))

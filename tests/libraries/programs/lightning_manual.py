"""lightning, manual optimization: the user steps and clears a wrapper, in bfloat16, every other batch."""

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(2, 12), torch.nn.ReLU(), torch.nn.Linear(12, 2)
        )
        self.total = 0.0

    def training_step(self, batch, number):
        points, label = batch
        optimizer = self.optimizers()
        loss = torch.nn.functional.cross_entropy(self.layers(points), label)
        self.total += loss.item()
        self.manual_backward(loss / 2)
        if number % 2 == 1:
            self.clip_gradients(optimizer, gradient_clip_val=0.8)
            optimizer.step()
            optimizer.zero_grad()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.02)


lightning.seed_everything(0, verbose=False)
points = torch.rand(80, 2)
data = TensorDataset(points, (points[:, 0] > points[:, 1]).long())
module = Classifier()
trainer = lightning.Trainer(
    accelerator="cpu",
    max_epochs=3,
    precision="bf16-mixed",
    enable_checkpointing=False,
    enable_model_summary=False,
    enable_progress_bar=False,
    logger=False,
)
trainer.fit(module, DataLoader(data, batch_size=8))
print("final", repr(module.total))

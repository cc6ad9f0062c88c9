import torch
from lightning import LightningModule, Trainer
from torch import nn


class Net(LightningModule):
    def __init__(self, every=2):
        super().__init__()
        self.automatic_optimization = False
        self.layer = nn.Linear(3, 1)
        self.every = every

    def training_step(self, batch, batch_idx):
        opt = self.optimizers()
        x, y = batch
        loss = nn.functional.mse_loss(self.layer(x), y) / self.every
        self.manual_backward(loss)
        if (batch_idx + 1) % self.every == 0 or self.trainer.is_last_batch:
            self.clip_gradients(opt, gradient_clip_val=0.5, gradient_clip_algorithm="norm")
            opt.step()
            opt.zero_grad()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


torch.manual_seed(115)
net = Net()
Trainer(max_epochs=2).fit(net, [(torch.randn(4, 3), torch.randn(4, 1)) for _ in range(5)])
result = list(net.parameters())

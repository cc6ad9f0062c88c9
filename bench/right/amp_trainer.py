import torch
from torch import nn


class Trainer:
    """A trainer as in many repositories: options in, epochs out."""

    def __init__(self, model, lr=0.05, use_amp=True, max_grad_norm=1.0):
        self.model = model
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=lr)
        self.scaler = torch.amp.GradScaler("cpu", enabled=use_amp, init_scale=32.0)
        self.max_grad_norm = max_grad_norm
        self.global_step = 0

    def train_step(self, batch):
        x, y = batch
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(x), y)
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.max_grad_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.global_step += 1
        return {"loss": loss.item(), "norm": norm.item()}

    def train(self, loader, epochs):
        history = []
        for _ in range(epochs):
            for batch in loader:
                history.append(self.train_step(batch))
        return history


torch.manual_seed(35)
trainer = Trainer(nn.Linear(4, 3), max_grad_norm=0.4)
trainer.train([(torch.randn(5, 4), torch.randint(3, (5,))) for _ in range(3)], epochs=2)
result = list(trainer.model.parameters())

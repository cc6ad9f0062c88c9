import torch
from accelerate import Accelerator
from torch import nn


def main():
    torch.manual_seed(111)
    accelerator = Accelerator(gradient_accumulation_steps=3)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    train_dataloader = [(torch.randn(4, 3), torch.randint(2, (4,))) for _ in range(8)]
    model, optimizer, train_dataloader = accelerator.prepare(model, optimizer, train_dataloader)
    for epoch in range(2):
        model.train()
        for step, (x, y) in enumerate(train_dataloader):
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(x), y)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 0.3)
                optimizer.step()
                optimizer.zero_grad()
    return model


result = list(main().parameters())

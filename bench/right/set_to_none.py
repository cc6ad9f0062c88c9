import torch
from torch.nn import Linear
from torch.optim import AdamW

torch.manual_seed(2)


def main():
    model = Linear(2, 2)
    optimizer = AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    for step in range(6):
        x = torch.randn(8, 2)
        pred = model(x)
        loss = (pred - x.flip(1)).pow(2).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    return model


result = list(main().parameters())

"""Clearing to None or to zeros: both train the same, but only zeros keep the memory.

It prints:

    set_to_none=True: .grad after the clear is None, loss 0.2347
    set_to_none=False: .grad after the clear is a tensor of zeros, loss 0.2347
"""

import torch
from torch import nn


def train(set_to_none: bool) -> tuple[str, float]:
    torch.manual_seed(0)
    model = nn.Linear(10, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    criterion = nn.MSELoss()
    example = torch.linspace(-1, 1, 10).unsqueeze(0)
    wanted = torch.tensor([[1.0, 0.0]])

    after_clear = ""
    for _ in range(3):
        optimizer.zero_grad(set_to_none=set_to_none)
        after_clear = "None" if model.weight.grad is None else "a tensor of zeros"
        loss = criterion(model(example), wanted)
        loss.backward()
        optimizer.step()
    return after_clear, loss.item()


for set_to_none in (True, False):
    after_clear, loss = train(set_to_none)
    print(f"set_to_none={set_to_none}: .grad after the clear is {after_clear}, loss {loss:.4f}")

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--clip", type=float, default=0.3)
parser.add_argument("--epochs", type=int, default=2)
args = parser.parse_args([])

torch.manual_seed(43)
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(args.epochs):
    for x, y in [(torch.randn(4, 3), torch.randn(4, 1)) for _ in range(3)]:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        if args.clip > 0:
            nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
result = list(model.parameters())

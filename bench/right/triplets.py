import torch
from torch import nn, optim


def batches(n, size=4):
    for _ in range(n):
        anchor = torch.randn(size, 3)
        yield anchor, anchor + 0.1 * torch.randn(size, 3), torch.randn(size, 3)


def main():
    torch.manual_seed(87)
    embed = nn.Linear(3, 2)
    criterion = nn.TripletMarginLoss(margin=1.0)
    optimizer = optim.Adam(embed.parameters(), lr=0.01)
    running = 0.0
    for a, p, n in batches(6):
        loss = criterion(embed(a), embed(p), embed(n))
        if loss.item() == 0.0:
            continue
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running += loss.item()
    return embed


result = list(main().parameters())

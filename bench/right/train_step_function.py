import torch
from torch import nn, optim


def train_step(model, optimizer, loss_fn, x, y):
    model.train()
    optimizer.zero_grad()
    loss = loss_fn(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.detach()


@torch.no_grad()
def evaluate(model, loss_fn, loader):
    model.eval()
    return sum(loss_fn(model(x), y).item() for x, y in loader) / len(loader)


def main():
    torch.manual_seed(54)
    train = [(torch.randn(4, 2), torch.randint(2, (4,))) for _ in range(4)]
    valid = [(torch.randn(4, 2), torch.randint(2, (4,))) for _ in range(2)]
    model = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
    loss_fn = nn.CrossEntropyLoss()
    optimizer = optim.SGD(model.parameters(), lr=0.1, nesterov=True, momentum=0.9)
    plateau = optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    best = float("inf")
    for epoch in range(3):
        total = 0.0
        for x, y in train:
            total += train_step(model, optimizer, loss_fn, x, y)
        val = evaluate(model, loss_fn, valid)
        plateau.step(val)
        if val < best:
            best = val
    return model


if __name__ == "__main__":
    result = list(main().parameters())

"""pytorch_optimizer: SAM, Lookahead and PCGrad step, clear and assign through an optimizer inside."""

import torch
from pytorch_optimizer import SAM, AdamP, Lookahead, PCGrad

torch.manual_seed(0)
inputs = torch.randn(80, 4)
targets = torch.stack([inputs.sin().sum(dim=1), inputs.cos().sum(dim=1)], dim=1)
batches = list(zip(inputs.split(8), targets.split(8), strict=True))
error = torch.nn.functional.mse_loss


def network() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(4, 12), torch.nn.Tanh(), torch.nn.Linear(12, 2))


def sam_by_hand() -> float:
    model = network()
    optimizer = SAM(model.parameters(), torch.optim.SGD, rho=0.1, lr=0.05)
    for features, target in batches:
        error(model(features), target).backward()
        optimizer.first_step(zero_grad=True)
        loss = error(model(features), target)
        loss.backward()
        optimizer.second_step(zero_grad=True)
    return loss.item()


def sam_by_closure() -> float:
    model = network()
    optimizer = SAM(model.parameters(), torch.optim.Adam, rho=0.1, lr=0.01)
    for features, target in batches:

        def again(features: torch.Tensor = features, target: torch.Tensor = target) -> torch.Tensor:
            loss = error(model(features), target)
            loss.backward()
            return loss

        loss = again()
        optimizer.step(again)
        optimizer.zero_grad()
    return loss.item()


def lookahead() -> float:
    model = network()
    optimizer = Lookahead(AdamP(model.parameters(), lr=0.02), k=3)
    for features, target in batches:
        optimizer.zero_grad()
        loss = error(model(features), target)
        loss.backward()
        optimizer.step()
    return loss.item()


def two_tasks() -> float:
    model = network()
    optimizer = PCGrad(torch.optim.Adam(model.parameters(), lr=0.02))
    for features, target in batches:
        optimizer.zero_grad()
        guess = model(features)
        losses = [error(guess[:, task], target[:, task]) for task in range(2)]
        optimizer.pc_backward(losses)
        optimizer.step()
    return sum(losses).item()


print("final", repr(sam_by_hand() + sam_by_closure() + lookahead() + two_tasks()))

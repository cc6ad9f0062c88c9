"""Texts of different lengths, four in a window: the error of each step against one big batch.

The usual loop divides each mean loss by four: a token of a short text counts more than one of a long
text, and the last window, of two texts, is halved. The stepper weights by tokens. It prints:

    loss / 4       windows off by 196 %, 143 %, 68 %
    Stepper        windows off by 0 %, 0 %, 0 %
    tokens in each window: 93, 70, 60
"""

import torch
from torch import nn
from torch.nn import functional

import zerograd

LENGTHS = [3, 4, 6, 80, 2, 50, 13, 5, 9, 51]


def make():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(50, 16), nn.Linear(16, 50)).double()
    # Long texts use other tokens than short texts.
    texts = [torch.randint(0, 5 + length // 2, (length + 1,)) for length in LENGTHS]
    return model, torch.optim.SGD(model.parameters(), lr=0.0), texts


def loss_of(model, text):
    return functional.cross_entropy(model(text[:-1]), text[1:])


def errors(model, texts, steps):
    for number, found in enumerate(steps):
        window = texts[4 * number : 4 * number + 4]
        logits = torch.cat([model(text[:-1]) for text in window])
        loss = functional.cross_entropy(logits, torch.cat([text[1:] for text in window]))
        exact = torch.cat([g.flatten() for g in torch.autograd.grad(loss, [*model.parameters()])])
        yield f"{float((found - exact).norm() / exact.norm()):.0%}".replace("%", " %")


def watch_steps(model, optimizer):
    steps = []
    optimizer.register_step_pre_hook(
        lambda *_: steps.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    )
    return steps


def main():
    model, optimizer, texts = make()
    steps = watch_steps(model, optimizer)
    for number, text in enumerate(texts):
        (loss_of(model, text) / 4).backward()
        if (number + 1) % 4 == 0 or number + 1 == len(texts):
            optimizer.step()
            optimizer.zero_grad()
    print("loss / 4       windows off by", ", ".join(errors(model, texts, steps)))

    model, optimizer, texts = make()
    steps = watch_steps(model, optimizer)
    stepper = zerograd.Stepper(model, optimizer, accumulate=4)
    for text in stepper(texts):
        stepper.backward(loss_of(model, text), weight=len(text) - 1)
    print("Stepper        windows off by", ", ".join(errors(model, texts, steps)))
    weights = ", ".join(f"{step.weight:g}" for step in stepper.history)
    print("tokens in each window:", weights)


if __name__ == "__main__":
    main()

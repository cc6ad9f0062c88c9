"""Used by several lessons: two small trainings, and functions that run or check a snippet."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from zerograd.learn.content import CommandReport
from zerograd.learn.snippet import Names, Snippet

REGRESSION = """\
import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(64, 3)
y = x @ torch.tensor([[1.0], [-2.0], [0.5]]) + 0.1 * torch.randn(64, 1)
loader = list(zip(x.split(8), y.split(8)))
model = nn.Linear(3, 1)
loss_fn = nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
"""64 samples in 8 batches, one linear layer, SGD."""

LAYER = """\
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(10, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
criterion = nn.MSELoss()
example = torch.randn(1, 10)
wanted = torch.tensor([[1.0, 0.0]])
"""
"""One layer that is trained on one example."""


def checked(snippet: Snippet) -> CommandReport:
    """The report of `zerograd check` for a snippet."""
    return CommandReport(f"zerograd check {snippet.name}", snippet.check())


def watched(snippet: Snippet, raises: tuple[type[Exception], ...] = ()) -> CommandReport:
    """The report of `zerograd run` for a snippet."""
    return CommandReport(f"zerograd run {snippet.name}", snippet.watch(raises))


@dataclass(frozen=True)
class StepGradients:
    """The gradient that a step used, and the gradient of the last backward before it."""

    own: torch.Tensor
    held: torch.Tensor


def steps(snippet: Snippet) -> tuple[list[StepGradients], Names]:
    """Run a snippet and record the gradient that each step of its optimizer uses."""
    found: list[StepGradients] = []
    latest: dict[int, torch.Tensor] = {}

    def before(names: Names) -> None:
        parameters = list(names["model"].parameters())
        for index, parameter in enumerate(parameters):
            # A hook on a parameter gets the gradient of this backward, not the sum in `.grad`.
            parameter.register_hook(lambda new, index=index: latest.update({index: new.flatten()}))

        def note(*_: object) -> None:
            held = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
            own = [latest[index] for index in range(len(parameters))]
            found.append(StepGradients(torch.cat(own), torch.cat([one.flatten() for one in held])))

        names["optimizer"].register_step_pre_hook(note)

    return found, snippet.run(before)


def flat(names: Names) -> torch.Tensor:
    """The weights of a snippet's model as one vector."""
    return torch.cat([p.detach().flatten() for p in names["model"].parameters()])


def whole_loss(names: Names) -> float:
    """The loss of a snippet's model over all its data."""
    with torch.no_grad():
        return float(names["loss_fn"](names["model"](names["x"]), names["y"]))

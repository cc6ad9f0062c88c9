"""Training loops to measure: nets from six parameter tensors to ten million numbers, and a GAN."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

ZERO_GRAD, TO_NONE, IN_PLACE = "zero_grad", "grad = None", "in place"
CLEARS = (ZERO_GRAD, TO_NONE, IN_PLACE)


@dataclass(frozen=True)
class Loop:
    """One training loop. A call of `step` is one iteration."""

    step: Callable[[], None]
    nets: tuple[tuple[nn.Module, torch.optim.Optimizer], ...]

    @property
    def size(self) -> str:
        """The number of parameter tensors and of numbers that are trained."""
        params = [param for net, _ in self.nets for param in net.parameters()]
        return f"{len(params)} tensors, {sum(param.numel() for param in params) / 1e6:.2g}M"


Make = Callable[[str], Loop]


def mlp(clear: str) -> Loop:
    """Six parameter tensors."""
    net = nn.Sequential(
        nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)
    )
    return _classifier(net, torch.randn(32, 32), torch.randint(10, (32,)), clear)


def transformer(clear: str) -> Loop:
    """Twelve small layers."""
    return _language(_Language(12, 128, 4), torch.randint(65, (4, 64)), clear)


def large_transformer(clear: str) -> Loop:
    """Six layers of width 384: about ten million numbers."""
    return _language(_Language(6, 384, 6), torch.randint(65, (12, 64)), clear)


def resnet(clear: str) -> Loop:
    """The fifty layers of a ResNet-50 with a quarter of its width, on small images."""
    return _classifier(_resnet(16), torch.randn(8, 3, 64, 64), torch.randint(10, (8,)), clear)


def thousand(clear: str) -> Loop:
    """A thousand small parameter tensors."""
    net = nn.Sequential(*(_Residual(nn.Linear(32, 32)) for _ in range(499)), nn.Linear(32, 10))
    return _classifier(net, torch.randn(32, 32), torch.randint(10, (32,)), clear)


def gan(clear: str) -> Loop:
    """The DCGAN of torch's tutorial, with a quarter of its batch size of 128 images.

    The generator's backward adds to the discriminator's used gradients in every step. The cost of that
    does not depend on the batch size.
    """
    generator, discriminator = _generator(64), _discriminator(64)
    of_generator = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    of_discriminator = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    loss = nn.BCEWithLogitsLoss()
    real, ones, zeros = torch.randn(32, 3, 64, 64), torch.ones(32), torch.zeros(32)

    def step() -> None:
        discriminator.zero_grad()
        loss(discriminator(real).flatten(), ones).backward()
        fake = generator(torch.randn(32, 100, 1, 1))
        loss(discriminator(fake.detach()).flatten(), zeros).backward()
        of_discriminator.step()
        generator.zero_grad()
        loss(discriminator(fake).flatten(), ones).backward()
        of_generator.step()

    return Loop(step, ((generator, of_generator), (discriminator, of_discriminator)))


LOOPS: dict[str, Make] = {
    "MLP": mlp,
    "transformer": transformer,
    "ResNet": resnet,
    "1,000 tensors": thousand,
    "10M transformer": large_transformer,
}


def _classifier(net: nn.Module, x: Tensor, y: Tensor, clear: str) -> Loop:
    loss = nn.CrossEntropyLoss()
    return _loop(net, lambda: loss(net(x), y), clear)


def _language(net: nn.Module, words: Tensor, clear: str) -> Loop:
    loss = nn.CrossEntropyLoss()
    return _loop(net, lambda: loss(net(words).flatten(0, 1), words.flatten()), clear)


def _loop(net: nn.Module, loss: Callable[[], Any], clear: str) -> Loop:
    params = list(net.parameters())
    optimizer = torch.optim.AdamW(params, lr=1e-4)

    def zero_grad() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    def to_none() -> None:
        for param in params:
            param.grad = None
        loss().backward()
        optimizer.step()

    def in_place() -> None:
        for param in params:
            if param.grad is not None:
                param.grad.zero_()
        loss().backward()
        optimizer.step()

    step = {ZERO_GRAD: zero_grad, TO_NONE: to_none, IN_PLACE: in_place}[clear]
    return Loop(step, ((net, optimizer),))


class _Language(nn.Module):
    def __init__(self, layers: int, width: int, heads: int) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, batch_first=True, dropout=0)
        self.words = nn.Embedding(65, width)
        self.body = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width))
        self.head = nn.Linear(width, 65)

    def forward(self, words: Tensor) -> Tensor:
        found: Tensor = self.head(self.body(self.words(words)))
        return found


class _Residual(nn.Module):
    def __init__(self, inner: nn.Module, skip: nn.Module | None = None) -> None:
        super().__init__()
        self.inner = inner
        self.skip = skip or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.skip(x) + self.inner(x))


def _resnet(width: int) -> nn.Module:
    layers: list[nn.Module] = [_convolution(3, width, 3, 2), nn.ReLU()]
    before = width
    for stage, blocks in enumerate((3, 4, 6, 3)):
        inside, after = width << stage, 4 * width << stage
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            inner = nn.Sequential(
                _convolution(before, inside, 1, 1),
                nn.ReLU(),
                _convolution(inside, inside, 3, stride),
                nn.ReLU(),
                _convolution(inside, after, 1, 1),
            )
            skip = None if block else _convolution(before, after, 1, stride)
            layers.append(_Residual(inner, skip))
            before = after
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 10))


def _convolution(before: int, after: int, size: int, stride: int) -> nn.Module:
    convolution = nn.Conv2d(before, after, size, stride, size // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(after))


def _generator(width: int) -> nn.Module:
    layers: list[nn.Module] = []
    before = 100
    for number, factor in enumerate((8, 4, 2, 1)):
        after = factor * width
        stride, padding = (2, 1) if number else (1, 0)
        layers += [
            nn.ConvTranspose2d(before, after, 4, stride, padding, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(),
        ]
        before = after
    return nn.Sequential(*layers, nn.ConvTranspose2d(before, 3, 4, 2, 1, bias=False), nn.Tanh())


def _discriminator(width: int) -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, width, 4, 2, 1, bias=False), nn.LeakyReLU(0.2)]
    for factor in (1, 2, 4):
        layers += [
            nn.Conv2d(factor * width, 2 * factor * width, 4, 2, 1, bias=False),
            nn.BatchNorm2d(2 * factor * width),
            nn.LeakyReLU(0.2),
        ]
    return nn.Sequential(*layers, nn.Conv2d(8 * width, 1, 4, 1, 0, bias=False))

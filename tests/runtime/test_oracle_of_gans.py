"""Two optimizers that take turns, with and without `detach()`: random programs, and what is true of them.

The truth comes from running each program a second time, with `detach()`. If the generator learns
something else then, its steps use what the discriminator's backward left; where that pulls it the other
way, it must be reported at that backward. All other programs must be silent.
"""

from __future__ import annotations

import pprint
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
import torch

import zerograd
from zerograd.core.finding import Report

ITERATIONS = 16
PROGRAMS = 30
LEAKS = "  # fills the gradients of the generator"
CLEARS = (
    "{opt}.zero_grad()",
    "{net}.zero_grad()",
    "{opt}.zero_grad(set_to_none=False)",
    "for p in {net}.parameters(): p.grad = None",
    "for p in {net}.parameters(): p.grad is None or p.grad.zero_()",
)
LOSSES = {
    "wasserstein": ("-D(real).mean()", "D({fake}).mean()", "-D({fake}).mean()"),
    "logistic": ("sp(-D(real)).mean()", "sp(D({fake})).mean()", "sp(-D({fake})).mean()"),
}
"""Of the discriminator, on real and on fake data, and of the generator."""

PREPARED = """
torch.manual_seed({seed})
sp = torch.nn.functional.softplus
G = torch.nn.Sequential(torch.nn.Linear(3, 6), torch.nn.Tanh(), torch.nn.Linear(6, 2))
D = torch.nn.Sequential(torch.nn.Linear(2, 6), torch.nn.Tanh(), torch.nn.Linear(6, 1))
opt_G = torch.optim.{of_g}(G.parameters(), lr=0.003)
opt_D = torch.optim.{of_d}(D.parameters(), lr=0.003)
data = [(torch.randn(7, 2) + 2, torch.randn(7, 3)) for _ in range({iterations})]
"""


@dataclass(frozen=True)
class Gan:
    """How one program is written."""

    seed: int
    detached: bool
    opposed: bool
    """The generator is trained against the discriminator, and not with it."""
    cleared_early: bool
    """The generator is cleared before the discriminator's phase, and not after it."""
    joined: bool
    """The discriminator has one backward for real and fake data."""
    fake_first: bool
    loss: str
    clear_g: str
    clear_d: str
    clips: bool
    frozen: bool
    """The discriminator is frozen while the generator is trained."""
    skipped: int
    """The batch whose step of the generator is left out; -1 if there is none."""
    of_g: str
    of_d: str

    def source(self, *, detached: bool) -> str:
        real, fake, own = LOSSES[self.loss]
        if not self.opposed:
            own = fake
        fake = fake.format(fake="G(z).detach()" if detached else "G(z)")
        both = [f"({real}).backward()", f"({fake}).backward(){LEAKS}"]
        if self.joined:
            both = [f"({real} + {fake}).backward(){LEAKS}"]
        elif self.fake_first:
            both.reverse()
        clear_g, clear_d = (
            one.format(net=net, opt=f"opt_{net}")
            for one, net in ((self.clear_g, "G"), (self.clear_d, "D"))
        )
        clip = "torch.nn.utils.clip_grad_norm_({}.parameters(), 0.5)"
        body = ["real, z = data[i]", clear_d]
        body += [clear_g] * self.cleared_early + both + [clip.format("D")] * self.clips
        body += ["opt_D.step()"] + [clear_g] * (not self.cleared_early)
        if self.skipped >= 0:
            body.append(f"if i == {self.skipped}: continue")
        body += ["D.requires_grad_(False)"] * self.frozen
        body += [f"({own.format(fake='G(z)')}).backward()"]
        body += [clip.format("G")] * self.clips + ["opt_G.step()"]
        body += ["D.requires_grad_(True)"] * self.frozen
        return "\n  ".join([f"for i in range({ITERATIONS}):", *body])


def draw(seed: int) -> Gan:
    random = Random(seed)
    detached = random.random() < 0.4
    return Gan(
        seed=seed,
        detached=detached,
        opposed=random.random() < 0.75,
        cleared_early=random.random() < 0.7,
        joined=random.random() < 0.5,
        fake_first=random.random() < 0.5,
        loss=random.choice(list(LOSSES)),
        clear_g=random.choice(CLEARS),
        clear_d=random.choice(CLEARS),
        clips=random.random() < 0.3,
        # A frozen discriminator gets nothing back from the generator: that is no such mistake.
        frozen=detached and random.random() < 0.4,
        skipped=random.choice((-1, -1, 0, 2)),
        of_g=random.choice(("SGD", "Adam")),
        of_d=random.choice(("SGD", "Adam")),
    )


def learned(gan: Gan, text: str) -> tuple[list[list[Any]], Report]:
    """What the generator has learned, and what a watch reports."""
    names: dict[str, Any] = {"torch": torch}
    made = PREPARED.format(seed=gan.seed, of_g=gan.of_g, of_d=gan.of_d, iterations=ITERATIONS)
    exec(compile(made, "<prepared>", "exec"), names)
    with zerograd.watch(on="collect") as report:
        exec(compile(text, "gan.py", "exec"), names)
    return [param.tolist() for param in names["G"].parameters()], report


def hold(seed: int) -> None:
    """Fails if the findings of a program are not the truth."""
    gan = draw(seed)
    text = gan.source(detached=gan.detached)
    weights, report = learned(gan, text)
    right, silent = learned(gan, gan.source(detached=True))
    lines = [number for number, line in enumerate(text.splitlines(), 1) if LEAKS in line]
    wanted = [("ZG106", line) for line in lines if weights != right and gan.opposed]
    reported = [(one.code, one.site.line) for one in report.findings]
    if reported != wanted or silent.findings or report.errors:
        shown = pprint.pformat((gan, wanted, reported, silent.findings, report.errors))
        pytest.fail(f"{text}\n{shown}")


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_a_forgotten_detach_is_found_where_it_changes_what_the_generator_learns(seed: int) -> None:
    hold(seed)


def test_some_of_the_programs_are_wrong_and_some_are_right() -> None:
    """Else the test above would show nothing."""
    wrong = [
        not gan.detached and gan.opposed and gan.cleared_early for gan in map(draw, range(PROGRAMS))
    ]
    assert 4 <= sum(wrong) <= PROGRAMS - 4

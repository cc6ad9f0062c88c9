"""The forgotten `detach()`: a GAN whose discriminator's loss fills the generator's gradients.

Many right programs have the same order of events, and must stay silent.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import zerograd
from support.training import assert_found
from zerograd.launch.replay import judged
from zerograd.recording.writer import Recorder

ONE, ZERO = torch.ones(8, 1), torch.zeros(8, 1)
adversarial: Any = functional.binary_cross_entropy_with_logits


def mlp(inputs: int, outputs: int) -> Any:
    return nn.Sequential(nn.Linear(inputs, 16), nn.LeakyReLU(0.2), nn.Linear(16, outputs))


def layer(inputs: int, outputs: int) -> Any:
    return nn.Linear(inputs, outputs)


def sgd(*modules: nn.Module, lr: float = 0.05) -> torch.optim.SGD:
    return torch.optim.SGD([p for module in modules for p in module.parameters()], lr=lr)


def data(count: int = 30) -> list[tuple[Tensor, Tensor]]:
    torch.manual_seed(1)
    return [(torch.randn(8, 4), 3 + torch.randn(8, 2)) for _ in range(count)]


@pytest.mark.parametrize("mistake", [True, False], ids=["wrong", "right"])
@pytest.mark.parametrize("clears", ["first", "last", "generator first"])
@pytest.mark.parametrize("calls", ["sum", "each"])
def test_a_forgotten_detach_is_found_at_the_backward_that_leaks(
    mistake: bool, clears: str, calls: str
) -> None:
    torch.manual_seed(0)
    generator, judge = mlp(4, 2), mlp(2, 1)
    opt_g, opt_d = sgd(generator), sgd(judge)
    with zerograd.watch(on="collect") as report:
        for x, real in data():
            if clears == "first":
                opt_g.zero_grad()
            opt_d.zero_grad()
            fake = generator(x)
            seen = fake if mistake else fake.detach()
            loss = adversarial(judge(seen), ZERO)
            if calls == "sum":
                loss = loss + adversarial(judge(real), ONE)
            else:
                adversarial(judge(real), ONE).backward()
            loss.backward(retain_graph=True)
            opt_d.step()
            if clears == "generator first":
                opt_g.zero_grad()
            adversarial(judge(generator(x)), ONE).backward()
            opt_g.step()
            if clears == "last":
                opt_g.zero_grad()
    codes = [finding.code for finding in report.findings]
    assert report.errors == []
    assert codes == (["ZG106"] if mistake and clears != "generator first" else [])
    if codes:
        found = report.findings[0]
        assert "detach() is missing: expected |grad| " in found.message
        assert found.measured is not None
        assert found.measured.expected != pytest.approx(found.measured.got, rel=0.01)


def test_the_finding_names_the_three_other_lines_and_is_recorded(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path / "run.jsonl"))
    torch.manual_seed(0)
    generator, judge = mlp(4, 2), mlp(2, 1)
    opt_g, opt_d = sgd(generator), sgd(judge)
    with zerograd.watch(on="collect", record=recorder) as report:
        for x, real in data():
            opt_g.zero_grad()
            opt_d.zero_grad()
            fake = generator(x)
            loss = adversarial(judge(fake), ZERO) + adversarial(judge(real), ONE)
            loss.backward(retain_graph=True)  # ZG106
            opt_d.step()
            adversarial(judge(generator(x)), ONE).backward()
            opt_g.step()
    assert_found(report)
    line = report.findings[0].site.line
    assert [note.site.line - line for note in report.findings[0].notes] == [1, 2, 3]
    assert report.findings[0].seen == 30 - 8
    recorder.close(clean=True)
    again = judged(str(tmp_path / "run.jsonl"), None, ()).report
    assert [(one.code, one.seen, one.measured) for one in again.findings] == [
        ("ZG106", 30 - 8, report.findings[0].measured)
    ]


def run(kind: str) -> None:
    torch.manual_seed(0)
    PROGRAMS[kind]()


def shared_trunk_with_two_heads() -> None:
    trunk, one, two = mlp(4, 8), layer(8, 2), layer(8, 1)
    both, head = sgd(trunk, one), sgd(two)
    for x, y in data():
        both.zero_grad()
        head.zero_grad()
        (two(trunk(x)) + 1).square().mean().backward()
        head.step()
        (one(trunk(x)) - y).square().mean().backward()
        both.step()


def supervised_and_consistency_with_an_early_head_step() -> None:
    trunk, head = mlp(4, 8), layer(8, 2)
    opt_trunk, opt_head = sgd(trunk), sgd(head)
    for x, y in data():
        opt_trunk.zero_grad()
        opt_head.zero_grad()
        (head(trunk(x)) - y).square().mean().backward()
        opt_head.step()
        (head(trunk(x)) - head(trunk(x + 0.1))).square().mean().backward()
        opt_trunk.step()


def actor_critic_with_one_encoder() -> None:
    encoder, actor, critic = mlp(4, 8), layer(8, 2), layer(8, 1)
    opt_actor, opt_critic = sgd(encoder, actor, lr=1e-3), sgd(critic, lr=1e-3)
    for x, _ in data():
        opt_actor.zero_grad()
        opt_critic.zero_grad()
        (critic(encoder(x)) - x.sum(1, keepdim=True)).square().mean().backward()
        opt_critic.step()
        policy = torch.log_softmax(actor(encoder(x)), 1)[:, :1]
        (-(policy * critic(encoder(x)).detach()).mean()).backward()
        opt_actor.step()


class Reverse(torch.autograd.Function):
    """Gradient reversal."""

    @staticmethod
    def forward(_: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(_: Any, *grads: Any) -> Any:
        return -grads[0]


reverse: Any = Reverse.apply


def dann() -> None:
    features, classes, domain = mlp(4, 8), layer(8, 2), layer(8, 1)
    opt, opt_d = sgd(features, classes), sgd(domain)
    for x, y in data():
        opt.zero_grad()
        opt_d.zero_grad()
        reversed_ = reverse(features(torch.cat([x, x + 1])))
        adversarial(domain(reversed_), torch.cat([ONE, ZERO])).backward()
        opt_d.step()
        (classes(features(x)) - y).square().mean().backward()
        opt.step()


def adversarial_autoencoder() -> None:
    encoder, decoder, judge = mlp(4, 2), mlp(2, 4), mlp(2, 1)
    opt, opt_e, opt_d = sgd(encoder, decoder), sgd(encoder), sgd(judge)
    for x, prior in data():
        opt.zero_grad()
        (decoder(encoder(x)) - x).square().mean().backward()
        opt.step()
        opt_d.zero_grad()
        fake = encoder(x).detach()
        (adversarial(judge(prior), ONE) + adversarial(judge(fake), ZERO)).backward()
        opt_d.step()
        opt_e.zero_grad()
        adversarial(judge(encoder(x)), ONE).backward()
        opt_e.step()


def vae_whose_decoder_reads_the_prior() -> None:
    encoder, decoder = mlp(4, 2), mlp(2, 4)
    opt_e, opt_d = sgd(encoder), sgd(decoder)
    for x, prior in data():
        opt_e.zero_grad()
        opt_d.zero_grad()
        loss = (decoder(encoder(x)) - x).square().mean() + decoder(prior).square().mean()
        loss.backward()
        opt_d.step()
        code = encoder(x)
        ((decoder(code) - x).square().mean() + 0.1 * code.square().mean()).backward()
        opt_e.step()


def darts() -> None:
    weights, mixing = mlp(4, 2), layer(2, 2)
    opt_w, opt_a = sgd(weights), sgd(mixing)
    for x, y in data():
        opt_a.zero_grad()
        (mixing(weights(x)) - y).square().mean().backward()
        opt_a.step()
        opt_w.zero_grad()
        (mixing(weights(x + 0.1)) - y).square().mean().backward()
        opt_w.step()


def maml() -> None:
    model = mlp(4, 2)
    opt = sgd(model)
    for x, y in data():
        opt.zero_grad()
        inner = (model(x) - y).square().mean()
        grads = torch.autograd.grad(inner, list(model.parameters()), create_graph=True)
        fast = {n: p - 0.1 * g for (n, p), g in zip(model.named_parameters(), grads, strict=True)}
        (torch.func.functional_call(model, fast, (x + 0.1,)) - y).square().mean().backward()
        opt.step()


def mutual_learning() -> None:
    one, two = mlp(4, 2), mlp(4, 2)
    opt_one, opt_two = sgd(one), sgd(two)
    for x, y in data():
        opt_one.zero_grad()
        opt_two.zero_grad()
        first, second = one(x), two(x)
        ((first - y).square().mean() + (first - second.detach()).square().mean()).backward()
        opt_one.step()
        ((second - y).square().mean() + (second - one(x).detach()).square().mean()).backward()
        opt_two.step()


def co_teaching() -> None:
    one, two = mlp(4, 2), mlp(4, 2)
    opt_one, opt_two = sgd(one), sgd(two)
    for x, y in data():
        first, second = (one(x) - y).square().mean(1), (two(x) - y).square().mean(1)
        loss_one = first[second.argsort()[:4]].mean()
        loss_two = second[first.argsort()[:4]].mean()
        opt_one.zero_grad()
        loss_one.backward()
        opt_one.step()
        opt_two.zero_grad()
        loss_two.backward()
        opt_two.step()


def cycle_gan() -> None:
    there, back, judge = mlp(2, 2), mlp(2, 2), mlp(2, 1)
    opt_g, opt_d = sgd(there, back), sgd(judge)
    for _, real in data():
        other = real - 3
        opt_g.zero_grad()
        fake = there(other)
        (adversarial(judge(fake), ONE) + (back(fake) - other).abs().mean()).backward()
        opt_g.step()
        opt_d.zero_grad()
        loss = adversarial(judge(real), ONE) + adversarial(judge(fake.detach()), ZERO)
        loss.backward()
        opt_d.step()


def two_speeds_on_one_loss() -> None:
    slow, fast = mlp(4, 2), mlp(2, 2)
    opt_slow, opt_fast = sgd(slow, lr=0.001), sgd(fast)
    for x, y in data():
        opt_slow.zero_grad()
        opt_fast.zero_grad()
        loss = (fast(slow(x)) - y).square().mean() + fast(y).square().mean()
        loss.backward()
        opt_fast.step()
        opt_slow.step()


def generator_cleared_before_its_phase() -> None:
    generator, judge = mlp(4, 2), mlp(2, 1)
    opt_g, opt_d = sgd(generator), sgd(judge)
    for x, real in data():
        opt_d.zero_grad()
        fake = generator(x)
        (adversarial(judge(fake), ZERO) + adversarial(judge(real), ONE)).backward()
        opt_d.step()
        generator.zero_grad()
        adversarial(judge(generator(x)), ONE).backward()
        opt_g.step()


PROGRAMS = {
    program.__name__: program
    for program in (
        shared_trunk_with_two_heads,
        supervised_and_consistency_with_an_early_head_step,
        actor_critic_with_one_encoder,
        dann,
        adversarial_autoencoder,
        vae_whose_decoder_reads_the_prior,
        darts,
        maml,
        mutual_learning,
        co_teaching,
        cycle_gan,
        two_speeds_on_one_loss,
        generator_cleared_before_its_phase,
    )
}


@pytest.mark.parametrize("kind", PROGRAMS)
def test_right_programs_of_the_same_order_are_silent(kind: str) -> None:
    with zerograd.watch(on="collect") as report:
        run(kind)
    assert report.errors == []
    assert [finding.code for finding in report.findings] == []

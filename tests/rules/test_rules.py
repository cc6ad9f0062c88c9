"""Every rule's page is its test: the bad example breaks exactly that rule, for both readers and in torch."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given

import zerograd
import zerograd.rules
from support import tiers
from support.event_sequences import sequences
from support.rule_pages import by_rule, example, rules_for
from zerograd.core.events import Event
from zerograd.core.lifecycle import FIELDS
from zerograd.core.rule import Rule, Violation
from zerograd.explore.explore import explore
from zerograd.explore.flow import Emit, Seq
from zerograd.learn.rule_pages import LAYOUT, prelude
from zerograd.rules.catalogue import PAGES, RULES

# The page


@by_rule
def test_a_page_says_what_and_why_then_shows_bad_and_good(rule: Rule) -> None:
    page = LAYOUT.fullmatch(rule.doc)
    assert page is not None
    assert rule.doc.startswith(f"{rule.summary}\n\n")
    assert "##" not in page["why"]
    assert page["bad"] != page["good"]


def test_codes_and_names_are_unique_and_well_formed() -> None:
    counted = Counter([rule.code for rule in RULES] + [rule.name for rule in RULES])
    assert set(counted.values()) == {1}
    assert all(re.fullmatch(r"ZG[1-9]\d\d", rule.code) for rule in RULES)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)+", rule.name) for rule in RULES)


def test_every_rule_has_a_file_of_its_name_and_every_file_a_rule() -> None:
    folder = Path(zerograd.rules.__file__).parent
    files = {path.stem for path in folder.glob("*.py")} - {"__init__", "catalogue", "selection"}
    assert files == {page.name.replace("-", "_") for page in PAGES}
    for rule in RULES:
        module = getattr(zerograd.rules, rule.name.replace("-", "_"))
        assert module.RULE is rule
        assert module.__doc__ == rule.doc


def test_the_catalogue_is_in_the_order_of_codes() -> None:
    assert list(PAGES) == sorted(PAGES, key=lambda page: page.code)


def test_only_what_may_be_meant_is_advice() -> None:
    advice = {rule.code for rule in RULES if rule.level == "advice" and rule.code[:3] != "ZG3"}
    assert advice == {"ZG111", "ZG112", "ZG403"}
    assert {rule.level for rule in RULES if rule.code.startswith("ZG3")} == {"advice"}


# What a rule reads


def verdicts(rule: Rule, sequence: list[Event]) -> set[tuple[str, Violation]]:
    flow = Seq([Emit(event) for event in sequence])
    return {(found.rule.code, found.violation) for found in explore(flow, [rule]).outcomes}


@tiers.random(1500)
@given(sequences)
def test_what_a_rule_reads_is_enough_for_its_verdicts(sequence: list[Event]) -> None:
    for rule in RULES:
        assert verdicts(rule, sequence) == verdicts(replace(rule, reads=FIELDS), sequence), (
            rule.code
        )


@tiers.random(1500)
@given(sequences)
def test_no_sequence_breaks_a_rule_without_what_it_needs(sequence: list[Event]) -> None:
    for rule in RULES:
        if verdicts(rule, sequence):
            assert all(any(map(need, sequence)) for need in rule.needs), rule.code


# The reader of source


@rules_for("static")
def test_the_bad_example_breaks_that_rule_and_no_other(rule: Rule) -> None:
    code = example(rule, "bad")
    report = zerograd.check_source(prelude(code) + code, "train.py", pedantic=True)
    assert report.errors == []
    found = [(finding.code, finding.certain) for finding in report.findings]
    assert found == [(rule.code, True)]
    first = prelude(code).count("\n")
    assert first < report.findings[0].site.line <= first + code.count("\n")


@by_rule
def test_the_good_example_is_silent(rule: Rule) -> None:
    code = example(rule, "good")
    report = zerograd.check_source(prelude(code) + code, "train.py", pedantic=True)
    assert report.errors == []
    assert report.findings == []


# Real torch


class Accelerator:
    """As much of accelerate as the examples need, with its rule for when step and zero act."""

    def __init__(self, gradient_accumulation_steps: int) -> None:
        self.steps = gradient_accumulation_steps
        self.calls = 0
        self.length = 0

    @property
    def sync_gradients(self) -> bool:
        return self.calls % self.steps == 0 or self.calls == self.length

    def prepare(self, model: Any, optimizer: Any, loader: Any) -> tuple[Any, Any, Any]:
        self.length = len(loader)
        for name in ("step", "zero_grad"):
            setattr(optimizer, name, self._gated(getattr(optimizer, name)))
        return model, optimizer, loader

    def _gated(self, method: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: method() if self.sync_gradients else None

    @contextmanager
    def accumulate(self, model: Any) -> Iterator[None]:
        self.calls += 1
        yield

    def backward(self, loss: Any) -> None:
        (loss / self.steps).backward()


@dataclass
class Step:
    """What one step used, and where it was."""

    optimizer: str
    weights: Any
    gradient: Any
    window: int
    """Backward calls that reached the weights since the step before."""


@dataclass
class Run:
    """An example, executed: its variables, its steps, and what it raised."""

    names: dict[str, Any]
    start: dict[str, Any]
    steps: list[Step] = field(default_factory=list)
    open: int = 0
    """Backward calls after the last step."""
    synchronised: int = 0
    """How often DDP has shared gradients."""
    raised: Exception | None = None

    @property
    def windows(self) -> list[int]:
        return [step.window for step in self.steps]

    def gradients(self, optimizer: str = "optimizer") -> list[Any]:
        return [step.gradient for step in self.steps if step.optimizer == optimizer]

    def moved(self) -> bool:
        return not bool((flat(self.names["model"]) == self.start["optimizer"]).all())

    def losses(self, step: int, *batches: int) -> tuple[Any, list[Any], list[Any]]:
        """The weights that a step started from, and some batches' outputs and losses there."""
        weights = self.steps[step].weights.clone().requires_grad_()
        pairs = [self.names["loader"][batch] for batch in batches]
        outputs = [x @ weights[:3, None] + weights[3] for x, _ in pairs]
        loss_fn = self.names["loss_fn"]
        return (
            weights,
            outputs,
            [loss_fn(out, y) for out, (_, y) in zip(outputs, pairs, strict=True)],
        )

    def fresh(self, step: int, *batches: int) -> Any:
        """The gradient of the mean loss of some batches, at the weights that a step started from."""
        weights, _, losses = self.losses(step, *batches)
        return gradient(sum(losses) / len(losses), weights)


def gradient(loss: Any, weights: Any) -> Any:
    import torch

    return torch.autograd.grad(loss, weights)[0]


def flat(module: Any) -> Any:
    import torch

    return torch.cat([p.detach().flatten().clone() for p in module.parameters()])


def execute(code: str) -> Run:
    """Runs an example with real torch, and notes every step."""
    import torch

    names: dict[str, Any] = {}
    exec(compile(prelude(code), "prelude", "exec"), names)
    wrap = names.get("DistributedDataParallel")

    def counting(run: Run, bucket: Any) -> Any:
        run.synchronised += 1
        future: Any = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    counting.__annotations__.clear()  # DDP wants those of its own types, or none

    def wrapped(module: Any) -> Any:
        assert wrap is not None
        model = wrap(module)
        model.register_comm_hook(run, counting)
        return model

    names["DistributedDataParallel"] = wrapped
    owners = {"optimizer": "model", "opt_g": "G", "opt_d": "D"}
    run = Run(names, {name: flat(names[owner]) for name, owner in owners.items()})

    def note(name: str) -> None:
        parameters = list(names[owners[name]].parameters())
        has = all(p.grad is not None for p in parameters)
        used = torch.cat([p.grad.flatten().clone() for p in parameters]) if has else None
        run.steps.append(Step(name, flat(names[owners[name]]), used, run.open))
        run.open = 0

    def count(_: Any) -> None:
        run.open += 1

    for name in owners:
        names[name].register_step_pre_hook(lambda *_, name=name: note(name))
    names["model"].bias.register_hook(count)
    try:
        exec(compile(code, "example", "exec"), names)
    except Exception as error:  # noqa: BLE001, the claim about it is the test's
        run.raised = error
    return run


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Double precision, a fixed seed, and a stand-in for accelerate."""
    torch = pytest.importorskip("torch")
    stand_in = ModuleType("accelerate")
    stand_in.Accelerator = Accelerator  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "accelerate", stand_in)
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(usual)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def same(one: Any, other: Any) -> bool:
    import torch

    return torch.allclose(one, other, rtol=1e-9, atol=1e-12)


def norm(vector: Any) -> float:
    return float(vector.norm())


def windows_are_fresh(run: Run) -> bool:
    """Each step uses the mean gradient of its own N batches, the last of the remainder over N."""
    batches = iter(range(len(run.names["loader"])))
    for number, step in enumerate(run.steps):
        own = [next(batches) for _ in range(step.window)]
        if not same(step.gradient, run.fresh(number, *own) * len(own) / run.names["N"]):
            return False
    return True


def steps_are_fresh(run: Run) -> bool:
    """Each step uses the gradient of its own batch and nothing else."""
    used = run.gradients()
    return len(used) == len(run.names["loader"]) and all(
        same(one, run.fresh(number, number)) for number, one in enumerate(used)
    )


def stale_gradient(bad: Run, good: Run) -> None:
    used = bad.gradients()
    assert same(used[0], bad.fresh(0, 0))
    assert same(used[1], bad.fresh(1, 1) + used[0])
    assert same(used[2], bad.fresh(2, 2) + used[1])
    assert steps_are_fresh(good)


def discarded_gradient(bad: Run, good: Run) -> None:
    assert set(bad.gradients()) == {None}
    assert not bad.moved()
    assert good.moved()


def zero_in_window(bad: Run, good: Run) -> None:
    n = bad.names["N"]
    assert bad.windows == good.windows == [4, 4, 2]
    assert same(bad.gradients()[0], bad.fresh(0, 3) / n)
    assert windows_are_fresh(good)


def empty_step(bad: Run, good: Run) -> None:
    assert set(bad.gradients()) == {None}
    assert not bad.moved()
    assert steps_are_fresh(good)


def repeated_step(bad: Run, good: Run) -> None:
    first, second = bad.gradients()[:2]
    assert same(first, second)
    assert same(bad.steps[1].weights - bad.steps[0].weights, -0.01 * first)
    assert same(bad.steps[2].weights - bad.steps[0].weights, -0.02 * first)
    assert len(bad.steps) == 2 * len(good.steps)


def foreign_gradient(bad: Run, good: Run) -> None:
    def own(run: Run, number: int) -> Any:
        """The gradient of the discriminator's own loss in one iteration."""
        g, d = (
            [step.weights for step in run.steps if step.optimizer == optimizer][number]
            for optimizer in ("opt_g", "opt_d")
        )
        x, y = run.names["loader"][number]
        d.requires_grad_()
        fake = x @ g[:9].view(3, 3).T + g[9:]
        return gradient(run.names["loss_fn"](fake @ d[:3, None] + d[3], y), d)

    for number in range(3):
        assert not same(bad.gradients("opt_d")[number], own(bad, number))
        assert same(good.gradients("opt_d")[number], own(good, number))


def none_gradient(bad: Run, good: Run) -> None:
    assert isinstance(bad.raised, AttributeError)
    assert "'NoneType' object has no attribute 'zero_'" in str(bad.raised)
    assert steps_are_fresh(good)


def self_backward(bad: Run, good: Run) -> None:
    for number, used in enumerate(bad.gradients()[:2]):
        weights, _, (loss,) = bad.losses(number, number)
        assert same(used, gradient(loss, weights) * loss.detach())
    assert steps_are_fresh(good)


def nonfinite_gradient(bad: Run, good: Run) -> None:
    import torch

    weights, steps = bad.names["model"].weight, len(bad.names["loader"]) * 4
    assert bad.open == good.open == steps
    assert not torch.isfinite(weights).any()
    assert torch.isfinite(good.names["model"].weight).all()


def untrained_parameter(bad: Run, good: Run) -> None:
    first = (good.names["model"].weight, good.names["optimizer"].param_groups[0]["params"][0])
    assert first[0] is first[1]
    assert bad.names["model"].weight is not bad.names["optimizer"].param_groups[0]["params"][0]
    assert bad.names["optimizer"].param_groups[0]["params"][0].grad is None


def remade_optimizer(bad: Run, good: Run) -> None:
    def steps(run: Run) -> Any:
        return run.names["optimizer"].state[run.names["model"].weight]["step"]

    assert (steps(bad), steps(good)) == (1, len(good.names["loader"]))


def clip_before_unscale(bad: Run, good: Run) -> None:
    assert norm(good.gradients()[0]) == pytest.approx(1.0, rel=1e-5)
    assert norm(bad.gradients()[0]) == pytest.approx(1 / 65536, rel=1e-5)


def unclipped(bad: Run, good: Run) -> None:
    assert steps_are_fresh(bad)
    assert norm(bad.gradients()[0]) > 1.5
    assert norm(good.gradients()[0]) == pytest.approx(1.0, rel=1e-5)


def clip_in_window(bad: Run, good: Run) -> None:
    whole = bad.fresh(0, 0, 1, 2, 3)
    assert norm(whole) > 1.5
    assert norm(good.gradients()[0]) == pytest.approx(1.0, rel=1e-5)
    turned = bad.gradients()[0] / norm(bad.gradients()[0]) - whole / norm(whole)
    straight = good.gradients()[0] / norm(good.gradients()[0]) - whole / norm(whole)
    assert norm(straight) < 1e-9
    assert norm(turned) > 1e-4


def scaled_step(bad: Run, good: Run) -> None:
    assert same(bad.gradients()[0], 65536 * bad.fresh(0, 0))
    assert steps_are_fresh(good)


def mixed_scale(bad: Run, good: Run) -> None:
    for run, factor in ((bad, 65536), (good, 1)):
        weights, (output,), (loss,) = run.losses(0, 0)
        whole = gradient(loss + factor * output.square().mean(), weights)
        assert same(run.gradients()[0], whole)


def missing_update(bad: Run, good: Run) -> None:
    assert isinstance(bad.raised, RuntimeError)
    assert len(bad.steps) == 1
    assert steps_are_fresh(good)


def unscaled_backward(bad: Run, good: Run) -> None:
    assert same(bad.gradients()[0] * 65536, bad.fresh(0, 0))
    assert steps_are_fresh(good)


def unscaled_window(bad: Run, good: Run) -> None:
    assert same(bad.gradients()[0], 4 * bad.fresh(0, 0, 1, 2, 3))
    assert same(good.gradients()[0], good.fresh(0, 0, 1, 2, 3))


def misplaced_guard(bad: Run, good: Run) -> None:
    assert bad.windows == [1, 4, 4, 1]
    assert good.windows == [4, 4, 2]


def dropped_window(bad: Run, good: Run) -> None:
    assert (bad.windows, bad.open) == ([4, 4], 2)
    assert (good.windows, good.open) == ([4, 4, 2], 0)


def carried_window(bad: Run, good: Run) -> None:
    assert (bad.windows, bad.open) == ([4, 4, 6, 4], 2)
    assert (good.windows, good.open) == ([4, 4, 2, 4, 4, 2], 0)


def orphan_gradient(bad: Run, good: Run) -> None:
    body, trained = bad.names["body"].weight, good.names["body"].weight
    assert not same(body, trained)
    assert norm(body.grad) > 2 * norm(trained.grad)


def bypassed_wrapper(bad: Run, good: Run) -> None:
    assert bad.windows == good.windows == [4, 4, 2]
    assert same(bad.gradients()[0], 4 * bad.fresh(0, 0, 1, 2, 3))
    assert windows_are_fresh(good)


def unsynced_step(bad: Run, good: Run) -> None:
    """One rank shares with nobody; what two do is shown in test_ranks."""
    assert bad.windows == good.windows == [4, 4, 2]
    assert (bad.synchronised, good.synchronised) == (3 + 3 + 1, 3)


def diverged_ranks(bad: Run, good: Run) -> None:
    """One rank agrees with itself; what two do is shown in test_ranks."""
    assert steps_are_fresh(bad)
    assert steps_are_fresh(good)


def wasted_sync(bad: Run, good: Run) -> None:
    assert windows_are_fresh(bad)
    assert windows_are_fresh(good)
    assert (bad.synchronised, good.synchronised) == (10, 3)


EFFECTS: dict[str, Callable[[Run, Run], None]] = {
    "ZG101": stale_gradient,
    "ZG102": discarded_gradient,
    "ZG103": zero_in_window,
    "ZG104": empty_step,
    "ZG105": repeated_step,
    "ZG106": foreign_gradient,
    "ZG107": none_gradient,
    "ZG108": orphan_gradient,
    "ZG109": self_backward,
    "ZG110": nonfinite_gradient,
    "ZG111": untrained_parameter,
    "ZG112": remade_optimizer,
    "ZG201": clip_before_unscale,
    "ZG202": unclipped,
    "ZG203": unclipped,
    "ZG204": clip_in_window,
    "ZG205": scaled_step,
    "ZG206": mixed_scale,
    "ZG207": missing_update,
    "ZG208": unscaled_backward,
    "ZG301": unscaled_window,
    "ZG302": misplaced_guard,
    "ZG303": dropped_window,
    "ZG304": carried_window,
    "ZG401": unsynced_step,
    "ZG402": diverged_ranks,
    "ZG403": wasted_sync,
    "ZG501": bypassed_wrapper,
}

RAISES = {"ZG107": AttributeError, "ZG207": RuntimeError}


@pytest.mark.usefixtures("exact")
@by_rule
def test_the_examples_run_and_the_bad_one_does_what_its_page_says(rule: Rule) -> None:
    import torch

    torch.manual_seed(0)
    bad = execute(example(rule, "bad"))
    torch.manual_seed(0)
    good = execute(example(rule, "good"))
    assert good.raised is None
    assert isinstance(bad.raised, RAISES.get(rule.code, type(None)))
    EFFECTS[rule.code](bad, good)


# The reader of runs


def watched(code: str) -> zerograd.Report:
    """An example, run under watch over enough batches to show its habits."""
    with zerograd.watch(on="collect") as report:
        names: dict[str, Any] = {}
        exec(compile(prelude(code).replace("2 * N", "8 * N"), "prelude", "exec"), names)
        # What it raises is another test's claim.
        with suppress(*RAISES.values()):
            exec(compile(code, "train.py", "exec"), names)
    return report


DIVERGES = {"ZG109"}
"""The rules whose bad example makes the numbers grow without end: then ZG110 is broken, too."""
SEVERAL = {"ZG402"}
"""The rules that one rank cannot break: test_ranks runs their examples."""


@pytest.mark.usefixtures("exact")
@rules_for("runtime")
def test_a_run_of_the_bad_example_breaks_that_rule_and_no_other(rule: Rule) -> None:
    code = example(rule, "bad")
    report = watched(code)
    assert report.errors == []
    if rule.code in SEVERAL:
        assert report.findings == []
        return
    more = ["ZG110"] if rule.code in DIVERGES else []
    assert [finding.code for finding in report.findings] == [rule.code, *more]
    assert report.findings[0].site.path == "train.py"
    static = zerograd.check_source(prelude(code) + code, "train.py")
    sites = [site for one in static.findings for site in (one.site, *(n.site for n in one.notes))]
    if rule.only == "both":
        lines = {site.line - prelude(code).count("\n") for site in sites}
        assert report.findings[0].site.line in lines


@pytest.mark.usefixtures("exact")
@rules_for("runtime")
def test_a_run_of_the_good_example_is_silent(rule: Rule) -> None:
    report = watched(example(rule, "good"))
    assert report.errors == []
    assert report.findings == []


def test_every_rule_is_shown_to_matter() -> None:
    assert set(EFFECTS) == {rule.code for rule in RULES}

"""A round that is followed gives the same report as one that is not, whatever happens in it."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import zerograd
from support import tiers
from support.training import batches, loss_of, net, sgd
from zerograd.core.events import Backward, Event, Step
from zerograd.core.lifecycle import Grads
from zerograd.recording.reader import replay
from zerograd.recording.writer import Recorder
from zerograd.runtime import steady_loop
from zerograd.runtime.engine import Engine
from zerograd.runtime.posting import Posting
from zerograd.runtime.watch import Watch
from zerograd.terminal.status_line import Glance

ROUNDS = 11
CLEARS = (
    "optimizer.zero_grad()",
    "optimizer.zero_grad(set_to_none=False)",
    "model.zero_grad()",
    "model.zero_grad(set_to_none=False)",
    "for p in model.parameters(): p.grad = None",
    "for p in model.parameters(): p.grad is None or p.grad.zero_()",
)
CLIPS = (
    "torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)",
    "torch.nn.utils.clip_grad_value_(model.parameters(), 0.5)",
)
BACKWARD, STEP = "loss_fn(model(x), y).backward()", "optimizer.step()"
DECLARED = "opened.enter_context(zerograd.expect_window(2))"
"""From here to the end of the run."""
SURPRISES = (
    "model[0].zero_grad()",
    "model.zero_grad()",
    "optimizer.zero_grad()",
    "for p in model.parameters(): p.grad = None",
    "for p in model[2].parameters(): p.grad = None if p.grad is None else torch.ones_like(p)",
    "for p in model.parameters(): p.grad is None or p.grad.zero_()",
    "for p in model[2].parameters(): p.grad is None or p.grad.zero_()",
    "for p in model.parameters(): p.grad is None or p.grad.data.zero_()",
    "for p in model.parameters(): p.grad is None or p.grad.mul_(0)",
    "for p in model.parameters(): p.grad is None or p.grad.mul_(0.5)",
    "for p in model.parameters(): p.data.mul_(0.9)",
    "model[0].weight.grad = None",
    "model[0].weight.grad = torch.zeros(4, 3)",
    "model[2].bias.grad.zero_()",
    "model[2].bias.grad.fill_(1e-20)",
    "loss_fn(model(x), y).backward()",
    "loss_fn(model[2](model[0](x).detach()), y).backward()",
    "other(x).sum().backward()",
    "torch.autograd.grad(model(x).sum(), list(model.parameters()))",
    "optimizer.step()",
    "optimizer.step(lambda: loss_fn(model(x), y).item())",
    "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
    "optimizer.add_param_group({'params': list(other.parameters())})",
    "optimizer.load_state_dict(optimizer.state_dict())",
    "second = torch.optim.SGD(other.parameters(), lr=0.1)",
    "loss_fn(other(x), y).backward(); second.step()",
    DECLARED,
    "with zerograd.expect_window(2): loss_fn(model(x), y).backward(); optimizer.step()",
    "torch.nn.utils.clip_grad_norm_(model[0].parameters(), 0.1)",
    "scaler.scale(loss_fn(model(x), y)).backward()",
    "failing(model(x)).sum().backward()",
    "reentrant(model(x)).sum().backward()",
)

PREPARED = """
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
other = torch.nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
second = torch.optim.SGD(other.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
maker = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3))
critic = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
both = torch.nn.ModuleList([maker, critic])
loss_fn = torch.nn.MSELoss()
x, y = torch.randn(5, 3), torch.randn(5, 2)
"""


class Failing(torch.autograd.Function):
    """Its backward raises."""

    @staticmethod
    def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(*_: Any) -> Any:
        raise ArithmeticError


class Reentrant(torch.autograd.Function):
    """Its backward runs another."""

    @staticmethod
    def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(_: Any, *grads: Any) -> Any:
        with torch.enable_grad():
            torch.ones(2, requires_grad=True).sum().backward()  # type: ignore[no-untyped-call]
        return grads[0]


@st.composite
def lap(draw: st.DrawFn) -> list[str]:
    acts = [BACKWARD] * draw(st.integers(1, 3))
    acts += [*draw(st.lists(st.sampled_from(CLIPS), max_size=1)), STEP]
    clear = [draw(st.sampled_from(CLEARS))]
    return clear + acts if draw(st.booleans()) else acts + clear


@st.composite
def loop(
    draw: st.DrawFn,
    one: st.SearchStrategy[list[str]],
    surprises: tuple[str, ...] = SURPRISES,
    rounds: int = ROUNDS,
) -> str:
    """The same round again and again, with surprises in one or two of them."""
    acts = [(act, "") for act in draw(one)]
    for _ in range(draw(st.integers(0, 2))):
        at, when = draw(st.integers(0, len(acts))), draw(st.integers(2, rounds - 1))
        if draw(st.booleans()) and at < len(acts) and not acts[at][1]:
            acts[at] = (acts[at][0], f"if i != {when}")
        else:
            acts.insert(at, (draw(st.sampled_from(surprises)), f"if i == {when}"))
    lines = [f"for i in range({rounds}):"]
    for act, test in acts:
        lines += [f"  {test or 'if True'}:", "    try:", f"      {act}"]
        lines += ["    except Exception: pass"]
    return "\n".join(lines)


CRITIC_CLEARS = (
    "of_critic.zero_grad()",
    "critic.zero_grad()",
    "critic.zero_grad(set_to_none=False)",
    "both.zero_grad()",
)
CRITIC_BACKWARDS = (
    "critic(x).mean().backward()",
    "critic(maker(x).detach()).mean().backward()",
    "(critic(maker(x).detach()) - critic(x)).mean().backward()",
    "critic(maker(x)).mean().backward()",
)
MAKER_CLEARS = ("of_maker.zero_grad()", "maker.zero_grad()", "both.zero_grad()")
MAKER_BACKWARDS = (
    "(-critic(maker(x))).mean().backward()",
    "maker(x).pow(2).mean().backward()",
    "(maker(x).pow(2).mean() - critic(maker(x)).mean()).backward()",
)
BOTH_CLIPS = (
    "torch.nn.utils.clip_grad_norm_(critic.parameters(), 0.5)",
    "torch.nn.utils.clip_grad_norm_(maker.parameters(), 0.5)",
    "torch.nn.utils.clip_grad_norm_(both.parameters(), 0.5)",
)
SURPRISES_OF_TWO = (
    *CRITIC_CLEARS,
    *CRITIC_BACKWARDS,
    *MAKER_CLEARS,
    *MAKER_BACKWARDS,
    *BOTH_CLIPS,
    "of_critic.step()",
    "of_maker.step()",
    "for p in critic.parameters(): p.grad = None if p.grad is None else torch.ones_like(p)",
    "for p in critic.parameters(): p.grad is None or p.grad.zero_()",
    "for p in maker.parameters(): p.grad is None or p.grad.zero_()",
    "for p in critic.parameters(): p.grad is None or p.grad.mul_(0.5)",
    "for p in maker.parameters(): p.grad = None",
    "for p in critic.parameters(): p.grad = None",
    "for p in critic.parameters(): p.data.clamp_(-0.3, 0.3)",
    "with torch.no_grad(): [p.clamp_(-0.3, 0.3) for p in critic.parameters()]",
    "critic[0].weight.grad = None",
    "critic[2].bias.grad.zero_()",
    "critic.requires_grad_(False)",
    "critic.requires_grad_(True)",
    "of_critic = torch.optim.SGD(critic.parameters(), lr=0.1)",
    "of_maker = torch.optim.SGD(maker.parameters(), lr=0.1)",
    "of_maker.add_param_group({'params': list(other.parameters())})",
    "third = torch.optim.SGD(other.parameters(), lr=0.1)",
    "other(x).sum().backward(); third.step()",
    "del third",
    "failing(critic(maker(x))).sum().backward()",
    "reentrant(critic(maker(x))).sum().backward()",
    "scaler.scale(critic(x).mean()).backward()",
    DECLARED,
)


@st.composite
def lap_of_two(draw: st.DrawFn) -> list[str]:
    """A round of two networks, one of which reads what the other makes."""
    acts = []
    for _ in range(draw(st.integers(1, 2))):
        acts += [draw(st.sampled_from(CRITIC_CLEARS))]
        acts += draw(st.lists(st.sampled_from(CRITIC_BACKWARDS[:3]), min_size=1, max_size=2))
        acts += [*draw(st.lists(st.just(BOTH_CLIPS[0]), max_size=1)), "of_critic.step()"]
    acts += [draw(st.sampled_from(MAKER_CLEARS)), draw(st.sampled_from(MAKER_BACKWARDS))]
    acts += [*draw(st.lists(st.just(BOTH_CLIPS[1]), max_size=1)), "of_maker.step()"]
    start = draw(st.integers(0, len(acts) - 1))
    return acts[start:] + acts[:start]


OF_TWO = """\
of_maker = torch.optim.SGD(maker.parameters(), lr=0.1)
of_critic = torch.optim.SGD(critic.parameters(), lr=0.1)
third = torch.optim.SGD(other.parameters(), lr=0.1)
del second
"""


def _engine() -> Engine:
    assert Engine.running is not None
    return Engine.running


def watched(body: str, glances: list[object] | None = None) -> tuple[object, ...]:
    names: dict[str, Any] = {
        "torch": torch,
        "zerograd": zerograd,
        "failing": Failing.apply,
        "reentrant": Reentrant.apply,
        "glance": lambda: (glances if glances is not None else []).append(_engine().glance()),
    }
    exec(compile(PREPARED, "<prepared>", "exec"), names)
    with zerograd.watch(on="collect") as report, ExitStack() as opened:
        names["opened"] = opened
        exec(compile(body, "train.py", "exec"), names)
    trained = [names["model"], names["both"]]
    weights = [param.tolist() for module in trained for param in module.parameters()]
    return report.findings, report.watched, weights


@tiers.random(60)
@given(body=loop(lap()))
def test_a_round_that_is_followed_is_reported_as_one_that_is_not(body: str) -> None:
    followed = watched(body)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steady_loop, "_linked", lambda *_: ())
        assert watched(body) == followed


@tiers.random(15)
@given(body=loop(lap_of_two(), SURPRISES_OF_TWO, 2 * ROUNDS))
def test_a_round_of_two_subjects_that_is_followed_is_reported_as_one_that_is_not(body: str) -> None:
    followed = watched(OF_TWO + body)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steady_loop, "_linked_together", lambda *_: ())
        assert watched(OF_TWO + body) == followed


@pytest.fixture
def ordinary(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The events that go the ordinary way."""
    posted: list[object] = []
    original = Posting.post

    def post(self: Any, subject: Any, event: Any) -> None:
        posted.append(event)
        original(self, subject, event)

    monkeypatch.setattr(Posting, "post", post)
    return posted


@pytest.mark.parametrize("clear", CLEARS)
@pytest.mark.parametrize("clip", [(), CLIPS[:1]])
@pytest.mark.parametrize("backwards", [1, 3])
def test_usual_loops_are_followed(
    clear: str, clip: tuple[str, ...], backwards: int, ordinary: list[object]
) -> None:
    """Else the test above would show nothing."""
    acts = [clear, *[BACKWARD] * backwards, *clip, STEP]
    _, seen, _ = watched("\n  ".join(["for i in range(50):", *acts]))
    assert seen.steps == 50  # type: ignore[attr-defined]
    assert len(ordinary) <= 5 * len(acts) + 1


def test_a_plain_loop_is_followed_after_its_first_round(ordinary: list[object]) -> None:
    acts = ["optimizer.zero_grad()", BACKWARD, STEP]
    watched("\n  ".join(["for i in range(50):", *acts]))
    assert len(ordinary) == len(acts)


def test_rounds_that_take_turns_are_not_guessed_at_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    linked: list[object] = []
    original = steady_loop._linked

    def link(calls: Any, take: Any) -> Any:
        linked.append(calls)
        return original(calls, take)

    monkeypatch.setattr(steady_loop, "_linked", link)
    one = ["if i % 2:", f"  optimizer.zero_grad(); {BACKWARD}; {STEP}"]
    other = ["else:", f"  optimizer.zero_grad(); {BACKWARD}; {STEP}"]
    _, seen, _ = watched("\n  ".join(["for i in range(50):", *one, *other]))
    assert seen.steps == 50  # type: ignore[attr-defined]
    assert len(linked) == 1


GANS = {
    "alternating": [
        CRITIC_CLEARS[1],
        *CRITIC_BACKWARDS[:2],
        "of_critic.step()",
        MAKER_CLEARS[1],
        MAKER_BACKWARDS[0],
        "of_maker.step()",
    ],
    "two steps of the critic": [
        *(CRITIC_CLEARS[0], CRITIC_BACKWARDS[1], "of_critic.step()") * 2,
        *(MAKER_CLEARS[0], MAKER_BACKWARDS[0], BOTH_CLIPS[1], "of_maker.step()"),
    ],
    "one backward for both": [
        "both.zero_grad()",
        "critic(maker(x)).mean().backward()",
        BOTH_CLIPS[2],
        "of_maker.step()",
        "of_critic.step()",
    ],
}


@pytest.mark.parametrize("name", ["alternating", "two steps of the critic"])
def test_usual_loops_of_two_subjects_are_followed(name: str, ordinary: list[object]) -> None:
    body = "\n  ".join([f"{OF_TWO}for i in range(60):", *GANS[name]])
    findings, seen, _ = watched(body)
    assert not findings
    steps = sum(act.endswith(".step()") for act in GANS[name])
    assert seen.steps == 60 * steps  # type: ignore[attr-defined]
    assert len(ordinary) <= 10 * 2 * len(GANS[name])


@pytest.mark.parametrize("name", GANS)
@pytest.mark.parametrize("at", range(7))
def test_a_glance_at_two_subjects_in_a_followed_round_sees_what_it_sees_in_an_ordinary_one(
    name: str, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    acts = [*GANS[name]]
    acts.insert(min(at, len(acts)), "glance()")
    body = "\n  ".join([f"{OF_TWO}for i in range({2 * ROUNDS}):", *acts])
    followed: list[object] = []
    watched(body, glances=followed)
    monkeypatch.setattr(steady_loop, "_linked_together", lambda *_: ())
    one_by_one: list[object] = []
    watched(body, glances=one_by_one)
    assert followed == one_by_one


@pytest.mark.parametrize("declares", [True, False])
def test_a_window_that_is_declared_in_a_followed_loop_is_expected(declares: bool) -> None:
    """Else the declaration among the surprises would show nothing."""
    lines = ["optimizer.zero_grad()", BACKWARD, STEP]
    if declares:
        lines.insert(0, f"if i == 5: {DECLARED}")
    findings, _, _ = watched("\n  ".join([f"for i in range({ROUNDS}):", *lines]))
    assert [one.code for one in findings] == (["ZG302"] if declares else [])  # type: ignore[attr-defined]


ALL, FIRST, LAST = "model.parameters()", "model[0].parameters()", "model[2].parameters()"


@pytest.mark.parametrize("cleared", [ALL, FIRST, LAST])
@pytest.mark.parametrize("clear", ["zero_()", "data.zero_()", "detach().zero_()", "mul_(0)"])
@pytest.mark.parametrize("at", [ROUNDS - 1, ROUNDS - 2])
def test_a_followed_loop_that_clears_in_place_only_in_part_is_found(
    cleared: str, clear: str, at: int
) -> None:
    lines = [f"for p in {ALL} if i != {at} else {cleared}:", f"  p.grad is None or p.grad.{clear}"]
    body = "\n  ".join([f"for i in range({ROUNDS}):", *lines, BACKWARD, STEP])
    findings, _, _ = watched(body)
    assert [one.code for one in findings] == ([] if cleared is ALL else ["ZG101"])  # type: ignore[attr-defined]


def test_a_glance_sees_the_unfinished_round_of_a_followed_loop() -> None:
    model = net()
    optimizer = sgd(model)
    seen: list[Glance] = []
    with zerograd.watch(on="collect"):
        engine = Engine.running
        assert engine is not None
        for x in batches(ROUNDS):
            seen.clear()
            optimizer.zero_grad()
            seen += engine.glance()
            loss_of(model, x).backward()
            seen += engine.glance()
            loss_of(model, x).backward()
            seen += engine.glance()
            optimizer.step()
            seen += engine.glance()
    assert [one.grads for one in seen] == [Grads.NONE, Grads.LIVE, Grads.LIVE, Grads.SPENT]
    assert [one.window for one in seen] == [0, 1, 2, 0]
    assert [one.steps for one in seen] == [ROUNDS - 1] * 3 + [ROUNDS]
    assert [one.windows for one in seen] == [{2: ROUNDS - 1}] * 3 + [{2: ROUNDS}]


def test_a_recording_that_begins_inside_a_followed_round_has_only_what_comes_after(
    tmp_path: Path,
) -> None:
    model, path = net(), tmp_path / "run.jsonl"
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for x in batches(ROUNDS):
            optimizer.zero_grad()
            loss_of(model, x).backward()
            optimizer.step()
        optimizer.zero_grad()
        with (
            closing(Recorder(str(path), program="train.py", rank=None)) as record,
            Watch("collect", record=record),
        ):
            loss_of(model, torch.ones(5, 3)).backward()
            optimizer.step()
    events: list[Event] = []
    replay(str(path), lambda _, event: events.append(event))
    assert [type(event) for event in events] == [Backward, Step]
    assert report.watched is not None
    assert (report.watched.steps, report.findings) == (ROUNDS + 1, [])

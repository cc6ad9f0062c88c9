"""The names that findings and loops give to objects, and loops that are not followed."""

from pathlib import Path

import pytest

from zerograd.core.training_loop import NotFollowed
from zerograd.static.check_file import result_for_bytes
from zerograd.static.read.keys import made
from zerograd.static.training_loops import name_of


def test_an_object_that_another_one_holds_is_named_as_the_code_reaches_it() -> None:
    trainer = made(3, 4)
    key = trainer.attribute("optimizers").item("k")
    assert name_of(key, {trainer: "trainer"}) == "trainer.optimizers[k]"
    assert name_of(key, {}) == key.shown


MANY_DECISIONS = b"""\
import torch
from torch import nn
model = nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    loss = (model(x) - y).square().mean()
    if plain(x):
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    elif quick(x):
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    elif halves(x):
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        if due(y):
            if large(y):
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
"""


def test_a_loop_is_not_followed_where_too_many_decisions_lead_to_some_of_its_code() -> None:
    (loop,) = result_for_bytes(MANY_DECISIONS, "train.py").loops
    assert loop.gap is not None
    assert loop.gap.why is NotFollowed.TOO_LARGE


def test_code_that_many_settings_lead_to_is_looked_at() -> None:
    text = b"""\
import torch
def train(model, loader, a, b, c, d, e):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in loader:
        loss = model(x).mean()
        if a:
            if b:
                if c:
                    if d:
                        if e:
                            loss.backward()
                            optimizer.step()
"""
    (loop,) = result_for_bytes(text, "train.py").loops
    assert [(found.code, found.certain) for found in loop.found] == [("ZG101", True)]


def test_what_gradients_of_other_parameters_hold_is_not_followed() -> None:
    text = b"""\
import torch
def train(shared, local, loader):
    optimizer = torch.optim.SGD(shared.parameters(), lr=0.1)
    for x in loader:
        local(x).mean().backward()
        for p, q in zip(shared.parameters(), local.parameters()):
            p._grad = q.grad
        optimizer.step()
"""
    (loop,) = result_for_bytes(text, "train.py").loops
    assert loop.gap is not None
    assert loop.gap.why is NotFollowed.UNCLEAR_ASSIGNMENT


def test_where_windows_begin_is_left_to_callers_that_count() -> None:
    text = b"""\
import torch
class Model:
    def __init__(self, net, windows):
        self.net, self.windows = net, windows
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    def learn(self, x, step):
        (self.net(x).mean() / self.windows).backward()
        if (step + 1) % self.windows == 0:
            self.optimizer.step()
            self.optimizer.zero_grad()
"""
    (loop,) = result_for_bytes(text, "model.py").loops
    assert loop.gap is not None
    assert loop.gap.why is NotFollowed.LEFT_TO_CALLER


@pytest.mark.parametrize(
    ("why", "text"),
    [
        pytest.param(
            NotFollowed.LEFT_TO_CALLER,
            """\
import torch
def train_step(loss, optimizer, fresh):
    if fresh:
        optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
            id="a caller decides about the clear",
        ),
        pytest.param(
            NotFollowed.LEFT_TO_CALLER,
            """\
import torch
class Pair:
    def __init__(self, judge):
        self.judge = judge
        self.optimizer = torch.optim.Adam(judge.parameters())
    def learn(self, x, model, optimizer):
        self.optimizer.zero_grad()
        self.judge(model(x)).mean().backward()
        optimizer.step()
        self.optimizer.step()
""",
            id="nothing clears what a backward may reach",
        ),
        pytest.param(
            NotFollowed.NO_BACKWARD,
            """\
import torch
def train(net, loader):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in loader:
        search(net, x)
        for part in x:
            optimizer.zero_grad()
            print(net(part).mean())
        optimizer.step()
def search(net, x):
    other = torch.optim.SGD(net.choices(), lr=0.1)
    other.zero_grad()
    net(x).mean().backward()
    other.step()
""",
            id="the only backward is another optimizer's, and is cleared",
        ),
    ],
)
def test_a_loop_is_not_right_where_its_gradients_were_not_followed(
    why: NotFollowed, text: str
) -> None:
    loop = result_for_bytes(text.encode(), "train.py").loops[0]
    assert not loop.found
    assert loop.gap is not None
    assert loop.gap.why is why


def test_a_finding_in_a_helper_of_another_file_names_its_only_call(tmp_path: Path) -> None:
    helper = (
        "import torch\ndef limit(net):\n    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)\n"
    )
    (tmp_path / "limits.py").write_text(helper)
    text = b"""\
import torch
from limits import limit
def train(net, loader):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in loader:
        optimizer.zero_grad()
        net(x).mean().backward()
        optimizer.step()
        limit(net)
"""
    path = tmp_path / "train.py"
    path.write_bytes(text)
    once = result_for_bytes(text, str(path)).findings
    assert [
        (one.code, note.site.line)
        for one in once
        for note in one.notes
        if note.message == "called here"
    ] == [("ZG203", 9)]
    twice = result_for_bytes(text + b"        limit(net)\n", str(path)).findings
    assert [note for one in twice for note in one.notes if note.message == "called here"] == []

"""What is repaired safely, and what is left to a person: nothing that needs a guess is safe."""

from __future__ import annotations

import pytest

from support.repairs import HEAD, repaired

TWO = "other = torch.nn.Linear(1, 1)\nsecond = torch.optim.SGD(other.parameters(), lr=0.1)\n"

SAFE = {
    "a clear in one branch": (
        (
            "for x in data:\n    if x.sum() > 0:\n        optimizer.zero_grad()\n        loss = model(x).sum()\n"
            "    else:\n        loss = model(-x).sum()\n    loss.backward()\n    optimizer.step()\n"
        ),
        "for x in data:\n    optimizer.zero_grad()\n    if x.sum() > 0:\n",
    ),
    "a clear that hangs on what an iteration computes": (
        (
            "for x in data:\n    loss = model(x).sum()\n    if loss.item() > 0.5:\n        optimizer.zero_grad()  # why\n"
            "    loss.backward()\n    optimizer.step()\n"
        ),
        "    loss = model(x).sum()\n    optimizer.zero_grad()  # why\n    loss.backward()\n",
    ),
    "the second of two optimizers": (
        TWO
        + "for x in data:\n    optimizer.zero_grad()\n    loss = other(model(x)).sum()\n    loss.backward()\n"
        "    optimizer.step()\n    second.step()\n",
        "    optimizer.zero_grad()\n    second.zero_grad()\n    loss",
    ),
    "a guard that counts keeps its window": (
        (
            "for i, x in enumerate(data):\n    (model(x).sum() / N).backward()\n"
            "    if (i + 1) % N == 0 or i + 1 == len(data):\n        optimizer.step()\n        print(i)\n"
        ),
        "        optimizer.step()\n        optimizer.zero_grad()\n        print(i)\n",
    ),
    "a guard that leaves out a bad batch clears all the same": (
        (
            "for x in data:\n    loss = model(x).sum()\n    loss.backward()\n    if torch.isfinite(loss):\n"
            "        optimizer.step()\n"
        ),
        "for x in data:\n    optimizer.zero_grad()\n    loss",
    ),
    "a clip with its if": (
        (
            "limit = 1.0\nfor x in data:\n    optimizer.zero_grad()\n    model(x).sum().backward()\n    optimizer.step()\n"
            "    if limit:\n        torch.nn.utils.clip_grad_norm_(model.parameters(), limit)\n"
        ),
        "    if limit:\n        torch.nn.utils.clip_grad_norm_(model.parameters(), limit)\n    optimizer.step()\n",
    ),
    "an unscale_ under the test that scales": (
        (
            "def train(scaler=None):\n    for x in data:\n        optimizer.zero_grad()\n        loss = model(x).sum()\n"
            "        if scaler is not None:\n            scaler.scale(loss).backward()\n        else:\n            loss.backward()\n"
            "        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n        if scaler is not None:\n"
            "            scaler.step(optimizer)\n            scaler.update()\n        else:\n            optimizer.step()\n"
        ),
        "        if scaler is not None:\n            scaler.unscale_(optimizer)\n        torch.nn.utils.clip",
    ),
    "an unscale_ before a clip that shares a line with its if": (
        (
            "def train(scaler=None, limit=None):\n    for x in data:\n        optimizer.zero_grad()\n"
            "        loss = model(x).sum()\n        if scaler is not None:\n            scaler.scale(loss).backward()\n"
            "        else:\n            loss.backward()\n"
            "        if limit: torch.nn.utils.clip_grad_norm_(model.parameters(), limit)\n"
            "        if scaler is not None:\n            scaler.step(optimizer)\n            scaler.update()\n"
            "        else:\n            optimizer.step()\n"
        ),
        "        if scaler is not None:\n            scaler.unscale_(optimizer)\n        if limit: torch.nn.utils.clip",
    ),
    "an unscale_ that comes too late, with its if": (
        (
            "def train(scaler=None):\n    for x in data:\n        optimizer.zero_grad()\n"
            "        loss = model(x).sum()\n        if scaler is not None:\n            scaler.scale(loss).backward()\n"
            "        else:\n            loss.backward()\n"
            "        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
            "        if scaler is not None:\n            scaler.unscale_(optimizer)\n"
            "        if scaler is not None:\n            scaler.step(optimizer)\n            scaler.update()\n"
            "        else:\n            optimizer.step()\n"
        ),
        "            scaler.unscale_(optimizer)\n        torch.nn.utils.clip",
    ),
    "an early clip goes behind an unscale_ that is inserted": (
        (
            "for x in data:\n    optimizer.zero_grad()\n    loss = model(x).sum()\n"
            "    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n    scaler.scale(loss).backward()\n"
            "    scaler.step(optimizer)\n    scaler.update()\n"
        ),
        "    scaler.scale(loss).backward()\n    scaler.unscale_(optimizer)\n    torch.nn.utils.clip",
    ),
    "an early clip takes its unscale_ along": (
        (
            "for x in data:\n    optimizer.zero_grad()\n    loss = model(x).sum()\n    scaler.unscale_(optimizer)\n"
            "    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n    scaler.scale(loss).backward()\n"
            "    scaler.step(optimizer)\n    scaler.update()\n"
        ),
        "    scaler.scale(loss).backward()\n    scaler.unscale_(optimizer)\n    torch.nn.utils.clip",
    ),
}

UNSAFE = {
    "two steps with one clear: one of them may be too many": (
        (
            "for x in data:\n    optimizer.zero_grad()\n    model(x).sum().backward()\n    optimizer.step()\n"
            "    model(-x).sum().backward()\n    optimizer.step()\n"
        ),
        "    optimizer.step()\n    optimizer.zero_grad()\n    model(-x)",
    ),
    "a clear in another function than the backward": (
        (
            "def back(x):\n    model(x).sum().backward()\n\n\ndef step():\n    optimizer.step()\n\n\n"
            "for x in data:\n    back(x)\n    step()\n"
        ),
        "    optimizer.step()\n    optimizer.zero_grad()\n",
    ),
    "a clear every second iteration: the step may be what is too often": (
        (
            "for i, x in enumerate(data):\n    if i % 2 == 0:\n        optimizer.zero_grad()\n"
            "    model(x).sum().backward()\n    optimizer.step()\n"
        ),
        "enumerate(data):\n    optimizer.zero_grad()\n    model",
    ),
    "a clip in the window whose result is used": (
        (
            "for i, x in enumerate(data):\n    (model(x).sum() / N).backward()\n"
            "    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
            "    if (i + 1) % N == 0 or i + 1 == len(data):\n        optimizer.step()\n        optimizer.zero_grad()\n"
        ),
        "        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n        optimizer.step()\n",
    ),
    "a clip that leaves a branch": (
        (
            "def train(half=False):\n    for i, x in enumerate(data):\n        loss = model(x).sum() / N\n"
            "        if half:\n            loss.backward()\n            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
            "        else:\n            loss.backward()\n"
            "        if (i + 1) % N == 0 or i + 1 == len(data):\n            optimizer.step()\n            optimizer.zero_grad()\n"
        ),
        "            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n            optimizer.step()\n",
    ),
    "windows of the wrong length": (
        (
            "for i, x in enumerate(data):\n    (model(x).sum() / N).backward()\n    if i % N == 0 or i + 1 == len(data):\n"
            "        optimizer.step()\n        optimizer.zero_grad()\n"
        ),
        "    if (i + 1) % N == 0 or i + 1 == len(data):\n",
    ),
}


@pytest.mark.parametrize("claim", SAFE)
def test_safe(claim: str) -> None:
    before, wanted = SAFE[claim]
    done = repaired(HEAD + before, unsafe=False)
    assert wanted in done.document.text
    assert [one for one in done.result.findings if one.level == "error"] == []


@pytest.mark.parametrize("claim", UNSAFE)
def test_unsafe(claim: str) -> None:
    before, wanted = UNSAFE[claim]
    assert wanted not in HEAD + before
    left = repaired(HEAD + before, unsafe=False)
    assert left.document.text == HEAD + before
    assert any(one.fix is not None and not one.fix.safe for one in left.result.findings)
    assert wanted in repaired(HEAD + before, unsafe=True).document.text


def test_a_clip_is_not_moved_into_one_branch_of_the_guard() -> None:
    code = (
        "def train(tpu=False, half=False):\n    scaler = torch.amp.GradScaler()\n    for i, x in enumerate(data):\n"
        "        if half:\n            scaler.scale(model(x).sum()).backward()\n        else:\n            model(x).sum().backward()\n"
        "        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n        if (i + 1) % N == 0:\n"
        "            if half:\n                scaler.step(optimizer)\n                scaler.update()\n            elif tpu:\n"
        "                xm.optimizer_step(optimizer)\n            else:\n                optimizer.step()\n"
        "            optimizer.zero_grad()\n"
    )
    done = repaired(HEAD + code, unsafe=True).document.text
    branch = done.split("elif tpu:\n")[1].split("else:")[0]
    assert "clip_grad_norm_" not in branch


def test_what_is_only_possible_has_no_safe_fix() -> None:
    code = (
        "def train(clear, loader):\n    for x in loader:\n        if clear:\n            optimizer.zero_grad()\n"
        "        model(x).sum().backward()\n        optimizer.step()\n"
    )
    done = repaired(HEAD + code, unsafe=False)
    possible = [one for one in done.result.findings if not one.certain]
    assert possible
    assert not any(one.fix is not None and one.fix.safe for one in possible)


def test_a_clear_is_not_moved_out_of_its_method() -> None:
    wrong = (
        "import torch\n\n\nclass Trainer:\n    def __init__(self, model):\n        self.model = model\n"
        "        self.base = torch.optim.SGD(model.parameters(), lr=0.1)\n\n"
        "    def update(self):\n        self.base.zero_grad()\n        self.base.step()\n\n"
        "    def fit(self, data):\n        for x in data:\n            self.model(x).sum().backward()\n"
        "            self.update()\n"
    )
    done = repaired(wrong, unsafe=False).document.text
    assert "        self.base.step()\n        self.base.zero_grad()\n" in done


def test_a_clip_in_another_loop_than_the_step_stays_where_it_is() -> None:
    code = (
        "for x in data:\n    optimizer.zero_grad()\n    model(x).sum().backward()\n    optimizer.step()\n"
        "for x in data:\n    loss = model(x).sum()\n    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
    )
    done = repaired(HEAD + code)
    (finding,) = done.result.findings
    assert finding.code == "ZG203"
    assert finding.refused == "the clip and the step are in different blocks"
    assert done.document.text == HEAD + code

"""Which losses of a loop nobody uses."""

import ast

import pytest

from zerograd.static.interp.unused_loss import idle_loss


def unused(body: str) -> str:
    loop = ast.parse(f"for x in data:\n {'; '.join(body.splitlines())}").body[0]
    found = idle_loss(loop)
    return "" if found is None else ast.unparse(found)


@pytest.mark.parametrize(
    "shown",
    [
        "shown_loss = loss.item()",
        "total_loss += float(loss)\nmean_loss = total_loss / 3",
        "copied_loss = loss.detach()\nshown_loss = copied_loss.mean()",
    ],
)
def test_what_is_made_of_a_loss_that_is_used_is_no_unused_loss(shown: str) -> None:
    assert not unused(f"loss = model(x).mean()\n{shown}\nloss.backward()\noptimizer.step()")


def test_what_a_call_of_a_backward_gives_back_is_no_unused_loss() -> None:
    assert not unused("loss = backward()\noptimizer.step()\nprint(loss)")


def test_a_loss_is_unused_beside_another_one_that_is_used() -> None:
    body = "loss = model(x).mean()\nother_loss = judge(x).mean()\nloss.backward()\noptimizer.step()"
    assert unused(body) == "other_loss = judge(x).mean()"


def test_a_loss_is_unused_although_it_comes_from_the_gradients_of_another_one() -> None:
    inner = "inner_loss = model(x).mean()\nw = w - grad(inner_loss, w)"
    assert (
        unused(f"{inner}\nouter_loss = (w * x).mean()\noptimizer.step()")
        == "outer_loss = (w * x).mean()"
    )

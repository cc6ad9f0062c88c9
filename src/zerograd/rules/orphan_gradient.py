"""Parameters receive gradients in every window, and no optimizer steps or clears them.

A parameter that no optimizer has never learns. Its gradients are computed anyway, grow with every
backward because nothing clears them, and need the memory of a second model. The optimizer was created
before a layer was added or replaced, it got only one of two networks, or the layers should have been
frozen.

Only a run shows it: the source does not say which parameters a backward reaches.

Fix: none. You have to decide whether the parameters should learn or be frozen.

## Bad

```python
body, head = nn.Linear(3, 3), nn.Linear(3, 1)
optimizer = torch.optim.SGD(head.parameters(), lr=0.01)
for x, y in loader:
    optimizer.zero_grad()
    loss = loss_fn(head(body(x)), y)
    loss.backward()
    optimizer.step()
```

## Good

```python
body, head = nn.Linear(3, 3), nn.Linear(3, 1)
optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.01)
for x, y in loader:
    optimizer.zero_grad()
    loss = loss_fn(head(body(x)), y)
    loss.backward()
    optimizer.step()
```
"""

from zerograd.core.events import Backward, Event
from zerograd.core.lifecycle import State
from zerograd.core.rule import Rule, Violation, named


def check(before: State, event: Event) -> Violation | None:
    if not isinstance(event, Backward) or not event.orphan:
        return None
    return Violation(
        site=event.site,
        message="backward() fills gradients that no optimizer steps or clears" + named(event),
        label="adds to .grad, again and again",
        help="give the parameters to the optimizer, or freeze them: requires_grad_(False)",
    )


RULE = Rule(
    code="ZG108",
    name="orphan-gradient",
    doc=__doc__,
    check=check,
    reads=frozenset(),
    only="runtime",
)

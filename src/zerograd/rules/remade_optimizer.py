"""The optimizer is made anew for every step, and its state is lost.

Adam, SGD with momentum and most other optimizers remember the gradients of the steps before. An
optimizer that is made inside the loop has nothing to remember: momentum has no effect, and every step
of Adam is as long as its first one.

A run reports it after five optimizers in a row that took one step each, over parameters that nothing
else has changed in between. Optimizers without state, and those that run their own loop, like LBFGS,
are not reported.

Fix: none. The optimizer has to be made before the loop; only you know what else depends on it.

## Bad

```python
for x, y in loader:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loss = loss_fn(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
```

## Good

```python
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for x, y in loader:
    loss = loss_fn(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
```
"""

from zerograd.core.events import Event, Step
from zerograd.core.finding import Note
from zerograd.core.lifecycle import State
from zerograd.core.rule import Rule, Violation


def check(before: State, event: Event) -> Violation | None:
    if not isinstance(event, Step) or event.may or event.foreign or event.remade is None:
        return None
    return Violation(
        site=event.remade,
        message="the optimizer is made anew for every step: what it remembers is lost",
        label="made here, again and again",
        notes=(Note(event.site, "its only step"),),
        help="make the optimizer once, before the loop",
        step=event.site,
    )


RULE = Rule(
    code="ZG112",
    name="remade-optimizer",
    doc=__doc__,
    check=check,
    reads=frozenset(),
    needs=(lambda event: isinstance(event, Step) and event.remade is not None,),
    level="advice",
    only="runtime",
)

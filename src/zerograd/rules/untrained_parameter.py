"""An optimizer has parameters that never receive a gradient, while others of their shapes do.

A layer was replaced after the optimizer was made, or the optimizer got the parameters of another copy
of the model. The program trains parameters that no loss depends on, and those that the loss depends on
are never stepped.

A run reports it if, in 100 steps, no backward reaches the parameters, and parameters of the same shapes
that no optimizer has are reached. Experts that are not chosen, heads that are not used and frozen
layers are not meant: there, nothing takes their place.

Fix: none. Only you know which parameters are meant.

## Bad

```python
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
model = nn.Linear(3, 1)
for epoch in range(12):
    for x, y in loader:
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
        model.zero_grad()
```

## Good

```python
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(12):
    for x, y in loader:
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
        model.zero_grad()
```
"""

from zerograd.core.events import Backward, Event
from zerograd.core.lifecycle import State
from zerograd.core.rule import Rule, Violation, listed


def check(before: State, event: Event) -> Violation | None:
    if not isinstance(event, Backward) or event.may or event.missed is None:
        return None
    return Violation(
        site=event.site,
        message="backward() never reaches parameters that an optimizer has, but others of their shapes"
        f", which no optimizer has{listed(event.missed.names, event.missed.count)}",
        label="fills the gradients of other parameters",
        help="make the optimizer after the model, and give it the parameters that the loss uses",
    )


RULE = Rule(
    code="ZG111",
    name="untrained-parameter",
    doc=__doc__,
    check=check,
    reads=frozenset(),
    needs=(lambda event: isinstance(event, Backward) and event.missed is not None,),
    level="advice",
    only="runtime",
)

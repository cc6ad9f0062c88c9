"""A tensor is passed to backward as its own gradient.

`loss.backward(loss)` starts back-propagation with the loss itself instead of 1, so every gradient is
multiplied by the loss: the gradient of loss²/2. As the loss decreases, so does the step. A watched
run reports it only for a tensor that holds one number.

Fix: unsafe. The argument is removed.

## Bad

```python
for x, y in loader:
    optimizer.zero_grad()
    loss = loss_fn(model(x), y)
    loss.backward(loss)
    optimizer.step()
```

## Good

```python
for x, y in loader:
    optimizer.zero_grad()
    loss = loss_fn(model(x), y)
    loss.backward()
    optimizer.step()
```
"""

from zerograd.core.events import Backward, Event
from zerograd.core.lifecycle import State
from zerograd.core.rule import Rule, Violation


def check(before: State, event: Event) -> Violation | None:
    if not isinstance(event, Backward) or not event.own_gradient:
        return None
    return Violation(
        site=event.site,
        message="backward() takes the tensor as its own gradient",
        label="multiplies every gradient by the loss",
        help="call backward() without an argument",
    )


RULE = Rule(
    code="ZG109",
    name="self-backward",
    doc=__doc__,
    check=check,
    reads=frozenset(),
    needs=(lambda event: isinstance(event, Backward) and event.own_gradient,),
)

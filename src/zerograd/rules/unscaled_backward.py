"""The loss is not scaled, but the step goes through a scaler.

`scaler.step` divides the gradients by the scale. If the loss was never multiplied by it, the step is
65536 times too small: the model seems to learn nothing.

Fix: safe. The loss is scaled by the scaler that steps. Unsafe if a test decides about the scaler.

## Bad

```python
for x, y in loader:
    optimizer.zero_grad()
    loss = loss_fn(model(x), y)
    scaler.scale(loss)
    loss.backward()
    scaler.step(optimizer)
    scaler.update()
```

## Good

```python
for x, y in loader:
    optimizer.zero_grad()
    loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
```
"""

from zerograd.core.events import Event, Step
from zerograd.core.finding import Note
from zerograd.core.lifecycle import State
from zerograd.core.rule import Feature, Rule, Violation, scaler


def check(before: State, event: Event) -> Violation | None:
    if not isinstance(event, Step) or event.foreign or not event.scaled or before.plain is None:
        return None
    return Violation(
        site=before.plain.site,
        message="the loss is not scaled, but the scaler's step divides by the scale",
        label="not scaled",
        notes=(Note(event.site, "divided here"),),
        help="call scaler.scale(loss).backward()",
        step=event.site,
    )


RULE = Rule(
    code="ZG208",
    name="unscaled-backward",
    doc=__doc__,
    check=check,
    reads=frozenset({"grads", "backward", "plain"}),
    needs=(scaler,),
    applies_to=Feature.SCALER,
    pairs_scaling=True,
)

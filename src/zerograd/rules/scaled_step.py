"""`optimizer.step()` is called while the gradients are still scaled.

`scaler.step(optimizer)` first divides by the scale, and skips the step if it finds inf or nan. A direct
call of the optimizer does neither: SGD moves 65536 times too far.

Fix: safe. The scaler that scaled the loss makes the step, and `scaler.update()` follows.

## Bad

```python
for x, y in loader:
    optimizer.zero_grad()
    loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    optimizer.step()
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
from zerograd.core.lifecycle import Scale, State
from zerograd.core.rule import Feature, Rule, Violation, scaler


def check(before: State, event: Event) -> Violation | None:
    if not isinstance(event, Step) or event.foreign or event.scaled is not False:
        return None
    if before.scale is not Scale.SCALED or before.backward is None:
        return None
    return Violation(
        site=event.site,
        message="step() uses gradients that are still scaled",
        label="bypasses the scaler",
        notes=(Note(before.backward.site, "scaled here"),),
        help="call scaler.step(optimizer), then scaler.update()",
    )


RULE = Rule(
    code="ZG205",
    name="scaled-step",
    doc=__doc__,
    check=check,
    reads=frozenset({"grads", "backward", "scale", "unscaled"}),
    needs=(scaler,),
    applies_to=Feature.SCALER,
    pairs_scaling=True,
)

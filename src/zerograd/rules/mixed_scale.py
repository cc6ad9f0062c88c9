"""A scaled backward adds to gradients that are already unscaled.

`unscale_` divides the gradients once. A scaled backward after it adds gradients that are 65536 times
larger, and `scaler.step` does not unscale again: the step uses a sum of scaled and unscaled gradients.

Fix: none. You have to decide which backward belongs to the window.

## Bad

```python
for x, y in loader:
    optimizer.zero_grad()
    loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    penalty = model(x).pow(2).mean()
    scaler.scale(penalty).backward()
    scaler.step(optimizer)
    scaler.update()
```

## Good

```python
for x, y in loader:
    optimizer.zero_grad()
    loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    penalty = model(x).pow(2).mean()
    scaler.scale(penalty).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
```
"""

from zerograd.core.events import Backward, Event
from zerograd.core.finding import Note
from zerograd.core.lifecycle import Scale, State
from zerograd.core.rule import Feature, Rule, Violation, scaler


def check(before: State, event: Event) -> Violation | None:
    if not isinstance(event, Backward) or event.may or not event.scaled:
        return None
    if before.backward is None or before.backward.may:
        return None
    if before.unscaled is None or before.scale is not Scale.PLAIN:
        return None
    return Violation(
        site=event.site,
        message="a scaled backward() adds to gradients that are already unscaled",
        label="adds scaled gradients",
        notes=(Note(before.unscaled.site, "unscaled here"),),
        help="call unscale_() once, after the window's last backward()",
    )


RULE = Rule(
    code="ZG206",
    name="mixed-scale",
    doc=__doc__,
    check=check,
    reads=frozenset({"grads", "backward", "scale", "unscaled"}),
    needs=(scaler,),
    applies_to=Feature.SCALER,
)

"""The gradients are clipped while they are still scaled.

`scaler.scale(loss)` multiplies the gradients by a large factor (65536 at first). A threshold of 1.0
then clips practically every step, to 1/65536 of the intended size: the clip decides the step size.

Fix: safe. `scaler.unscale_(optimizer)` is inserted before the clip, under the same test as the scaled
loss; an `unscale_` after the clip is moved.

## Bad

```python
for x, y in loader:
    optimizer.zero_grad()
    loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
```

## Good

```python
for x, y in loader:
    optimizer.zero_grad()
    loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
```
"""

from zerograd.core.events import Clip, Event
from zerograd.core.finding import Note
from zerograd.core.lifecycle import Scale, State
from zerograd.core.rule import Feature, Rule, Violation, of_kind, scaler


def check(before: State, event: Event) -> Violation | None:
    if not isinstance(event, Clip) or event.may or before.backward is None:
        return None
    if before.scale is not Scale.SCALED:
        return None
    return Violation(
        site=event.site,
        message="the gradients are clipped while they are still scaled",
        label="clips scaled gradients",
        notes=(Note(before.backward.site, "scaled here"),),
        help="call scaler.unscale_(optimizer) before the clip",
    )


RULE = Rule(
    code="ZG201",
    name="clip-before-unscale",
    doc=__doc__,
    check=check,
    reads=frozenset({"grads", "backward", "scale", "unscaled"}),
    needs=(of_kind(Clip), scaler),
    applies_to=Feature.SCALER,
)

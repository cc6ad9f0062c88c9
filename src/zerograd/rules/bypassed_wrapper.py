"""`loss.backward()` is called where a wrapper should run the backward.

Accelerate, Fabric and DeepSpeed scale the loss, divide it by the accumulation steps and synchronise
the gradients in *their* backward. The tensor's own `backward()` skips all of that.

Fix: safe. The wrapper runs the backward. Unsafe if `backward()` has more arguments than the loss.

## Bad

```python
for x, y in loader:
    with accelerator.accumulate(model):
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
```

## Good

```python
for x, y in loader:
    with accelerator.accumulate(model):
        loss = loss_fn(model(x), y)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
```
"""

from typing import TypeGuard

from zerograd.core.events import Backward, Event, Excuse
from zerograd.core.lifecycle import State
from zerograd.core.rule import Rule, Violation


def check(before: State, event: Event) -> Violation | None:
    if not _bypasses(event):
        return None
    return Violation(
        site=event.site,
        message=f"backward() bypasses {event.bypasses}, which has to run it",
        label="not scaled, not divided, not synchronised",
        help=f"call {event.bypasses}.backward(loss)",
    )


def _bypasses(event: Event) -> TypeGuard[Backward]:
    if not isinstance(event, Backward) or event.excuse is Excuse.OTHER_ARM:
        return False
    return bool(event.bypasses)


RULE = Rule(
    code="ZG501",
    name="bypassed-wrapper",
    doc=__doc__,
    check=check,
    reads=frozenset(),
    excuses=(Excuse.OTHER_ARM,),
    needs=(_bypasses,),
    only="static",
)

"""A loop clears and steps, and computes a loss, but never calls its backward.

Without a backward there are no gradients to step with. The loop runs, the loss is logged, and the
weights do not change.

Fix: unsafe. The backward of the loss is inserted.

## Bad

```python
for x, y in loader:
    optimizer.zero_grad()
    loss = loss_fn(model(x), y)
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

from typing import TypeGuard

from zerograd.core.events import Event, Excuse, Step
from zerograd.core.finding import Note
from zerograd.core.lifecycle import EMPTY, State
from zerograd.core.rule import Rule, Violation


def check(before: State, event: Event) -> Violation | None:
    if not _is_unfed(event) or before.grads not in EMPTY:
        return None
    if before.cleared is None and not event.again:
        return None
    if before.dropped is not None:
        return None  # there was a backward, and the clear is in the wrong place
    notes = []
    if before.cleared is not None and before.cleared.excuse is not Excuse.UNSEEN:
        notes.append(Note(before.cleared.site, "cleared here"))
    if event.idle_loss is not None:
        notes.append(Note(event.idle_loss, "nothing uses this loss"))
    around = "in this loop" if event.loop else "before it in this function"
    where = "between the clear and the step" if event.fed else around
    return Violation(
        site=event.site,
        message=f"step() has no gradients to use: no backward() runs {where}",
        label="no gradients",
        notes=tuple(notes),
        help="call backward() on the loss before step()",
    )


def _is_unfed(event: Event) -> TypeGuard[Step]:
    if not isinstance(event, Step) or event.foreign:
        return False
    return event.again or (event.idle_loss is not None and not event.fed)


RULE = Rule(
    code="ZG104",
    name="empty-step",
    doc=__doc__,
    check=check,
    reads=frozenset({"grads", "backward", "cleared", "dropped", "lent", "shared"}),
    misses_backward=True,
    needs=(_is_unfed,),
)

"""The last, partial window is never stepped.

If the number of micro-batches is not a multiple of N, the guard leaves a remainder. A clear at the start
of the next epoch, or the end of the training, drops those micro-batches, in every epoch.

Fix: unsafe. The guard is also true for the last batch; if the number of batches is unknown, a step
after the loop closes the open window.

## Bad

```python
for i, (x, y) in enumerate(loader):
    loss = loss_fn(model(x), y) / N
    loss.backward()
    if (i + 1) % N == 0:
        optimizer.step()
        optimizer.zero_grad()
```

## Good

```python
for i, (x, y) in enumerate(loader):
    loss = loss_fn(model(x), y) / N
    loss.backward()
    if (i + 1) % N == 0 or i + 1 == len(loader):
        optimizer.step()
        optimizer.zero_grad()
```
"""

from zerograd.core.events import End, Event, PartialWindow, Site, Zero
from zerograd.core.finding import Note
from zerograd.core.lifecycle import State
from zerograd.core.rule import Rule, Violation, Windows, guarded
from zerograd.rules import carried_window


def check(before: State, event: Event) -> Violation | None:
    if isinstance(event, PartialWindow):
        return _violation(event.site, event.backward, event.cleared, event.guard)
    held, backward = before.held, before.backward
    if not isinstance(event, (Zero, End)) or event.may or held is None or backward is None:
        return None
    if isinstance(event, Zero) and event.loop == held.loop:
        return None  # zero-in-window
    if before.window > event.length:
        return None  # misplaced-guard
    cleared = event.site if isinstance(event, Zero) else None
    return _violation(held.site, backward.site, cleared, held.guard)


def _violation(step: Site, backward: Site, cleared: Site | None, guard: Site | None) -> Violation:
    notes = [Note(backward, "the last micro-batches")]
    if cleared is not None:
        notes.append(Note(cleared, "cleared here"))
    elif guard is not None:
        notes.append(Note(guard, "the guard does not close it"))
    return Violation(
        site=step,
        message="the last, partial window is never stepped",
        label="never reached for the remainder",
        notes=tuple(notes),
        help="step once more when the loader ends: … or i + 1 == len(loader)",
    )


RULE = Rule(
    code="ZG303",
    name="dropped-window",
    doc=__doc__,
    check=check,
    reads=frozenset({"grads", "backward", "held", "window"}),
    needs=(guarded,),
    level="advice",
    most_decisions=0,
    windows=Windows.REMAINDER,
    yields_to=carried_window.RULE,  # what is carried on is dropped only at the very end
)

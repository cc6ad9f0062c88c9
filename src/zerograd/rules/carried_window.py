"""A partial window is carried into the next epoch's first step.

The counter restarts with every epoch, but the gradients stay. The last, partial window of one epoch is
added to the first window of the next, so that step uses more than N micro-batches.

Fix: unsafe. The guard is also true for the last batch; if the number of batches is unknown, a step
after the loop closes the open window.

## Bad

```python
for epoch in range(2):
    for i, (x, y) in enumerate(loader):
        loss = loss_fn(model(x), y) / N
        loss.backward()
        if (i + 1) % N == 0:
            optimizer.step()
            optimizer.zero_grad()
```

## Good

```python
for epoch in range(2):
    for i, (x, y) in enumerate(loader):
        loss = loss_fn(model(x), y) / N
        loss.backward()
        if (i + 1) % N == 0 or i + 1 == len(loader):
            optimizer.step()
            optimizer.zero_grad()
```
"""

from zerograd.core.events import Event, LongWindow, Site, Step
from zerograd.core.finding import Note
from zerograd.core.lifecycle import State
from zerograd.core.rule import Rule, Violation, Windows, guarded


def check(before: State, event: Event) -> Violation | None:
    if isinstance(event, LongWindow):
        label = f"uses {event.window} micro-batches instead of {event.meant or 'N'}"
        return _violation(event.site, event.guard, label)
    if not isinstance(event, Step) or event.foreign or event.guard is None or event.length < 2:
        return None
    if not before.carried or before.backward is None or before.backward.may:
        return None
    if before.window <= event.length:
        return None
    said = event.decided.length if event.decided is not None else 0
    return _violation(event.site, event.guard, f"uses more than {said or 'N'} micro-batches")


def _violation(step: Site, guard: Site | None, label: str) -> Violation:
    return Violation(
        site=step,
        message="the step uses micro-batches that the previous epoch left over",
        label=label,
        notes=(Note(guard, "the counter restarts with the loop"),) if guard else (),
        help="step once more when the loader ends: … or i + 1 == len(loader)",
    )


RULE = Rule(
    code="ZG304",
    name="carried-window",
    doc=__doc__,
    check=check,
    reads=frozenset({"grads", "backward", "window", "carried"}),
    needs=(guarded,),
    level="advice",
    most_decisions=0,
    windows=Windows.REMAINDER,
)

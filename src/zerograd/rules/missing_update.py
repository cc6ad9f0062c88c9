"""A scaler unscales or steps one optimizer twice without `update()` in between.

`update()` ends the scaler's iteration: it adjusts the scale and forgets which optimizers were unscaled.
Without it the second `unscale_()` or `step()` of the same optimizer raises RuntimeError, often only in
the rare branch that skipped the update.

Fix: safe. `scaler.update()` is inserted after the step, or where the step is skipped; an `unscale_`
of every micro-batch is moved to the step.

## Bad

```python
for x, y in loader:
    optimizer.zero_grad()
    loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
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

from zerograd.core.events import Event, Step, Unscale
from zerograd.core.finding import Note
from zerograd.core.lifecycle import State
from zerograd.core.rule import Feature, Rule, Violation, place, scaler


def check(before: State, event: Event) -> Violation | None:
    first: Event | None
    if isinstance(event, Unscale):
        first, call = before.unscaled or before.stepped, "unscale_()"
    elif isinstance(event, Step) and not event.foreign:
        first, call = before.stepped, "scaler.step()"
    else:
        return None
    if event.may or not event.scaled or first is None:
        return None
    return Violation(
        site=event.site,
        message=f"{call} is called again without scaler.update() in between",
        label="second call",
        notes=(Note(first.site, "first call" + place(first, event)),),
        help="call scaler.update() once after every scaler.step(), also where the step is skipped",
    )


RULE = Rule(
    code="ZG207",
    name="missing-update",
    doc=__doc__,
    check=check,
    reads=frozenset({"unscaled", "stepped"}),
    needs=(scaler,),
    applies_to=Feature.SCALER,
)

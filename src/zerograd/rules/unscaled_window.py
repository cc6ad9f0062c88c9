"""A window of N backward calls is not divided by N.

The mean loss of one big batch is the mean over its micro-batches. Adding N mean losses gives N times
that gradient, so a change of the accumulation also changes the learning rate. Division by a number that
changes within the window gives the micro-batches different weights.

Fix: unsafe. The loss is divided by N in its `backward()`; the logged loss does not change.

## Bad

```python
for i, (x, y) in enumerate(loader):
    loss = loss_fn(model(x), y)
    loss.backward()
    if (i + 1) % N == 0 or i + 1 == len(loader):
        optimizer.step()
        optimizer.zero_grad()
```

## Good

```python
for i, (x, y) in enumerate(loader):
    loss = loss_fn(model(x), y)
    (loss / N).backward()
    if (i + 1) % N == 0 or i + 1 == len(loader):
        optimizer.step()
        optimizer.zero_grad()
```
"""

from zerograd.core.events import Event, Excuse, Step
from zerograd.core.finding import Note
from zerograd.core.lifecycle import State
from zerograd.core.rule import Rule, Violation, Windows, guarded

DIFFERENT = "the losses of one window are divided by different numbers"


def check(before: State, event: Event) -> Violation | None:
    if not isinstance(event, Step) or event.foreign or event.length < 2 or before.window < 2:
        return None
    if before.backward is None or before.backward.may or 0 in before.divisors:
        return None
    if event.guard is None and before.backward.loop == event.loop:
        return None  # several losses of one iteration, not micro-batches
    if before.lent is not None and before.lent[0].read_by is not None:
        return None  # a part of the window is another optimizer's
    if before.divisors == {None}:
        message = "the losses of an accumulation window are added, not averaged"
    elif len(before.divisors) > 1:
        message = DIFFERENT
    else:
        return None
    return Violation(
        site=before.backward.site,
        message=message,
        label="adds the full loss",
        notes=(Note(event.site, "one step for the whole window"),),
        help="divide the loss by the number of micro-batches in the window",
        step=event.site,
    )


def _counted(event: Event) -> bool:
    """A need: a guard, or a step whose window is counted without one."""
    return guarded(event) or (isinstance(event, Step) and event.length > 1)


RULE = Rule(
    code="ZG301",
    name="unscaled-window",
    doc=__doc__,
    check=check,
    reads=frozenset({"grads", "backward", "window", "divisors", "lent"}),
    excuses=(Excuse.MAY_BE_WHOLE,),
    needs=(_counted,),
    level="advice",
    only="static",
    windows=Windows.CONTENTS,
)

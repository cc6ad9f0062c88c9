"""`step()` uses gradients that still contain those of an earlier step: nothing cleared them in between.

`backward()` adds to `.grad`. The gradients that a step has used stay there until something clears them,
so the next backward adds the new gradients to the old ones, and the next step uses the sum. Nothing
fails; the model trains on a mixture of this batch and earlier ones.

The clear is missing, is outside the loop that steps, covers only one branch or one optimizer, or clears
another object than the one that is stepped.

Fix: safe. A clear of the stepped object is inserted where the window begins, or after a guarded step;
a clear outside the loop is moved into it, and a clear under a test of a computed value loses the test.
Unsafe if one iteration steps twice, if another test guards the clear, if windows end in the wrong
place, or if the backward and the step are in different functions.

## Bad

```python
for x, y in loader:
    loss = loss_fn(model(x), y)
    loss.backward()
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

from zerograd.core.events import Backward, Event, Step
from zerograd.core.finding import Note
from zerograd.core.lifecycle import Grads, State
from zerograd.core.rule import Rule, Violation, numbers, of_kind, place


def check(before: State, event: Event) -> Violation | None:
    if not isinstance(event, Step) or event.foreign or before.used is None:
        return None
    mixed = before.mixed if before.grads is Grads.STALE else before.maybe
    if mixed is None:
        return None
    # Older recordings have the numbers of the backward.
    seen = mixed if event.measured is None else event
    return Violation(
        site=mixed.site,
        message="backward() adds to gradients that step() already used" + numbers(seen),
        label="adds to .grad",
        notes=(Note(before.used.site, "used here" + place(before.used, mixed)),),
        help="clear the gradients between the step and the next backward: optimizer.zero_grad()"
        if before.others is None
        else "clear this optimizer right before its own backward: optimizer.zero_grad()",
        step=event.site,
        measured=seen.measured,
    )


RULE = Rule(
    code="ZG101",
    name="stale-gradient",
    doc=__doc__,
    check=check,
    reads=frozenset({"grads", "used", "mixed", "others", "maybe"}),
    needs=(of_kind(Step), of_kind(Backward)),
    single=True,
    outlives_calls=True,
)

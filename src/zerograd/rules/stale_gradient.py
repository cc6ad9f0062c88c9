"""A step uses gradients onto which a backward added after an earlier step had used them.

`backward()` adds to `.grad`. What a step has used stays there until something clears it, so the next
backward adds the new gradients onto the old ones and the next step uses the sum. Nothing fails; the
model trains on a mixture of this batch and earlier ones.

The zero is missing, stands outside the loop that steps, covers one branch or one optimizer only, or
clears another object than the one that is stepped.

Fix: safe. The clear of what is stepped is inserted where the window begins, or after a guarded step;
one that stands outside the loop is moved into it, and freed of a test of what an iteration computes.
Unsafe where one pass steps twice, where another test decides about the clear, where windows end in
the wrong place, or where backward and step stand in different functions.

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
from zerograd.core.lifecycle import Grads, State
from zerograd.core.rule import Evidence, Rule, Violation, numbers, of_kind, place


def check(before: State, event: Event) -> Violation | None:
    if not isinstance(event, Step) or event.foreign or before.used is None:
        return None
    mixed = before.mixed if before.grads is Grads.STALE else before.maybe
    if mixed is None:
        return None
    return Violation(
        site=mixed.site,
        message="backward() adds to gradients that step() already used" + numbers(mixed),
        label="adds to .grad",
        evidence=(Evidence(before.used.site, "used here" + place(before.used, mixed)),),
        help="clear the gradients between the step and the next backward: optimizer.zero_grad()",
        step=event.site,
        measured=mixed.measured,
    )


RULE = Rule(
    code="ZG101",
    name="stale-gradient",
    doc=__doc__,
    check=check,
    reads=frozenset({"grads", "used", "mixed", "maybe"}),
    needs=(of_kind(Step), of_kind(Backward)),
)

"""A step uses the same gradients a second time.

Between two steps of a training loop a backward has to compute new gradients. A second step with the
same gradients moves the weights twice in an old direction, and advances Adam's moments twice.

A part is enough: where only the head was cleared and only the head was reached by the backward, the step
applies the used gradients of the rest again. A run names those parameters.

Fix: unsafe. The second of two equal steps in one block is removed; a backward between them may have
been forgotten instead.

## Bad

```python
for x, y in loader:
    optimizer.zero_grad()
    loss = loss_fn(model(x), y)
    loss.backward()
    optimizer.step()
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

from zerograd.core.events import Event, Step
from zerograd.core.finding import Note
from zerograd.core.lifecycle import Grads, State
from zerograd.core.rule import Rule, Violation, in_brackets, of_kind, place


def check(before: State, event: Event) -> Violation | None:
    if not isinstance(event, Step) or event.foreign or not event.fed:
        return None
    if before.used is None:
        return None
    if event.repeated:
        return _partly(event, before.used)
    if before.grads is not Grads.SPENT or before.maybe is not None:
        return None
    if before.used.whole:
        return None  # two optimizers of the same parameters: each has its own step
    return Violation(
        site=event.site,
        message="step() uses the same gradients a second time",
        label="used again",
        notes=(Note(before.used.site, "used here" + place(before.used, event)),),
        help="step once per backward",
    )


def _partly(event: Step, used: Step) -> Violation:
    some = in_brackets(event.repeated, event.repeated_count)
    return Violation(
        site=event.site,
        message=f"step() uses the same gradients of some parameters a second time{some}",
        label="used again, with new gradients of the others",
        notes=(Note(used.site, "used here" + place(used, event)),),
        help="clear all parameters of the optimizer: optimizer.zero_grad()",
    )


RULE = Rule(
    code="ZG105",
    name="repeated-step",
    doc=__doc__,
    check=check,
    reads=frozenset({"grads", "used", "maybe"}),
    misses_backward=True,
    needs=(of_kind(Step),),
)

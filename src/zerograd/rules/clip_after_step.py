"""The clip comes after the step that has already used the gradients.

The step takes the gradients as they are, of any size. Clipping what it has used changes nothing that
is still to come, or scales what a later backward will add to.

Fix: safe. The clip is moved before the step, with its `if`, and with an `unscale_` where the step
needs one. Unsafe where the step has two arms.

## Bad

```python
for x, y in loader:
    optimizer.zero_grad()
    loss = loss_fn(model(x), y)
    loss.backward()
    optimizer.step()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
```

## Good

```python
for x, y in loader:
    optimizer.zero_grad()
    loss = loss_fn(model(x), y)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
```
"""

from zerograd.core.events import Clip, Event, Step
from zerograd.core.lifecycle import Grads, State
from zerograd.core.rule import Evidence, Rule, Violation, of_kind


def check(before: State, event: Event) -> Violation | None:
    if not isinstance(event, Clip) or event.may:
        return None
    if before.grads is not Grads.SPENT or before.maybe is not None or before.used is None:
        return None
    return Violation(
        site=event.site,
        message="the clip comes after the step() that used the gradients",
        label="too late",
        evidence=(Evidence(before.used.site, "used here"),),
        help="clip after backward() and before step()",
    )


RULE = Rule(
    code="ZG203",
    name="clip-after-step",
    doc=__doc__,
    check=check,
    reads=frozenset({"grads", "used", "maybe"}),
    needs=(of_kind(Clip), of_kind(Step)),
)

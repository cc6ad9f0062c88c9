"""The gradients are clipped before the backward that computes them.

After a clear there is nothing to clip. The backward that follows adds gradients of any size, and the
step uses them unclipped.

Fix: safe. The clip is moved before the step, with its `if`, and with an `unscale_` if the step needs
one. Unsafe if the step is in two branches.

## Bad

```python
for x, y in loader:
    optimizer.zero_grad()
    loss = loss_fn(model(x), y)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    loss.backward()
    optimizer.step()
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

from zerograd.core.events import Backward, Clip, Event, Step
from zerograd.core.finding import Note
from zerograd.core.lifecycle import State
from zerograd.core.rule import Rule, Violation, follows, of_kind


def check(before: State, event: Event) -> Violation | None:
    if not isinstance(event, Step) or event.foreign:
        return None
    if before.early is None or before.backward is None or follows(before.early, event):
        return None  # clip-after-step reports a clip after the step and the clear
    return Violation(
        site=before.early.site,
        message="the clip comes before the backward() whose gradients it should limit",
        label="nothing to clip yet",
        notes=(Note(before.backward.site, "the step uses these gradients unclipped"),),
        help="clip after backward() and before step()",
        step=event.site,
    )


RULE = Rule(
    code="ZG202",
    name="clip-before-backward",
    doc=__doc__,
    check=check,
    reads=frozenset({"grads", "backward", "early"}),
    needs=(of_kind(Clip), of_kind(Step), of_kind(Backward)),
)

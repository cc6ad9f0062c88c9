"""The gradients are clipped after the step that used them.

The step uses the gradients as they are, of any size. A clip after it has no effect on that step, or it
scales gradients to which a later backward will add.

Fix: safe. The clip is moved before the step, with its `if`, and with an `unscale_` if the step needs
one. Unsafe if the step is in two branches.

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

from zerograd.core.events import Clip, Event, Site, Step
from zerograd.core.finding import Note
from zerograd.core.lifecycle import Grads, State
from zerograd.core.rule import Rule, Violation, follows, of_kind


def check(before: State, event: Event) -> Violation | None:
    if isinstance(event, Step) and not event.foreign:
        clip = before.early
        if clip is None or before.backward is None or not follows(clip, event):
            return None
        return _violation(clip.site, event.site)  # the step was followed by a clear
    if not isinstance(event, Clip) or event.may:
        return None
    if before.grads is not Grads.SPENT or before.maybe is not None or before.used is None:
        return None
    return _violation(event.site, before.used.site)


def _violation(clip: Site, step: Site) -> Violation:
    return Violation(
        site=clip,
        message="the clip comes after the step() that used the gradients",
        label="too late",
        notes=(Note(step, "used here"),),
        help="clip after backward() and before step()",
    )


RULE = Rule(
    code="ZG203",
    name="clip-after-step",
    doc=__doc__,
    check=check,
    reads=frozenset({"grads", "used", "maybe", "early", "backward"}),
    needs=(of_kind(Clip), of_kind(Step)),
)

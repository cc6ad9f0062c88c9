"""The gradients are clipped, and then more is added to the same window.

Clipping limits the gradient that the step will use, so it belongs between the window's last backward
and the step. If every micro-batch is clipped, the sum of the earlier ones is cut again and again: early
micro-batches count less than late ones, and the final norm is not the one that was asked for.

Fix: safe. The clip is moved before the step, under its guard; with accelerate it is put under `if
accelerator.sync_gradients`. Unsafe if the step is in two branches, or if the clip's result is used.

## Bad

```python
for i, (x, y) in enumerate(loader):
    loss = loss_fn(model(x), y) / N
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if (i + 1) % N == 0 or i + 1 == len(loader):
        optimizer.step()
        optimizer.zero_grad()
```

## Good

```python
for i, (x, y) in enumerate(loader):
    loss = loss_fn(model(x), y) / N
    loss.backward()
    if (i + 1) % N == 0 or i + 1 == len(loader):
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
```
"""

from zerograd.core.events import Clip, Event, Step
from zerograd.core.finding import Note
from zerograd.core.lifecycle import Grads, State
from zerograd.core.rule import Rule, Violation, of_kind, place
from zerograd.rules import clip_after_step


def check(before: State, event: Event) -> Violation | None:
    if not isinstance(event, Step) or event.foreign or before.grads is Grads.STALE:
        return None
    if before.reclipped is None or before.backward is None:
        return None
    return Violation(
        site=before.reclipped.site,
        message="gradients are clipped before their window is complete",
        label="clips part of the window",
        notes=(
            Note(
                before.backward.site,
                "a later backward adds to them"
                + (", in the next iteration" if place(before.reclipped, before.backward) else ""),
            ),
        ),
        help="clip once, just before step()",
        step=event.site,
    )


RULE = Rule(
    code="ZG204",
    name="clip-in-window",
    doc=__doc__,
    check=check,
    reads=frozenset({"grads", "backward", "clipped", "reclipped"}),
    needs=(of_kind(Clip), of_kind(Step)),
    yields_to=clip_after_step.RULE,  # what was stepped and cleared leaves nothing to clip
)

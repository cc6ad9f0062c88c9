"""A clear in the loop drops part of the window that the accumulation guard keeps open.

Gradient accumulation adds several micro-batches before one step. A clear on every micro-batch drops all
but the last one: the step uses one micro-batch, scaled as one of N. A watched run reports it after eight
windows that lost the same, also if they are cleared by hand and the source shows the guard.

Fix: safe. The clear is moved under the guard, after the step. Unsafe if the loop skips batches.

## Bad

```python
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    loss = loss_fn(model(x), y) / N
    loss.backward()
    if (i + 1) % N == 0 or i + 1 == len(loader):
        optimizer.step()
```

## Good

```python
for i, (x, y) in enumerate(loader):
    loss = loss_fn(model(x), y) / N
    loss.backward()
    if (i + 1) % N == 0 or i + 1 == len(loader):
        optimizer.step()
        optimizer.zero_grad()
```
"""

from zerograd.core.events import CutWindows, Event, Site, Zero
from zerograd.core.finding import Note
from zerograd.core.lifecycle import State
from zerograd.core.rule import Rule, Violation, Windows, guarded, place

HELP = "clear only where the window closes, after step()"


def check(before: State, event: Event) -> Violation | None:
    if isinstance(event, CutWindows) and event.site == event.backward:
        return _by_hand(event)
    if isinstance(event, CutWindows):
        if event.guard is None:
            closes = Note(event.step, "the step that closes the windows")
            return _violation(event.site, event.backward, "", closes)
        return _violation(event.site, event.backward, "", _kept_open_by(event.guard))
    held, backward = before.held, before.backward
    if not isinstance(event, Zero) or event.may or held is None or backward is None:
        return None
    if before.shared:
        return None  # another optimizer, which shares these parameters, has used the gradients
    if event.loop != held.loop or before.carried:
        return None  # dropped-window reports what an earlier run of the loop has left
    guard = _kept_open_by(held.guard or held.site)
    return _violation(event.site, backward.site, place(backward, event), guard)


def _by_hand(event: CutWindows) -> Violation:
    """No call has cleared the gradients: only the backward that they came from is known."""
    return Violation(
        site=event.site,
        message="the gradients of this backward are cleared while its window is still open, and not by zero_grad()",
        label="this micro-batch is lost",
        notes=(_kept_open_by(event.guard or event.step),),
        help=f"look for .grad = None or .grad.zero_() in the loop: {HELP}",
    )


def _kept_open_by(guard: Site) -> Note:
    return Note(guard, "the guard keeps the window open")


def _violation(clear: Site, backward: Site, where: str, open_: Note) -> Violation:
    return Violation(
        site=clear,
        message="the clear drops gradients of a window that is still open",
        label="drops part of the window",
        notes=(
            Note(backward, "this micro-batch is lost" + where),
            open_,
        ),
        help=HELP,
    )


RULE = Rule(
    code="ZG103",
    name="zero-in-window",
    doc=__doc__,
    check=check,
    reads=frozenset({"grads", "backward", "held", "carried", "shared"}),
    needs=(guarded,),
    most_decisions=0,  # a clear behind a test is how bad batches are skipped
    windows=Windows.CONTENTS,
)

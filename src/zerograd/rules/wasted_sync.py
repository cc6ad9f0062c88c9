"""Gradients are synchronised on every micro-batch of a window, although the last one is enough.

The ranks average their gradients in each backward unless they know that more follow. With a window of
N micro-batches that is N times the traffic for the same result, because the last backward of the window
averages everything that was accumulated. `no_sync()` around the forward and backward of the others
avoids it (FSDP2: `set_requires_gradient_sync(False)`, which keeps whole gradients in memory meanwhile).

Only a run shows it.

Fix: none. You have to decide whether traffic or memory matters more.

## Bad

```python
model = DistributedDataParallel(model)
for i, (x, y) in enumerate(loader):
    loss = loss_fn(model(x), y) / N
    loss.backward()
    if (i + 1) % N == 0 or i + 1 == len(loader):
        optimizer.step()
        optimizer.zero_grad()
```

## Good

```python
model = DistributedDataParallel(model)
for i, (x, y) in enumerate(loader):
    last = (i + 1) % N == 0 or i + 1 == len(loader)
    with nullcontext() if last else model.no_sync():
        loss = loss_fn(model(x), y) / N
        loss.backward()
    if last:
        optimizer.step()
        optimizer.zero_grad()
```
"""

from zerograd.core.events import Backward, Event, Excuse, Step
from zerograd.core.finding import Note
from zerograd.core.lifecycle import LONGEST_WINDOW, State
from zerograd.core.rule import Feature, Rule, Violation

_UNITS = ("bytes", "KB", "MB", "GB")


def check(before: State, event: Event) -> Violation | None:
    if not isinstance(event, Step) or event.foreign or event.part or event.may:
        return None
    backward = before.backward
    if backward is None or not backward.volume or before.syncs < max(before.window, 2):
        return None
    if backward.excuse is Excuse.STATIC_GRAPH:
        return None
    more = "or more " if before.window == LONGEST_WINDOW else ""
    wasted = _amount(backward.volume * (before.window - 1))
    return Violation(
        site=backward.site,
        message=f"the ranks synchronise gradients {before.window} {more}times for one step(), but "
        f"once is enough: {wasted} of needless traffic per step on each rank",
        label="synchronised every time",
        notes=(Note(event.site, "needed here"),),
        help="put no_sync() around all but the window's last micro-batch, forward and backward",
        step=event.site,
    )


def _amount(number: int) -> str:
    """A number of bytes in a readable unit: `12.5 MB`."""
    size = float(number)
    for unit in _UNITS:
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


RULE = Rule(
    code="ZG403",
    name="wasted-sync",
    doc=__doc__,
    check=check,
    reads=frozenset({"backward", "syncs", "window"}),
    excuses=(Excuse.STATIC_GRAPH,),
    level="advice",
    needs=(lambda event: isinstance(event, Backward) and bool(event.synced),),
    only="runtime",
    applies_to=Feature.SHARED_GRADIENTS,
)

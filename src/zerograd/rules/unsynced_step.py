"""The step uses gradients that were not synchronised between the ranks.

Under DDP the backward averages the gradients over all ranks, unless `no_sync()` says that more
micro-batches follow. If the last micro-batch of a window is not synchronised, every rank steps with its
own gradients: the replicas drift apart, and nothing reports it. `no_sync()` has to be around every
micro-batch but the last, and around its forward, where DDP reads it. A loss that is computed with
`model.module` instead of `model` is not synchronised at all. Under FSDP2
(`set_requires_gradient_sync(False)`), gradients that were not synchronised do not even reach the step.

A first step of sharpness-aware minimisation is no mistake: each rank looks ahead with gradients of its own.

`check` reads `no_sync()`. What is computed with `model.module`, and FSDP2's switch, only a run shows.

Fix: none. You have to decide where the window ends.

## Bad

```python
model = DistributedDataParallel(model)
for i, (x, y) in enumerate(loader):
    last = (i + 1) % N == 0 or i + 1 == len(loader)
    with model.no_sync() if last else nullcontext():
        loss = loss_fn(model(x), y) / N
        loss.backward()
    if last:
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

from zerograd.core.events import Backward, Event, Step
from zerograd.core.finding import Note
from zerograd.core.lifecycle import State
from zerograd.core.rule import Feature, Rule, Violation

_HELP = {
    ".module": "call the wrapped model: model(x), not model.module(x)",
    "set_requires_gradient_sync(False)": "set_requires_gradient_sync(True) before the backward of "
    "the window's last micro-batch",
}


def check(before: State, event: Event) -> Violation | None:
    if not isinstance(event, Step) or event.foreign or event.part or event.may or event.ahead:
        return None
    backward = before.local
    if backward is None:
        return None
    notes = [Note(backward.site, "these gradients stay on their rank")]
    if backward.off is not None:
        notes.append(Note(backward.off, "synchronisation is turned off here"))
    why = f", because of {backward.unsynced}" if backward.unsynced else ""
    return Violation(
        site=event.site,
        message=f"step() uses gradients that were not synchronised between the ranks{why}",
        label="each rank steps with its own gradients",
        notes=tuple(notes),
        help=_HELP.get(
            backward.unsynced,
            "leave no_sync() before the forward of the window's last micro-batch",
        ),
    )


RULE = Rule(
    code="ZG401",
    name="unsynced-step",
    doc=__doc__,
    check=check,
    reads=frozenset({"local"}),
    needs=(lambda event: isinstance(event, Backward) and event.synced is False,),
    applies_to=Feature.SHARED_GRADIENTS,
)

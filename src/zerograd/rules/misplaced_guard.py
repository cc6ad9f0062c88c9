"""The accumulation guard closes windows of the wrong length.

A guard that steps every N micro-batches should give windows of N, N, N … and at most a shorter last
one. `i % N == 0` with `i` from 0 steps after the very first micro-batch, an off-by-one error shifts
every window, and an inverted test steps on all micro-batches but one.

Fix: unsafe. The count in the guard is corrected: several counts are tried, and the first one that gives
windows of N is used.

## Bad

```python
for i, (x, y) in enumerate(loader):
    loss = loss_fn(model(x), y) / N
    loss.backward()
    if i % N == 0 or i + 1 == len(loader):
        optimizer.step()
        optimizer.zero_grad()
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

from zerograd.core.events import End, Event, OddWindow, Site, Step
from zerograd.core.finding import Note
from zerograd.core.lifecycle import State
from zerograd.core.rule import Rule, Violation, Windows, guarded


def check(before: State, event: Event) -> Violation | None:
    if isinstance(event, OddWindow):
        closes = "step()" if event.guard is None else "the guard"
        message = f"{closes} closes a window of {event.window} instead of {event.meant or 'N'} micro-batches"
        other = () if event.guard is None else (Note(event.guard, "the guard"),)
        return _violation(
            event.site, message, event.backward, other, event.site, _help(event.guard, event.meant)
        )
    if isinstance(event, End):
        return _never(before, event)
    if not isinstance(event, Step) or event.foreign or event.length < 2:
        return None
    if event.guard is None:
        return _never(before, event)  # a step after the loop, for what is left over
    if event.last or before.carried or before.cut or before.backward is None or before.backward.may:
        return None
    if before.window in (0, event.length):
        return None
    # The guard was executed with a small N, whatever N the code has.
    than = "fewer" if before.window < event.length else "more"
    said = event.decided.length if event.decided is not None else 0
    message = f"the guard closes a window of {than} than {said or 'N'} micro-batches"
    step = (Note(event.site, "the step"),)
    help_ = _help(event.guard, said)
    return _violation(event.guard, message, before.backward.site, step, event.site, help_)


def _help(guard: Site | None, length: int) -> str:
    if guard is None:
        return "step when a window is full, and not before"
    return f"count micro-batches from 1: (i + 1) % {length or 'N'} == 0"


def _violation(
    site: Site,
    message: str,
    backward: Site,
    other: tuple[Note, ...],
    step: Site,
    help_: str,
) -> Violation:
    return Violation(
        site=site,
        message=message,
        label="closes the window here",
        notes=(Note(backward, "the window's last backward"), *other),
        help=help_,
        step=step,
    )


def _never(before: State, event: End | Step) -> Violation | None:
    held, backward = before.held, before.backward
    if held is None or backward is None or held.guard is None or event.length < 2:
        return None
    if before.carried or backward.may or before.window <= event.length:
        return None
    return Violation(
        site=held.guard,
        message="the guard does not close a window that is already full",
        label="never true when it should be",
        notes=(
            Note(backward.site, "adds to a window that has N micro-batches"),
            Note(held.site, "this step is not reached"),
        ),
        help="count micro-batches from 1: (i + 1) % N == 0",
    )


RULE = Rule(
    code="ZG302",
    name="misplaced-guard",
    doc=__doc__,
    check=check,
    reads=frozenset({"grads", "backward", "window", "carried", "held", "cut"}),
    needs=(guarded,),
    level="advice",
    most_decisions=0,
    windows=Windows.LENGTH,
)

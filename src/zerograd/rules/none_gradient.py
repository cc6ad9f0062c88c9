"""`.grad` is used in place while it is still None.

A parameter that no backward has reached has no gradient, and since torch 2.0 `zero_grad()` sets it back
to None. `p.grad.zero_()` then raises AttributeError: 'NoneType' object has no attribute 'zero_'.

Fix: safe. The statement is put under `if p.grad is not None`; a loop on one line becomes
`zero_grad()`.

## Bad

```python
for x, y in loader:
    for p in model.parameters():
        p.grad.zero_()
    loss = loss_fn(model(x), y)
    loss.backward()
    optimizer.step()
```

## Good

```python
for x, y in loader:
    for p in model.parameters():
        if p.grad is not None:
            p.grad.zero_()
    loss = loss_fn(model(x), y)
    loss.backward()
    optimizer.step()
```
"""

from zerograd.core.events import Assign, Clip, Event, Unscale, Zero
from zerograd.core.finding import Note
from zerograd.core.lifecycle import Grads, State
from zerograd.core.rule import Rule, Violation


def check(before: State, event: Event) -> Violation | None:
    if not _is_bare(event) or before.grads is not Grads.NONE:
        return None
    if event.may and isinstance(event, Zero):
        return None  # it may clear another's; `may` of other uses is about what they do
    notes: tuple[Note, ...] = ()
    if before.cleared is not None:
        notes = (Note(before.cleared.site, "set to None here"),)
    return Violation(
        site=event.site,
        message=".grad is None here: no backward() has run yet",
        label="fails on None",
        notes=notes,
        help="test `if p.grad is not None` first, or call zero_grad()",
    )


def _is_bare(event: Event) -> bool:
    return isinstance(event, (Zero, Assign, Unscale, Clip)) and event.bare


RULE = Rule(
    code="ZG107",
    name="none-gradient",
    doc=__doc__,
    check=check,
    reads=frozenset({"grads", "cleared"}),
    only="static",
    misses_backward=True,
    needs=(_is_bare,),
)

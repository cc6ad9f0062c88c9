"""A step follows a clear that dropped the gradients it should have used.

The gradients of a backward stay in `.grad` until the step reads them. A clear between the two leaves
nothing for the step: with `None` gradients it skips every parameter, with zeros it applies only
momentum and weight decay. The loss does not change, or changes for the wrong reason.

An optimizer that is created, cleared and given gradients here, but never stepped or passed on, drops
its gradients, too. A watched run reports such an optimizer when it is gone, if it was cleared three times
after a backward, no parameter of it has changed, and no file of the program reads gradients. A watched run
does not see a clear by hand (`.grad = None`): it reports one once three steps have lost their gradients, and
none has used any.

Fix: safe. The clear is moved before the backward, or after the step. Unsafe: a step is inserted for an
optimizer that has none.

## Bad

```python
for x, y in loader:
    loss = loss_fn(model(x), y)
    loss.backward()
    optimizer.zero_grad()
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

from zerograd.core.events import End, Event, Excuse, Step, Zero
from zerograd.core.finding import Note
from zerograd.core.lifecycle import EMPTY, State
from zerograd.core.rule import Rule, Violation, of_kind

HELP = "clear before the backward or after the step, not between them"


def check(before: State, event: Event) -> Violation | None:
    if isinstance(event, End) and event.idle_loss is not None:
        return Violation(
            site=event.site,
            message="the optimizer receives gradients, but never steps",
            label="never steps",
            notes=(Note(event.idle_loss, "these gradients are never used"),),
            help="call step() after the backward",
        )
    if not isinstance(event, Step) or event.foreign or before.grads not in EMPTY:
        return None
    if event.lost is not None:
        return Violation(
            site=event.site,
            message="the gradients are cleared between backward() and step(), and not by zero_grad()",
            label="has nothing to use",
            notes=(Note(event.lost, "computed by this backward"),),
            help=f"look for .grad = None or .grad.zero_() before this step: {HELP}",
        )
    if before.dropped is None or before.cut:
        return None  # a clear that cuts a window is ZG103's
    backward, clear = before.dropped
    return Violation(
        site=clear.site,
        message="the gradients are cleared between backward() and step()",
        label="drops the gradients",
        notes=(
            Note(backward.site, "computed by this backward"),
            Note(event.site, "so this step has nothing to use"),
        ),
        help=HELP,
        step=event.site,
    )


def _drops(event: Event) -> bool:
    if isinstance(event, Step):
        return event.lost is not None
    return isinstance(event, Zero) or (isinstance(event, End) and event.idle_loss is not None)


RULE = Rule(
    code="ZG102",
    name="discarded-gradient",
    doc=__doc__,
    check=check,
    reads=frozenset({"grads", "backward", "dropped", "lent", "shared", "held", "cut"}),
    misses_backward=True,
    excuses=(
        Excuse.IN_STEP,
        Excuse.WEIGHTS_MOVED,
        Excuse.UNSEEN,
        Excuse.ONE_MODULE,
        Excuse.CHOSEN,
        Excuse.NOT_FINITE,
    ),
    needs=(
        _drops,
        of_kind(Step, End),
    ),
)

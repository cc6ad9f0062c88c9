"""A step uses gradients that another optimizer's phase left behind.

The generator's loss runs through the discriminator, so its backward fills the discriminator's
gradients, too. That is harmless if they are cleared before the discriminator's own backward. If the
discriminator is cleared only after its step, its next step also uses the generator's gradients, which
point the other way.

The same happens to the generator if the discriminator's loss reads its output without `detach()`, and
nothing clears the generator before its own backward: its step then also uses gradients that make its
output easier to recognise. A run reports it if both point against each other, eight times in a row.

It also happens if both backward calls run before both steps: then the discriminator's step uses the sum. In
source it is reported if the discriminator's loss reads the generator's output detached: then it is meant for
the discriminator alone.

Fix: unsafe. The clear is moved before the optimizer's own backward, or inserted there; or `detach()` is
inserted. If both backward calls run before the steps there is no fix: one of the phases has to move.

## Bad

```python
for x, y in loader:
    fake = G(x)
    g_loss = loss_fn(D(fake), y)
    g_loss.backward()
    opt_g.step()
    opt_g.zero_grad()

    d_loss = loss_fn(D(fake.detach()), y)
    d_loss.backward()
    opt_d.step()
    opt_d.zero_grad()
```

## Good

```python
for x, y in loader:
    fake = G(x)
    g_loss = loss_fn(D(fake), y)
    g_loss.backward()
    opt_g.step()
    opt_g.zero_grad()

    d_loss = loss_fn(D(fake.detach()), y)
    opt_d.zero_grad()
    d_loss.backward()
    opt_d.step()
```
"""

from zerograd.core.events import Backward, Event, ReadBy, Step
from zerograd.core.finding import Note
from zerograd.core.lifecycle import Grads, State
from zerograd.core.rule import Feature, Rule, Violation, numbers
from zerograd.rules import stale_gradient


def check(before: State, event: Event) -> Violation | None:
    if not isinstance(event, Step) or event.may or event.foreign:
        return None
    if before.lent is None:
        return _joint(before, event)
    left, step = before.lent
    own = before.backward
    if own is not None and (event.leaked or _forgets_detach(left, own)):
        return _leak(event, left, step, own)
    if before.crossed is None:
        return _joint(before, event)
    # Older recordings have the numbers of the backward.
    seen = before.crossed if event.measured is None else event
    return Violation(
        site=before.crossed.site,
        message="backward() adds to gradients that another optimizer's phase left here"
        + numbers(seen),
        label="adds to .grad",
        notes=(
            Note(left.site, "left by this backward"),
            Note(step.site, "which was meant for this step"),
        ),
        help="clear this optimizer before its own backward: optimizer.zero_grad()",
        step=event.site,
        measured=seen.measured,
    )


def _joint(before: State, event: Step) -> Violation | None:
    """In source: the loss of this subject reads the other's output detached, and the other's loss runs through it."""
    own, left = before.apart, before.passing
    if own is None or left is None or before.grads is not Grads.LIVE:
        return None
    return Violation(
        site=left.site,
        message="backward() also fills the gradients of another optimizer, whose step uses them",
        label="reaches the other optimizer's parameters",
        notes=(
            Note(own.site, "the loss of that optimizer"),
            Note(event.site, "uses the sum"),
        ),
        help="step that optimizer before this backward, or clear it and run its own backward after this one",
        step=event.site,
    )


def _forgets_detach(left: Backward, own: Backward) -> bool:
    """In source: both phases call the other's module on this one's output, and one on more besides."""
    if own.read_by is None:
        return False
    return left.read_by is ReadBy.AND_MORE and left.site != own.site


def _leak(event: Step, left: Backward, used: Step, own: Backward) -> Violation:
    return Violation(
        site=left.site,
        message="backward() also fills the gradients of another optimizer, whose step uses them: "
        "detach() is missing" + numbers(event),
        label="reaches the other optimizer's parameters",
        notes=(
            Note(used.site, "meant for this step"),
            Note(own.site, "this backward adds the opposite"),
            Note(event.site, "uses the sum"),
        ),
        help="detach() the other network's output where this loss reads it",
        step=event.site,
        measured=event.measured,
    )


RULE = Rule(
    code="ZG106",
    name="foreign-gradient",
    doc=__doc__,
    check=check,
    reads=frozenset({"grads", "backward", "held", "lent", "crossed", "apart", "passing"}),
    needs=(lambda event: isinstance(event, Step) and event.foreign,),
    applies_to=Feature.SEVERAL_OPTIMIZERS,
    outlives_calls=True,
    yields_to=stale_gradient.RULE,  # what is never cleared holds all phases
)

"""An optimizer has parameters that never receive a gradient.

A layer was replaced after the optimizer was made, or the optimizer got the parameters of another copy
of the model: those that the loss depends on are never stepped. Or the output of a module is detached
where it is read, so that the loss does not depend on its parameters.

A run reports it if, in 100 steps, no backward reaches the parameters, and parameters of the same shapes
that no optimizer has are reached. Experts that are not chosen, heads that are not used and frozen
layers are not reported, because nothing takes their place. In source it is reported if the name of a
model is given to another one between its optimizer and its loss, and if `.detach()` or `.data` is at the
only use of a module.

Fix: none. Only you know which parameters are meant.

## Bad

```python
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
model = nn.Linear(3, 1)
for epoch in range(12):
    for x, y in loader:
        optimizer.zero_grad()
        model.zero_grad()
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
```

## Good

```python
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(12):
    for x, y in loader:
        optimizer.zero_grad()
        model.zero_grad()
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
```
"""

from zerograd.core.events import Backward, Event, Site, Untrained
from zerograd.core.finding import Note
from zerograd.core.lifecycle import State
from zerograd.core.rule import Rule, Violation, in_brackets


def check(before: State, event: Event) -> Violation | None:
    if not isinstance(event, Backward) or event.may:
        return None
    if event.untrained is not None:
        return _in_source(event.site, event.untrained)
    if event.missed is None:
        return None
    return Violation(
        site=event.site,
        message="backward() never reaches parameters that an optimizer has, but others of their shapes"
        f", which no optimizer has{in_brackets(event.missed.names, event.missed.count)}",
        label="fills the gradients of other parameters",
        help="make the optimizer after the model, and give it the parameters that the loss uses",
    )


def _in_source(site: Site, module: Untrained) -> Violation:
    backward = [] if module.backward is None else [(module.backward, "does not reach them")]
    notes = [(module.optimizer, f"gets the parameters of {module.name}"), *backward]
    if module.replaced:
        message = f"{module.name} is replaced after its optimizer was made: no step trains it"
        help_ = "make the optimizer after the model"
    else:
        message = f"the output of {module.name} is detached at its only use: nothing trains it"
        help_ = f"remove detach(), or do not give the optimizer the parameters of {module.name}"
    return Violation(
        site=site,
        message=message,
        label="other parameters from here on" if module.replaced else "cuts the graph",
        notes=tuple(Note(at, label) for at, label in notes),
        help=help_,
    )


RULE = Rule(
    code="ZG111",
    name="untrained-parameter",
    doc=__doc__,
    check=check,
    reads=frozenset(),
    needs=(
        lambda event: (
            isinstance(event, Backward)
            and (event.missed is not None or event.untrained is not None)
        ),
    ),
    level="advice",
)

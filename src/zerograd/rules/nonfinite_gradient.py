"""Steps use gradients that are inf or nan, one after the other, until the run ends.

One such step makes the parameters inf or nan, and from then on every loss, every gradient and every
parameter is. The program goes on as if it trained. The learning rate is too high, a loss divides by
zero or takes the logarithm of zero, half precision overflows, or the data holds inf or nan.

It is reported if at least the last ten steps of a run are such steps. What the optimizer really uses
counts: the gradients after clips, `nan_to_num_()` and the check of a gradient scaler. A search for a
learning rate that restores the parameters, and a program that skips such steps, are not reported; the
summary of the run says how many such steps there were.

Only a run shows it. zerograd looks at some parameters now and then, and once one of them is not finite,
at the gradients of every step.

Fix: none. You have to find where the first inf or nan comes from: `torch.autograd.detect_anomaly()`.

## Bad

```python
optimizer = torch.optim.SGD(model.parameters(), lr=1e30)
for epoch in range(4):
    for x, y in loader:
        optimizer.zero_grad()
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
```

## Good

```python
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(4):
    for x, y in loader:
        optimizer.zero_grad()
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
```
"""

from zerograd.core.events import Event, Step
from zerograd.core.lifecycle import State
from zerograd.core.rule import Rule, Violation


def check(before: State, event: Event) -> Violation | None:
    if not isinstance(event, Step) or event.may or event.foreign:
        return None
    if event.skipped:
        return Violation(
            site=event.site,
            message="the scaler skips the step",
            remark="skipped by a gradient scaler, because of gradients that are inf or nan",
            reported=False,
        )
    if event.finite is not False:
        return None
    return Violation(
        site=event.site,
        message="step() uses gradients that are inf or nan, until the end of the run",
        label="nothing is learned any more",
        help="find the first inf or nan: torch.autograd.detect_anomaly(); then lower the learning "
        "rate, clip the gradients, or repair the loss or the data",
        remark="used gradients that are inf or nan",
    )


RULE = Rule(
    code="ZG110",
    name="nonfinite-gradient",
    doc=__doc__,
    check=check,
    reads=frozenset(),
    needs=(lambda event: isinstance(event, Step) and (event.skipped or event.finite is False),),
    only="runtime",
    in_a_row=10,
)

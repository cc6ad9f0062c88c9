"""Ranks that should be replicas have different parameters, or step differently.

When DDP wraps a model, it gives the parameters of the first rank to all ranks. From then on it averages
gradients, not parameters, and relies on every rank taking the same steps. After a step that one rank
skips, a weight that one rank changes, or a learning rate that differs, the ranks are no longer
replicas, and the averaged gradients belong to none of them. The gradients do not show it: after the
averaging they are the same on all ranks.

Only a run of several ranks shows it: the ranks put fingerprints of their steps, gradients and
parameters into the process group's store, and compare them.

Fix: none. You have to find what one rank does differently.

## Bad

```python
checkpoint = {name: value / 2 for name, value in model.state_dict().items()}
model = DistributedDataParallel(model)
if dist.get_rank() == 0:
    model.module.load_state_dict(checkpoint)
for x, y in loader:
    optimizer.zero_grad()
    loss = loss_fn(model(x), y)
    loss.backward()
    optimizer.step()
```

## Good

```python
checkpoint = {name: value / 2 for name, value in model.state_dict().items()}
if dist.get_rank() == 0:
    model.load_state_dict(checkpoint)
model = DistributedDataParallel(model)
for x, y in loader:
    optimizer.zero_grad()
    loss = loss_fn(model(x), y)
    loss.backward()
    optimizer.step()
```
"""

from zerograd.core.events import Diverged, Event, Sync
from zerograd.core.lifecycle import State
from zerograd.core.rule import Feature, Rule, Violation
from zerograd.core.wording import listed

_HELP = {
    "parameters": "find what only this rank does to its parameters: a step it takes or skips alone, "
    "a change by hand, a checkpoint that only one rank loads",
    "gradients": "find what only this rank does to its gradients after the backward",
    "steps": "let all ranks decide together whether to step: all_reduce what the decision reads",
    "learning rate": "give every rank the same schedule, and step it equally often",
    "scale": "update the scaler in the same way on all ranks",
}


def check(before: State, event: Event) -> Violation | None:
    if not isinstance(event, Sync) or event.diverged is None:
        return None
    seen = event.diverged
    return Violation(
        site=event.site,
        message=_message(seen),
        label="the ranks differ here",
        help=_HELP[seen.what],
    )


def _message(seen: Diverged) -> str:
    several = len(seen.ranks) > 1
    who = ("ranks " if several else "rank ") + ", ".join(map(str, seen.ranks))
    if seen.what == "steps":
        return (
            f"{who} had synchronised {seen.here} times when {'they' if several else 'it'} took step "
            f"{seen.step}, rank {seen.than} {seen.there} times: the ranks don't step together"
        )
    if seen.what == "parameters":
        verb = "have" if several else "has"
    else:
        verb = "use" if several else "uses"
    what = f"different {seen.what}"
    if seen.what in ("learning rate", "scale"):
        what = f"a {what}"
    values = f" ({seen.here}, not {seen.there})" if seen.here else ""
    names = f": {listed(seen.names, seen.count)}" if seen.names else ""
    return f"{who} {verb} {what} than rank {seen.than}{values}{names}"


RULE = Rule(
    code="ZG402",
    name="diverged-ranks",
    doc=__doc__,
    check=check,
    reads=frozenset(),
    needs=(lambda event: isinstance(event, Sync) and event.diverged is not None,),
    only="runtime",
    applies_to=Feature.REPLICAS,
)

"""SAM and its like: two steps, of which each clears where it is asked to."""

from __future__ import annotations

from zerograd.static.frameworks.table import Call, Clears, Framework, Steps

TABLE = Framework(
    calls=[
        Call("first_step", Steps(), Clears(flag="zero_grad")),
        Call("second_step", Steps(), Clears(flag="zero_grad")),
    ],
)

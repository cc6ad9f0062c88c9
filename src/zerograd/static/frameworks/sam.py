"""SAM and its like: two steps, each of which clears if it is asked to."""

from __future__ import annotations

from zerograd.static.frameworks.table import Clears, Framework, LibraryCall, Steps

TABLE = Framework(
    calls=[
        LibraryCall("first_step", Steps(ahead=True), Clears(flag="zero_grad")),
        LibraryCall("second_step", Steps(), Clears(flag="zero_grad")),
    ],
)

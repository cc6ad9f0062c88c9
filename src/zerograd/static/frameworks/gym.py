"""Gym and its like: no gradient passes through what an environment returns."""

from __future__ import annotations

import re

from zerograd.core.late_pattern import pattern
from zerograd.static.frameworks.table import Framework, Gives, LibraryCall, Role, Use

ENVIRONMENT = Role("environment")
NAME = pattern(r"(^|_)(vec_?)?envs?(\d|_|$)|environment|simulator", re.IGNORECASE)

TABLE = Framework(
    uses=[Use(ENVIRONMENT, named=NAME, none_of=["zero_grad"])],
    calls=[LibraryCall("step", on=ENVIRONMENT, gives=Gives.UNKNOWN)],
)

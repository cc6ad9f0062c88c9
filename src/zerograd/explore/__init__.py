"""Explores source code as a flow: every sequence of events that it can produce, checked by the rules.

It has `Flow` and the exploration that finds all violations in it.

Every state carries the branch decisions that it depends on. A condition agrees with itself until
something that it reads is assigned. These are not decisions: an arm whose other arm leaves the loop or
skips an iteration without events, a loop-invariant condition around the reported call, a condition
whose arms both lead to the finding. A caught exception counts as two. A violation with at most one
decision is certain, with two possible; with more it is not reported.

May import: core.
"""

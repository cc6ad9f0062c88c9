"""Explores source code as a flow: every sequence of events that it can produce, checked by the rules.

It gives `Flow` and the exploration that finds all violations in it.

May import: core.
"""

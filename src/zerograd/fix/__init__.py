"""Repairs findings: proposals for each rule, text edits, and the second check that proves them.

A module named like a rule proposes its repairs. It imports `core`, `rules` and `static`.
"""

"""Repairs findings: proposals for each rule, text edits, and the second check that proves them.

A module named like a rule proposes its repairs.

May import: core, static, static.read.
"""

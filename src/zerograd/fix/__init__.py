"""Repairs findings: proposals for each rule, text edits, and the second check that proves them.

A module named like a rule proposes its repairs: it is loaded when a finding of that rule is there.

May import: core, rules, static, static.read.
"""

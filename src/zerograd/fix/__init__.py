"""Repairs findings: proposals for each rule, text edits, and the second check that proves them.

A module with the name of a rule proposes that rule's repairs; it is loaded when it is needed.

May import: core, rules, static, static.frameworks, static.read.
"""

"""The course and the rule pages: lessons whose numbers are computed while you look.

May import: core, rules, report, static, check, runtime.
"""

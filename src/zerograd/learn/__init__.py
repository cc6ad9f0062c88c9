"""The course and the rule pages: lessons whose numbers are computed while you look.

It imports `check`, `static`, `runtime` and `report`.
"""

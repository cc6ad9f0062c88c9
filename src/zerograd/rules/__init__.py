"""The rules: one file each, whose docstring is the rule's documentation page.

`catalogue` lists them all, `selection` chooses among them by code and name.

May import: core.
"""

"""The status lines at the bottom of the terminal while a program runs.

`Live` draws them.

May import: core.
"""

"""The status lines at the bottom of the terminal while a program runs.

It gives `Live`, which draws them.

May import: core.
"""

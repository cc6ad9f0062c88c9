"""What zerograd shows on a terminal while a program runs: the status line.

May import: core.
"""

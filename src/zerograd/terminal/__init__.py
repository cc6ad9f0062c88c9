"""What zerograd shows on a terminal while a program runs: the status line.

It imports `core`.
"""

"""The lessons, one file each.

`lesson()` yields the parts of a lesson and computes them with torch one after the other.

May import: core, learn.
"""

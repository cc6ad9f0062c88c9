"""The lessons, one file each: `lesson()` yields its parts, and computes them with torch as it goes.

May import: core, learn.
"""

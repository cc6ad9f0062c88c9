"""Reaches the processes that a watched script starts: a `sitecustomize` in front of their path.

May import: launch.
"""

"""Recordings: the events of a run as JSON lines, written and read.

It has the writer, the reader and the names of the files.

May import: core.
"""

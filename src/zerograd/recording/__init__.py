"""Recordings: the events of a run as JSON lines, written and read.

It gives the writer, the reader and the files of a recording.

May import: core.
"""

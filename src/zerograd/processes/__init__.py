"""The processes of one run: their ranks, the file of findings that each writes, one merged report.

It gives `RunProcess` (a process among others), the reader of the files, and `merged`.

May import: core, recording.
"""

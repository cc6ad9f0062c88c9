"""The processes of one run: their ranks, the file of findings that each writes, one merged report.

`RunProcess` is one of these processes, `process_files` reads the files, and `merge` makes the report.

May import: core, recording.
"""

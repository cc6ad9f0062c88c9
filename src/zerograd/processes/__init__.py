"""The processes of one run: who each is, the file in which it leaves its findings, one merged report.

May import: core, recording.
"""

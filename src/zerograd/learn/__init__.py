"""The course (`zerograd learn`) and the rule pages (`zerograd explain`).

It has `LESSONS`, a presenter for the terminal and a writer for web pages. A lesson is data; torch
computes its numbers while the reader looks.

May import: core, report, rules, static, runtime.
"""

"""One `zerograd check`: its settings, files, worker processes and cache.

`check_session.run` makes the report.

May import: core, rules, static, static.read, fix.
"""

"""One `zerograd check`: its settings, files, worker processes and cache.

It gives `check_session.run`, which makes the report.

May import: core, rules, static, static.read, fix.
"""

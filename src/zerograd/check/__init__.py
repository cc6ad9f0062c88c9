"""One `zerograd check`: settings, which files, several processes, the cache, the report.

It gives `check_session`.

May import: core, rules, static, static.read, fix.
"""

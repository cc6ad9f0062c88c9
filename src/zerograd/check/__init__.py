"""One `zerograd check`: settings, which files, several processes, the cache, the report.

It gives `check_session`. It imports `core`, `rules`, `static` and `fix`.
"""

"""What Python imports at its start in processes that are watched although nobody calls `zerograd run`.

A `sitecustomize` for the processes which a watched script starts: its directory comes first in their
`PYTHONPATH`. And `at_start`, for environments in which `zerograd enable` was called.

May import: launch.
"""

"""A `sitecustomize` that watches the processes which a watched script starts.

Its directory comes first in their `PYTHONPATH`.

May import: launch.
"""

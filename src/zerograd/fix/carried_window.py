"""ZG304: the repair of a dropped window also keeps it from being carried into the next epoch."""

from zerograd.fix.dropped_window import repairs

__all__ = ["repairs"]

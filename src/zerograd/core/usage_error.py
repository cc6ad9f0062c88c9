"""What a command cannot do, said to its user."""

from __future__ import annotations


class UsageError(Exception):
    """What was asked for cannot be done; the message says why and what to do."""

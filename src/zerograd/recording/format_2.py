"""Format 2 of recordings: an event of any kind could have any field, and excuses had no names."""

from __future__ import annotations

from dataclasses import fields

from zerograd.core.events import KINDS, Excuse

FORMAT = 2
_NOWHERE = "<unknown>"
"""The path of an event without a known call."""
_COMMON = frozenset(
    "subject foreign may scaled to_none bare loop fed idle_loss alone own_gradient bypasses divisor "
    "length last guard leftover measured orphan part inner again synced unsynced off volume diverged "
    "allowed call".split()
)
"""The fields of every event. No rule read a field that does not belong to the kind."""


def converted(data: object) -> object:
    """Convert the data of an event to format 3. Other data stays unchanged."""
    kind = KINDS.get(str(data.get("kind"))) if isinstance(data, dict) else None
    if kind is None or not isinstance(data, dict):
        return data
    dropped = _COMMON - {field.name for field in fields(kind)}
    event = {name: value for name, value in data.items() if name not in dropped}
    if data.get("inner") is True and "excuse" in {field.name for field in fields(kind)}:
        site = data.get("site")
        unseen = isinstance(site, dict) and site.get("path") == _NOWHERE
        event["excuse"] = (Excuse.UNSEEN if unseen else Excuse.UNRECORDED).value
    return event

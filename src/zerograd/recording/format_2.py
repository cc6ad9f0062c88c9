"""Format 2 of recordings, in which an event of any kind could have any field, and excuses had no names."""

from __future__ import annotations

from dataclasses import fields

from zerograd.core.events import KINDS, Excuse

FORMAT = 2
_NOWHERE = "<unknown>"
"""The path of an event that no call was seen for."""
_COMMON = frozenset(
    "subject foreign may scaled to_none bare loop fed idle_loss alone own_gradient bypasses divisor "
    "length last guard leftover measured orphan part inner again synced unsynced off volume diverged "
    "allowed call".split()
)
"""What any event could have. Of a field that is not its kind's, no rule read anything."""


def converted(data: object) -> object:
    """The data of an event as format 3 has it; what is no event stays as it is."""
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

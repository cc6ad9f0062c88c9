"""The letters of a run: every event that differs is made once, and found again at a look-up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from zerograd.core.events import Event, Kind, Site
from zerograd.runtime.call_sites import Places

MOST_EVENTS = 4096


class Letters:
    """The events made so far, under the rules that are silenced now."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._allowed: tuple[str, ...] = ()
        self._events: dict[object, tuple[object, Event]] = {}
        """Each with what its key is made of, so that no other comes to have the same identity."""
        self._direct: dict[object, Event] = {}
        """The events of calls that stand in the user's own code."""

    def at(
        self,
        frame: Any,
        kind: Kind,
        scaled: bool | None = False,
        length: int = 0,
        to_none: bool = True,
    ) -> Event:
        """The event of the user's call above a frame; most often it is the frame's own."""
        key = (id(frame.f_code), frame.f_lasti, id(kind), scaled, length, to_none)
        event = self._direct.get(key)
        if event is None:
            site = self._places.site(frame)
            event = self.event(kind, site, scaled, length=length, to_none=to_none)
            if self._places.is_users(frame):
                if len(self._direct) >= MOST_EVENTS:
                    # Code that is made anew all the time: nothing is known by its identity.
                    self._direct.clear()
                    self._places.forget()
                else:
                    self._direct[key] = event
        return event

    def event(
        self,
        kind: Kind,
        site: Site,
        scaled: bool | None = False,
        *,
        length: int = 0,
        to_none: bool = True,
        unseen: bool = False,
    ) -> Event:
        key = (id(kind), id(site), scaled, length, to_none)
        known = self._events.get(key)
        if known is not None:
            return known[1]
        made = Event(
            kind,
            site,
            scaled=scaled,
            length=length,
            to_none=to_none,
            inner=unseen,
            allowed=self._allowed,
        )
        return self._keep(key, site, made)

    def variant(self, event: Event, **changes: Any) -> Event:
        if changes.get("measured") is not None:
            return replace(event, **changes)
        key = (id(event), *changes.items())
        known = self._events.get(key)
        return known[1] if known is not None else self._keep(key, event, replace(event, **changes))

    def _keep(self, key: object, base: object, event: Event) -> Event:
        if len(self._events) >= MOST_EVENTS:
            self._events.clear()
        self._events[key] = (base, event)
        return event

    def allow(self, codes: tuple[str, ...]) -> None:
        """From now on these rules are silenced."""
        self._allowed = codes
        self._events = {}
        self._direct = {}

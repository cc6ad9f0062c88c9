"""The icon of pages, as an address that loads nothing."""

from __future__ import annotations

from importlib.resources import files
from urllib.parse import quote


def icon() -> str:
    """The icon as a `data:` address: without one, browsers ask the server for it."""
    image = (files("zerograd.report") / "assets" / "icon.svg").read_text(encoding="utf-8")
    return f"data:image/svg+xml,{quote(image.strip())}"

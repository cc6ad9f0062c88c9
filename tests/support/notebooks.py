"""Makes notebooks."""

from __future__ import annotations

import json
from typing import Any


def notebook(*cells: str | list[str], indent: int | None = 1, **metadata: object) -> str:
    """A notebook of code cells; a cell that begins with `#md ` is text."""
    made: list[dict[str, Any]] = []
    for cell in cells:
        kind = "markdown" if isinstance(cell, str) and cell.startswith("#md ") else "code"
        made.append({"cell_type": kind, "metadata": {}, "source": cell})
    return json.dumps({"cells": made, "metadata": metadata, "nbformat": 4}, indent=indent)

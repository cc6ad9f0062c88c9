"""Writes pages that are made from data, or compares them: what the scripts of such pages share."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main(doc: str | None, page: Path, render: Callable[[], str]) -> int:
    """The command line of a script that makes one page: write it, or compare it."""
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only compare")
    options = parser.parse_args()
    return int(not renew(page, render(), check=options.check))


def renew(page: Path, text: str, *, check: bool) -> bool:
    """Write the page; with `check`, print how it differs and return whether it is up to date."""
    before = page.read_text(encoding="utf-8") if page.exists() else ""
    if check:
        lines = difflib.unified_diff(
            before.splitlines(), text.splitlines(), page.name, "as generated", lineterm=""
        )
        print(*lines, sep="\n")
        return before == text
    page.write_text(text, encoding="utf-8")
    return True

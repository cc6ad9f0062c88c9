"""Fixes on pages: what a check can repair is there as a diff, to be copied."""

from __future__ import annotations

import re
import subprocess
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING

import zerograd
from support.command import FORGOTTEN_ZERO
from zerograd.core.events import Site
from zerograd.core.finding import Finding, SourceKey
from zerograd.core.records import replace
from zerograd.launch.known_fixes import with_known_fixes

if TYPE_CHECKING:
    import pytest


def test_a_diff_that_a_page_offers_repairs_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(FORGOTTEN_ZERO, encoding="utf-8")
    zerograd.check_source(FORGOTTEN_ZERO, path="train.py").html("page.html")
    copied = re.search(
        'class=copy data-copy="([^"]*)"', Path("page.html").read_text(encoding="utf-8")
    )
    assert copied is not None
    Path("fix.diff").write_text(unescape(copied[1]), encoding="utf-8")
    subprocess.run(["git", "apply", "-p0", "fix.diff"], check=True)
    fixed = Path("train.py").read_text(encoding="utf-8")
    assert fixed != FORGOTTEN_ZERO
    assert not zerograd.check_source(fixed, path="train.py").findings


def test_a_finding_of_a_run_gets_the_fix_of_a_check_at_its_line_only() -> None:
    sources: dict[SourceKey, list[str]] = {"train.py": FORGOTTEN_ZERO.split("\n")}
    (checked,) = zerograd.check_source(FORGOTTEN_ZERO, path="train.py").findings
    line = checked.site.line
    seen = Finding(checked.code, checked.name, "error", "", Site("train.py", line, iteration=2))
    here, above, other = with_known_fixes(
        [seen, replace(seen, site=Site("train.py", line - 1)), replace(seen, code="ZG105")], sources
    )
    assert here.fix is not None
    assert (here.message, here.site) == (seen.message, seen.site)
    assert (above.fix, other.fix) == (None, None)


def test_what_cannot_be_checked_keeps_its_finding() -> None:
    one = Finding("ZG101", "stale-gradient", "error", "", Site("train.py", 1))
    assert with_known_fixes([one], {"train.py": ["for x in"]}) == [one]
    assert with_known_fixes([one], {}) == [one]

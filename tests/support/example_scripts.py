"""The scripts of examples/, and the findings in each according to the README."""

from __future__ import annotations

import re

from support.paths import ROOT

EXAMPLES = ROOT / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
ROW = re.compile(r"^\| `(?P<script>[\w.]+)` \|[^|]+\| (?P<verdict>[^|]+) \|$", re.MULTILINE)


def table() -> dict[str, list[str]]:
    """The codes that examples/README.md states for each script."""
    readme = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    return {row["script"]: re.findall(r"ZG\d{3}", row["verdict"]) for row in ROW.finditer(readme)}

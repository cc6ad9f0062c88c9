"""Writes output of the tool, its rules and its fixes into README.md and docs/fixes.md.

    python docs/readme.py           bring the pages up to date
    python docs/readme.py --check   change nothing; show what differs and exit with 1

A part is between `<!-- name:begin -->` and `<!-- name:end -->`. The rest is not changed.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from zerograd.rules.catalogue import RULES

ROOT = Path(__file__).parents[1]
EXAMPLE = "examples/forgotten_zero_grad.py"


def finding() -> str:
    """The command a reader can repeat, and what it prints in a pipe."""
    return f"```console\n$ zerograd check {EXAMPLE}\n{_said('check', '--no-cache').stdout.rstrip()}\n```"


def proof() -> str:
    """The first line that a watched run prints."""
    printed = _said("run").stderr.split("\n", 1)[0]
    return f"```console\n$ zerograd run {EXAMPLE}\n{printed}\n```"


def _said(*command: str) -> subprocess.CompletedProcess[str]:
    plain = {name: value for name, value in os.environ.items() if name != "FORCE_COLOR"}
    done = subprocess.run(
        [sys.executable, "-m", "zerograd", *command, EXAMPLE],
        cwd=ROOT,
        env={**plain, "NO_COLOR": "1", "PYTHONUTF8": "1"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    if done.returncode != 1:
        raise SystemExit(f"{EXAMPLE}: expected findings (exit 1), got {done}")
    return done


def rules() -> str:
    """The catalogue as a table, in the order of the codes."""
    rows = ["| code | name | what it means |", "|---|---|---|"]
    for rule in sorted(RULES, key=lambda rule: rule.code):
        level = " *(advice)*" if rule.level == "advice" else ""
        meaning = rule.summary.rstrip(".").replace("|", r"\|")
        rows.append(f"| {rule.code} | {rule.name} | {meaning}{level} |")
    return "\n".join(rows)


def fixes() -> str:
    """The line about the fix on each rule's page."""
    rows = ["| code | name | repair |", "|---|---|---|"]
    for rule in sorted(RULES, key=lambda rule: rule.code):
        found = re.search(r"\n\nFix: (.+?)\n\n", rule.doc, re.DOTALL)
        assert found is not None, f"{rule.code} does not say whether it can be repaired"
        kind, _, how = " ".join(found[1].split()).partition(". ")
        rows.append(f"| {rule.code} | {rule.name} | **{kind}.** {how} |")
    return "\n".join(rows)


PARTS: dict[str, dict[str, Callable[[], str]]] = {
    "README.md": {"finding": finding, "proof": proof, "rules": rules},
    "docs/fixes.md": {"fixes": fixes},
}
"""The generated parts of each page."""


def renewed(text: str, page: str) -> str:
    """The text of a page with every part renewed."""
    for name, say in PARTS[page].items():
        part = re.compile(rf"(<!-- {name}:begin -->\n).*?(<!-- {name}:end -->)", re.DOTALL)
        if len(part.findall(text)) != 1:
            raise SystemExit(f"{page} needs one part named {name}")
        said = say()
        text = part.sub(lambda marks, said=said: f"{marks[1]}{said}\n{marks[2]}", text)  # type: ignore[misc]
    return text


def main() -> int:
    """Renew the pages, or show what differs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only compare")
    parser.add_argument("path", nargs="?", type=Path, help="another README")
    options = parser.parse_args()
    pages = {name: ROOT / name for name in PARTS}
    if options.path is not None:
        pages = {"README.md": options.path}
    stale = [name for name, path in pages.items() if not _renew(name, path, check=options.check)]
    return int(bool(stale))


def _renew(page: str, path: Path, *, check: bool) -> bool:
    before = path.read_text(encoding="utf-8")
    after = renewed(before, page)
    if before != after and check:
        lines = difflib.unified_diff(
            before.splitlines(), after.splitlines(), page, "as generated", lineterm=""
        )
        print(*lines, sep="\n")
        return False
    path.write_text(after, encoding="utf-8")
    return True


if __name__ == "__main__":
    sys.exit(main())

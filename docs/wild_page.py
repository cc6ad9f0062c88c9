"""Writes docs/wild.md, the page of findings in public code, from bench/found.jsonl alone.

    python docs/wild_page.py           write the page
    python docs/wild_page.py --check   change nothing; exit with 1 if the page differs

Each line of the data file is one finding that a person has read in its source:

    repo, commit, path, cell, line, code   the place
    verdict    "true": the code does not do what it should; "harmless": so, but without effect;
               "intended": the author wants it; "false": zerograd is wrong
    reason     what goes wrong, or why nothing does
    severity   how bad it is
    now        what this version reports there: "error", "advice", "possible" or "nothing"
    fix        the repair that this version offers: "safe", "unsafe" or null

`bench/wild.py --found` renews the last two from checkouts.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from zerograd.rules.catalogue import PAGES

ROOT = Path(__file__).parents[1]
DATA = ROOT / "bench" / "found.jsonl"
PAGE = ROOT / "docs" / "wild.md"
VERDICTS = ("true", "harmless", "intended", "false")
REPORTED = ("error", "advice")
NAMES = {page.code: page.name for page in PAGES}

Found = dict[str, Any]

INTRODUCTION = """\
# Found in the wild

Each row is a finding of `zerograd check` in public code that a person has read in its source, with the code
around it and its callers. Wrong findings are listed like right ones. The page shows facts and line numbers, no
foreign code. It is made from `bench/found.jsonl` by `docs/wild_page.py`.

- **true**: the code does not do what its author wants.
- **harmless**: the finding is right, but it changes nothing that matters.
- **intended**: the author wants what zerograd reports. `allow` is for such code.
- **false**: zerograd is wrong.

*Today* is what this version reports at the place: a false finding that says *nothing* was repaired since. *Repair*
is what `--fix` offers: *safe*, or *unsafe* if a person should review it.
"""


def read(path: Path = DATA) -> list[Found]:
    """The findings, in a stable order."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    order = ("repo", "path", "cell", "line", "code")
    return sorted(rows, key=lambda row: [str(row[key]).rjust(8) for key in order])


def render(rows: list[Found]) -> str:
    """The page."""
    return "\n".join([INTRODUCTION, *_counts(rows), *_repositories(rows)]).rstrip() + "\n"


def _counts(rows: list[Found]) -> Iterator[str]:
    bugs = [row for row in rows if row["verdict"] == "true"]
    places = len({row["repo"] for row in bugs})
    yield f"In all, {len(rows)} findings were read; {len(bugs)} of them are bugs, in {places} repositories."
    yield ""
    yield "| findings | " + " | ".join(VERDICTS) + " | right |"
    yield "|---|" + "---|" * (len(VERDICTS) + 1)
    groups = {"all that were read": rows}
    for level in REPORTED:
        groups[f"reported today as {level}"] = [row for row in rows if row["now"] == level]
    for title, group in groups.items():
        counts = Counter(row["verdict"] for row in group)
        cells = " | ".join(str(counts[name]) for name in VERDICTS)
        right = counts["true"] + counts["harmless"]
        yield f"| {title} | {cells} | {_share(right, len(group))} |"
    yield ""
    repaired = sum(row["fix"] is not None for row in bugs)
    safe = sum(row["fix"] == "safe" for row in bugs)
    yield f"zerograd offers a repair for {repaired} of the {len(bugs)} bugs; {safe} of the repairs are safe."
    yield ""


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({part / whole:.0%})" if whole else "none"


def _repositories(rows: list[Found]) -> Iterator[str]:
    for repo in sorted({row["repo"] for row in rows}, key=str.lower):
        mine = [row for row in rows if row["repo"] == repo]
        yield f"## {repo}"
        yield ""
        commits = sorted({row["commit"] for row in mine})
        yield "At commit " + ", ".join(f"`{commit[:12]}`" for commit in commits) + "."
        yield ""
        yield "| place | rule | verdict | what goes wrong | how bad | today | repair |"
        yield "|---|---|---|---|---|---|---|"
        for row in mine:
            cells = (
                f"`{_place(row)}`",
                f"[{row['code']}](rules/{row['code']}.md) {NAMES[row['code']]}",
                row["verdict"],
                row["reason"],
                row["severity"] or "",
                row["now"],
                row["fix"] or "none",
            )
            yield "| " + " | ".join(_cell(one) for one in cells) + " |"
        yield ""


def _place(row: Found) -> str:
    cell = "" if row["cell"] is None else f" cell {row['cell']}"
    return f"{row['path']}{cell}:{row['line']}"


def _cell(text: str) -> str:
    escaped = text.replace("|", "\\|")
    return escaped if text.startswith(("`", "[")) else escaped.replace("<", "&lt;").replace("_", "\\_").replace("*", "\\*")  # fmt: skip


def main() -> int:
    """Write the page, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only compare")
    options = parser.parse_args()
    page = render(read())
    if options.check:
        same = PAGE.read_text(encoding="utf-8") == page
        print(
            "docs/wild.md is up to date"
            if same
            else "docs/wild.md differs: python docs/wild_page.py"
        )
        return int(not same)
    PAGE.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

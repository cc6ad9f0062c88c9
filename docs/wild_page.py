"""Writes docs/wild.md, the page of findings in public code, from bench/found.jsonl alone.

    python docs/wild_page.py           write the page
    python docs/wild_page.py --check   change nothing; exit with 1 if the page differs

Each line of the data file is one finding that a person has read in its source:

    repo, commit, path, cell, line, code   the place
    verdict    "true": the code does not do what it should; "harmless": so, but without effect;
               "intended": the author wants it; "false": zerograd is wrong
    reason     what goes wrong, or why nothing does
    severity   how bad it is
    upstream   what the project's issues say of it: a link's text, "none found", or null if nobody has looked
    now        what this version reports there: "error", "advice", "possible" or "nothing"
    fix        the repair that this version offers: "safe", "unsafe" or null
    proven     what `bench/prove.py` saw when it executed the loop, as it is and repaired; null if it could not

`bench/wild.py --found` renews the last three from checkouts. `upstream` and `proven` may be absent.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pages
from pages import ROOT

from zerograd.rules.catalogue import PAGES

DATA = ROOT / "bench" / "found.jsonl"
PAGE = ROOT / "docs" / "wild.md"
VERDICTS = ("true", "harmless", "intended", "false")
REPORTED = ("error", "advice")
NONE_FOUND = "none found"
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
is what `--fix` offers: *safe*, *unsafe* if a person should review it, *none*, or nothing if it was not tried. *Upstream* is whether the project knows the
bug: its issue or pull request, *none found* if we looked for one, or nothing if nobody has looked. *Executed* is what
`bench/prove.py` saw: it cuts the loop out of the file, runs its clears, backward calls, clips and steps with a small net,
as they are and with our repair, and compares the gradients that the steps use. It can do so if one function has
all of them, with one optimizer and without a library that runs the steps.
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
    repaired = sum(bool(row["fix"]) for row in bugs)
    safe = sum(row["fix"] == "safe" for row in bugs)
    proven = sum(row.get("proven") is not None for row in bugs)
    looked = [row for row in bugs if row.get("upstream") is not None]
    known = sum(row["upstream"] != NONE_FOUND for row in looked)
    yield (
        f"zerograd offers a repair for {repaired} of the {len(bugs)} bugs; {safe} of the repairs are safe. {proven} bugs "
        f"were proven by executing the loop. For {len(looked)} we looked into the project's issues; {known} are known there."
    )
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
        yield "| place | rule | verdict | what goes wrong | how bad | upstream | today | repair | executed |"
        yield "|---|---|---|---|---|---|---|---|---|"
        for row in mine:
            cells = (
                f"`{_place(row)}`",
                f"[{row['code']}](rules/{row['code']}.md) {NAMES[row['code']]}",
                row["verdict"],
                row["reason"],
                row["severity"] or "",
                row.get("upstream") or "",
                row["now"],
                "none" if row["fix"] is None else row["fix"],
                row.get("proven") or "",
            )
            yield "| " + " | ".join(_cell(one) for one in cells) + " |"
        yield ""


def _place(row: Found) -> str:
    cell = "" if row["cell"] is None else f" cell {row['cell']}"
    return f"{row['path']}{cell}:{row['line']}"


def _cell(text: str) -> str:
    escaped = text.replace("|", "\\|")
    return escaped if text.startswith(("`", "[")) else escaped.replace("<", "&lt;").replace("_", "\\_").replace("*", "\\*")  # fmt: skip


if __name__ == "__main__":
    sys.exit(pages.main(__doc__, PAGE, lambda: render(read())))

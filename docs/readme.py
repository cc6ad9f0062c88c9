"""Writes output of the tool, its rules, its fixes and measured numbers into README.md and pages of docs.

    python docs/readme.py           bring the pages up to date
    python docs/readme.py --check   change nothing; show what differs and exit with 1

A part is between `<!-- name:begin -->` and `<!-- name:end -->`. The rest is not changed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pages
from pages import ROOT

from zerograd.rules.catalogue import RULES

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


def _rows(result: str) -> dict[str, dict[str, Any]]:
    """The rows of a result by name; none if it was not measured."""
    path = ROOT / "bench" / "results" / f"{result}.json"
    if not path.exists():
        return {}
    return {row["name"]: row for row in json.loads(path.read_text(encoding="utf-8"))["rows"]}


def numbers() -> str:
    """How good zerograd is, from bench/results and bench/found.jsonl alone."""
    parts = (_known, _planted, _side_by_side, _packages, _wild, _exact, _cheap, _fast)
    return "\n".join(textwrap.fill(said, 116, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False) for part in parts for said in part())  # fmt: skip


def _count(row: dict[str, Any]) -> str:
    return f"{row['value']:,.0f} of {row['of']:,.0f}"


def _known() -> Iterator[str]:
    rows = _rows("known_bugs")
    if rows:
        found = rows["found"]
        yield (
            f"- **Known bugs.** `check` finds {found['value']} of {found['of']} known bugs in public repositories: "
            f"{_count(rows['found, visible in: function'])} that show in one function, "
            f"{_count(rows['found, visible in: file'])} in one file, "
            f"{_count(rows['found, visible in: cross-file'])} across files. At {rows['right places']['value']} similar "
            f"places that are right, it reports {rows['false alarms']['value'] or 'no'} errors. zerograd was developed "
            "with these bugs."
        )


def _planted() -> Iterator[str]:
    rows = _rows("mutants")
    if rows:
        found, repaired = rows["found"], rows["repaired"]
        safe = rows["safe repairs to the same weights"]
        yield (
            f"- **Planted bugs.** {rows['correct loops reported']['of']} right training loops are broken in every way "
            f"that applies. `check` finds {found['value']} of the {found['of']} that then fail or learn other weights, "
            f"and reports {rows['correct loops reported']['value'] or 'none'} of the right ones. It repairs "
            f"{repaired['value']}. After {_count(safe)} repairs of `--fix`, the loop learns the original weights, bit "
            "for bit."
        )


def _side_by_side() -> Iterator[str]:
    rows = _rows("detection")
    named = {name.removesuffix(": named"): row for name, row in rows.items() if name.endswith(": named")}  # fmt: skip
    ours = {tool: row for tool, row in named.items() if tool.startswith("zerograd")}
    others = {tool.split(",")[0]: row for tool, row in named.items() if tool not in ours}
    if ours and others:
        best = max(others, key=lambda tool: others[tool]["value"] / others[tool]["of"])
        said = ", ".join(f"`{tool.split(',')[0]}` in {_count(row)}" for tool, row in ours.items())
        yield (
            f"- **Side by side.** Training loops are drawn from a grammar, each with a bug. It is named by {said}, and by "
            f"the best of {len(others)} other tools, {best}, in {_count(others[best])}. [The comparison]"
            "(docs/comparison.md) says how."
        )


def _packages() -> Iterator[str]:
    rows = _rows("ecosystem")
    if rows:
        yield (
            f"- **False alarms.** In {rows['packages']['value']} packages, with "
            f"{rows['files with .backward(']['value']:,} files that call `.backward(`, `check` reports "
            f"{rows['errors']['value']} errors. We read each of them, and {rows['real']['value']} are real."
        )


def _wild() -> Iterator[str]:
    lines = (ROOT / "bench" / "found.jsonl").read_text(encoding="utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    bugs = [row for row in found if row["verdict"] == "true"]
    yield (
        f"- **In the wild.** We have read {len(found)} findings in public code: {len(bugs)} are bugs, in "
        f"{len({row['repo'] for row in bugs})} repositories. [Each of them](docs/wild.md), right or wrong, has its "
        "place and its reason."
    )


def _exact() -> Iterator[str]:
    rows = _rows("exactness")
    if rows:
        worst = rows["the stepper's worst error"]["value"]
        yield (
            f"- **The stepper is exact.** In float64 its steps differ from those of one big batch by at most {worst:.0e}, "
            "with partial windows, batches of different lengths, and several ranks."
        )


def _cheap() -> Iterator[str]:
    rows = _rows("watch_overhead")
    shares = {name.split(": ")[0]: row["value"] for name, row in rows.items() if name.endswith(": share of a step") and "goal" in row}  # fmt: skip
    if shares:
        ends = dict.fromkeys(
            (min(shares, key=shares.__getitem__), max(shares, key=shares.__getitem__))
        )
        said = " to ".join(f"{shares[name]:.2g} % of a step ({name})" for name in ends)
        yield f"- **Cost of watching.** On one thread zerograd takes {said}."


def _fast() -> Iterator[str]:
    rows = {name: row["value"] for name, row in _rows("check_speed").items()}
    if rows:
        said = (
            f"- **Speed of a check.** `check` takes {rows['zerograd check of one file']:.0f} ms for a file. For "
            f"{rows['files']:,} installed files, few of which train a model, it takes {rows['cold, to ruff']:.2f} times "
            "as long as `ruff check`"
        )
        if "warm, to ripgrep" in rows:
            said += f", and {rows['warm, to ripgrep']:.2f} times as long as ripgrep if nothing has changed"
        yield f"{said}. Code that trains takes longer than with ruff."


def detection() -> str:
    """The tools of the comparison as a table."""
    columns = ("found", "named", "false alarms", "set-up steps", "overhead", "mutants named", "deleted or hoisted zero_grad")  # fmt: skip
    rows = _rows("detection")
    tools = [name.removesuffix(": named") for name in rows if name.endswith(": named")]
    lines = [f"| tool | {' | '.join(columns)} |", "|---|" + "---|" * len(columns)]
    for tool in tools:
        cells = [_cell(rows.get(f"{tool}: {column}")) for column in columns]
        lines.append(f"| {tool} | {' | '.join(cells)} |")
    path = ROOT / "bench" / "results" / "detection.json"
    notes = json.loads(path.read_text(encoding="utf-8")).get("notes", ())
    return "\n".join([*lines, "", *(f"- {note}" for note in notes)])


def _cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    if "of" in row:
        return _count(row)
    return f"{row['value']:.2f} ×" if row.get("unit") == "×" else f"{row['value']:.0f} {row.get('unit', '')}"  # fmt: skip


PARTS: dict[str, dict[str, Callable[[], str]]] = {
    "README.md": {"finding": finding, "proof": proof, "rules": rules, "numbers": numbers},
    "docs/comparison.md": {"detection": detection},
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
    targets = {name: ROOT / name for name in PARTS}
    if options.path is not None:
        targets = {"README.md": options.path}
    stale = []
    for name, path in targets.items():
        after = renewed(path.read_text(encoding="utf-8"), name)
        if not pages.renew(path, after, check=options.check):
            stale.append(name)
    return int(bool(stale))


if __name__ == "__main__":
    sys.exit(main())

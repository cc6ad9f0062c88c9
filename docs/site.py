"""A hook of mkdocs that generates pages from the tool itself.

These are a page for each rule with the finding as the tool prints it, the help of the command, the
Python API, and the lessons.
"""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import zerograd
from zerograd.cli.commands import COMMANDS
from zerograd.learn.rule_pages import Explained, explained
from zerograd.report import text
from zerograd.rules.catalogue import PAGES

ROOT = Path(__file__).parents[1]
READERS = {"both": "source and runs", "static": "source only", "runtime": "runs only"}


def on_config(config: Any) -> Any:
    """Add the rules to the navigation, and remove missing pages."""
    rules = ["rules/index.md", *(f"rules/{page.code}.md" for page in PAGES)]
    config.nav = list(_there(config.nav, Path(config.docs_dir), rules))
    return config


def _there(nav: list[Any], folder: Path, rules: list[str]) -> Iterator[Any]:
    for entry in nav:
        ((title, target),) = entry.items()
        if isinstance(target, list):
            yield {title: list(_there(target, folder, rules))}
        elif target == rules[0]:
            yield {title: rules}
        elif target.startswith("reference/") or (folder / target).exists():
            yield entry


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages."""
    from mkdocs.structure.files import File

    for name, content in generated():
        files.append(File.generated(config, name, content=content))
    return files


def generated() -> Iterator[tuple[str, str]]:
    """The name and the text of every generated page."""
    yield "rules/index.md", rules()
    for page in PAGES:
        yield f"rules/{page.code}.md", rule(explained(page))
    yield "reference/cli.md", command()
    yield "reference/python.md", python()
    yield from lessons()


def rules() -> str:
    """The catalogue."""
    lines = [
        "# Rules",
        "",
        "Advice is shown but does not fail a check, unless you select it by its code or name.",
        "",
        "| code | name | what it means | seen in |",
        "|---|---|---|---|",
    ]
    for page in PAGES:
        parts = explained(page)
        advice = " *(advice)*" if page.level == "advice" else ""
        summary = parts.page.summary.rstrip(".").replace("|", r"\|")
        link = f"[{page.code}]({page.code}.md)"
        lines.append(f"| {link} | {page.name} | {summary}{advice} | {READERS[parts.page.only]} |")
    return "\n".join(lines) + "\n"


def rule(parts: Explained) -> str:
    """A rule's page."""
    page = parts.page
    lines = [f"# {page.code} {page.name}", "", f"**{parts.page.summary}**", ""]
    for paragraph in parts.why:
        lines += [paragraph, ""]
    lines += [f"Level: {page.level}. Seen in: {READERS[parts.page.only]}.", ""]
    if parts.bad:
        lines += ["## Bad", "", f"```python\n{parts.bad}```", ""]
        if parts.found is not None:
            asked, report = parts.found
            said = text.render(report).rstrip()
            lines += [f"```console\n$ {asked}\n{said}\n```", ""]
        if parts.ran is not None:
            asked, report = parts.ran
            said = text.render(report).rstrip()
            lines += ["A run shows it, too:", "", f"```console\n$ {asked}\n{said}\n```", ""]
        lines += ["## Good", "", f"```python\n{parts.good}```", ""]
        lines += [f"If the code is right as it is: `# zerograd: allow[{page.name}]`", ""]
        lines += ["## Other tools", "", others(page.code), ""]
    return "\n".join(lines)


def others(code: str) -> str:
    """How many loops with a rule's bug other tools name, from the result of the comparison."""
    path = ROOT / "bench" / "results" / "detection.json"
    named: dict[str, list[int]] = {}
    for row in json.loads(path.read_text(encoding="utf-8"))["rows"]:
        family, _, tool = row["name"].partition(": ")
        if code in family:
            counts = named.setdefault(tool, [0, 0])
            counts[0] += row["value"]
            counts[1] += row["of"]
    tools = {
        _aside(tool): counts for tool, counts in named.items() if not tool.startswith("zerograd")
    }
    if not tools:
        return "Loops with this bug were not given to [other tools](../comparison.md)."
    found = [f"{tool} names {n} of {m}" for tool, (n, m) in tools.items() if n]
    silent = [tool for tool, (n, _) in tools.items() if not n]
    said = "; ".join([*found, *([f"{_and(silent)} name none"] if silent else [])])
    return f"Of drawn loops with this bug, {said}. [How this was measured](../comparison.md)."


def _aside(tool: str) -> str:
    """`ruff 1.0 (all rules)` of `ruff 1.0, all rules`."""
    name, _, how = tool.partition(", ")
    return f"{name} ({how})" if how else name


def _and(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def command() -> str:
    """The `--help` of the command and of each of its subcommands."""
    lines = ["# The command", "", _help("zerograd"), ""]
    for name in COMMANDS:
        lines += [f"## zerograd {name}", "", _help("zerograd", name), ""]
    return "\n".join(lines)


def _help(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *words, "--help"],
        env={**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "PYTHONUTF8": "1"},
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    return f"```console\n$ {' '.join(words)} --help\n{done.stdout.rstrip()}\n```"


def python() -> str:
    """Every public name with its signature and docstring."""
    lines = ["# Python", "", "`import zerograd` loads neither torch nor anything heavy.", ""]
    for name in zerograd.__all__:
        thing = getattr(zerograd, name)
        if not callable(thing):
            continue
        lines += [f"## zerograd.{name}", "", _signature(name, thing), "", _doc(thing), ""]
        if inspect.isclass(thing):
            lines += _members(thing)
    return "\n".join(lines)


def _members(kind: type) -> Iterator[str]:
    for name, member in vars(kind).items():
        if name.startswith("_") or not inspect.getdoc(member):
            continue
        if inspect.isfunction(member):
            yield from (
                f"### {kind.__name__}.{name}",
                "",
                _signature(name, member),
                "",
                _doc(member),
                "",
            )
        elif isinstance(member, property):
            yield from (f"### {kind.__name__}.{name}", "", _doc(member), "")


def _signature(name: str, thing: Any) -> str:
    try:
        said = f"{name}{inspect.signature(thing)}"
    except ValueError:
        said = name
    return f"```text\n{said}\n```"


def _doc(thing: Any) -> str:
    return inspect.cleandoc(inspect.getdoc(thing) or "")


def lessons() -> Iterator[tuple[str, str]]:
    """The course, as `zerograd learn --html` writes it."""
    from zerograd.learn.contents import LESSONS
    from zerograd.learn.web_pages import write

    with tempfile.TemporaryDirectory() as folder:
        for path in write(LESSONS, folder, home="../index.html"):
            yield f"lessons/{Path(path).name}", Path(path).read_text(encoding="utf-8")

"""Every example on every page of the documentation is executed, and every link works."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import zerograd
from support import tiers
from support.command import zerograd as run_zerograd
from support.paths import ROOT
from zerograd.cli.commands import COMMANDS
from zerograd.core.rule import Page
from zerograd.learn.rule_pages import explained, prelude
from zerograd.rules import catalogue

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DOCS = ROOT / "docs"
TESTED_ELSEWHERE = {
    "stepper.md": "stepper/test_stepper_recipes.py",
    "claims.md": "project/test_claims.py",
    "howto/trainers.md": "libraries/test_trainers_page.py",
}
"""Pages whose examples are tested in other files."""

PAGES = sorted(
    path for path in DOCS.rglob("*.md") if path.relative_to(DOCS).as_posix() not in TESTED_ELSEWHERE
)
FENCE = re.compile(r"^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
SITE = runpy.run_path(str(DOCS / "site.py"))


@dataclass(frozen=True)
class Example:
    """One block of a page."""

    page: Path
    kind: str
    text: str
    number: int

    def __str__(self) -> str:
        return f"{self.page.relative_to(DOCS).with_suffix('').as_posix()}-{self.number}"


def examples(*kinds: str) -> list[Any]:
    found = [
        Example(path, block["kind"], block["text"], number)
        for path in PAGES
        for number, block in enumerate(FENCE.finditer(path.read_text(encoding="utf-8")), 1)
    ]
    return [one for one in found if one.kind in kinds]


def test_every_kind_of_block_is_looked_at() -> None:
    kinds = {block["kind"] for path in PAGES for block in FENCE.finditer(path.read_text("utf-8"))}
    assert kinds <= {"", "python", "console", "toml", "yaml", "json", "lua", "vim", "text"}


# Python


def with_python() -> list[Any]:
    pages = {one.page for one in examples("python")}
    return [pytest.param(path, id=path.stem) for path in sorted(pages)]


@pytest.mark.parametrize("path", with_python())
def test_the_python_of_a_page_runs_from_top_to_bottom(path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    names: dict[str, Any] = {}
    for example in examples("python"):
        if example.page == path:
            # Each example gets new models; names that it defines stay.
            exec(compile(prelude(example.text), "prelude", "exec"), names)
            exec(compile(example.text, str(example), "exec"), names)
    assert names


@pytest.mark.parametrize("example", examples("python"), ids=str)
def test_zerograd_finds_in_an_example_what_its_comments_say(example: Example) -> None:
    given = prelude(example.text)
    report = zerograd.check_source(given + example.text, "train.py")
    found = [(one.site.line - given.count("\n"), one.code) for one in report.findings]
    lines = example.text.splitlines()
    expected = [
        (number, code)
        for number, line in enumerate(lines, 1)
        for code in re.findall(r"#.*?(ZG\d{3})$", line)
    ]
    assert found == expected


# Commands


@pytest.mark.parametrize(
    "example",
    tiers.sample(
        examples("console"),
        [one for one in examples("console") if not one.text.startswith("$ zerograd run ")],
    ),
    ids=str,
)
def test_a_command_prints_what_the_page_shows(example: Example, tmp_path: Path) -> None:
    # Some commands change files.
    here = tmp_path / "clone"
    shutil.copytree(ROOT / "examples", here / "examples")
    (command, *shown) = example.text.splitlines()
    program, *words = shlex.split(command.removeprefix("$ "))
    assert program == "zerograd"
    if words[0] == "run":
        pytest.importorskip("torch")
    done = run_zerograd(*words, cwd=here, NO_COLOR="1")
    assert done.returncode in (0, 1), done.stderr
    said = done.stdout if words[0] != "run" else done.stdout + done.stderr
    # A line of dots means lines that are not shown.
    pattern = "".join(
        r"(?:.*\n)*?" if line == "..." else re.escape(line.rstrip()) + r"[ ]*\n" for line in shown
    )
    whole = shown[-1:] != ["..."]
    match = re.search(rf"^{pattern}", said, re.MULTILINE)
    assert match, f"{pattern}\n\n{said}"
    assert match.end() == len(said) or not whole


def test_every_option_on_the_pages_exists() -> None:
    known = set()
    for command in COMMANDS:
        done = run_zerograd(command, "--help", cwd=ROOT)
        known |= set(re.findall(r"--[a-z][a-z-]+", done.stdout))
    for path in PAGES:
        for line in path.read_text(encoding="utf-8").splitlines():
            for words in re.findall(
                r"zerograd (?:check|run|learn|explain|replay|report)\b[^`|\n]*", line
            ):
                own = words.partition(".py")[0] if " run " in f" {words}" else words
                own = own.partition(" -m ")[0]
                assert set(re.findall(r"(?<!\w)--[a-z][a-z-]+", own)) <= known, line


# Settings


@pytest.mark.parametrize("example", examples("toml"), ids=str)
def test_settings_are_understood(example: Example, tmp_path: Path) -> None:
    assert "zerograd" in tomllib.loads(example.text)["tool"]
    (tmp_path / "pyproject.toml").write_text(example.text, encoding="utf-8")
    (tmp_path / "train.py").write_text("import torch\n", encoding="utf-8")
    done = run_zerograd("check", "train.py", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "problem" not in done.stdout


@pytest.mark.parametrize("example", examples("yaml"), ids=str)
def test_yaml_is_yaml_and_its_commands_are_ours(example: Example) -> None:
    yaml = pytest.importorskip("yaml", reason="make docs installs it")
    assert yaml.safe_load(example.text)
    for words in re.findall(r"zerograd check ([^|\n]+)", example.text):
        for option in re.findall(r"--[a-z-]+", words):
            assert option in run_zerograd("check", "--help", cwd=ROOT).stdout


def test_the_problem_matcher_understands_what_is_printed() -> None:
    (example,) = [one for one in examples("json") if "tasks" in one.text]
    pattern = json.loads(example.text)["tasks"][0]["problemMatcher"]["pattern"]
    done = run_zerograd("check", "--format", "concise", "examples", cwd=ROOT)
    for line in done.stdout.splitlines():
        if ".ipynb:cell " in line:
            continue  # an editor has no line for it; the language server knows cells
        match = re.match(pattern["regexp"], line)
        assert match, line
        assert (ROOT / match[pattern["file"]]).exists()
        assert match[pattern["line"]].isdecimal()
        assert match[pattern["code"]] in {page.code for page in catalogue.PAGES}


# Generated pages


@pytest.mark.parametrize(
    "page", tiers.sample(catalogue.PAGES, catalogue.PAGES[:3]), ids=lambda page: page.code
)
def test_every_rule_has_a_page_with_its_finding(page: Page) -> None:
    parts = explained(page)
    written = SITE["rule"](parts)
    assert written.startswith(f"# {page.code} {page.name}\n\n**{page.summary}**\n")
    if parts.bad:
        assert f"```python\n{parts.bad}```" in written
        assert f"```python\n{parts.good}```" in written
    if parts.found is not None:
        assert f"  {page.code} {page.name}  " in written


def test_the_index_links_to_every_rule() -> None:
    index = SITE["rules"]()
    assert all(f"[{page.code}]({page.code}.md)" in index for page in catalogue.PAGES)


def test_the_reference_has_every_command_and_every_public_name() -> None:
    written = SITE["command"]()
    assert all(f"## zerograd {name}\n" in written for name in COMMANDS)
    assert "Traceback" not in written
    names = SITE["python"]()
    assert all(f"## zerograd.{name}\n" in names for name in zerograd.__all__ if name[0] != "_")


def test_the_json_page_has_every_field() -> None:
    page = (DOCS / "reference" / "json.md").read_text(encoding="utf-8")
    path = "examples/pitfall_none_gradient.py"
    done = run_zerograd("check", "--loops", "--format", "json", path, cwd=ROOT)
    written = json.loads(done.stdout)
    fields = {*written, *written["findings"][0]}
    named = "".join(re.findall(r"^\| (`[^|]+) \|", page, re.MULTILINE))
    assert fields == set(re.findall(r"`(\w+)`", named))


# Links


def test_every_link_leads_to_a_page_that_is_there_or_is_made() -> None:
    made = {f"rules/{page.code}.md" for page in catalogue.PAGES}
    made |= {"rules/index.md", "reference/cli.md", "reference/python.md", "lessons/index.html"}
    for path in DOCS.rglob("*.md"):
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", path.read_text(encoding="utf-8")):
            there = (path.parent / target).resolve()
            name = there.relative_to(DOCS.resolve()).as_posix() if DOCS in there.parents else ""
            assert there.exists() or name in made, f"{path.name} points at {target}"


def test_every_page_is_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = set(re.findall(r": ([\w/]+\.md)$", text, re.MULTILINE))
    there = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert there <= listed


def test_pages_tested_elsewhere_are() -> None:
    for page, test in TESTED_ELSEWHERE.items():
        there = (ROOT / "tests" / test).read_text(encoding="utf-8")
        assert page in there, f"{test} does not look at {page}"


def test_the_architecture_lists_every_package_and_names_modules_that_exist() -> None:
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    source = ROOT / "src" / "zerograd"
    packages = {
        ".".join(path.parent.relative_to(source).parts)
        for path in source.rglob("__init__.py")
        if path.parent != source
    }
    section = text.partition("## The packages")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `([\w.]+)` \|", section, re.MULTILINE)
    assert set(listed) | {"launch.boot", "learn.lessons"} == packages
    assert len(listed) == len(set(listed))
    longest_first = "|".join(sorted(packages, key=len, reverse=True)).replace(".", "[./]")
    named = re.findall(rf"`((?:{longest_first})[./]\w+)(?:\.py)?[`.]", text)
    assert len(named) > 30
    for name in named:
        path = source / name.replace(".", "/")
        assert path.with_suffix(".py").exists() or path.is_dir(), f"there is no {name}"

"""The site in a browser, from disk and over http: its search, its first page, and that it loads nothing."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from support import tiers
from support.paths import ROOT
from support.web import served
from zerograd.report.icon import icon

CONFIG = f"""\
INHERIT: {ROOT}/mkdocs.yml
docs_dir: {ROOT}/docs
strict: false
hooks: []
nav:
  - index.md
  - report.md
  - glossary.md
"""
"""The real theme, plugins and settings; of the pages only a few, because the others run every example."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="make docs installs it")
    folder = tmp_path_factory.mktemp("site")
    (folder / "mkdocs.yml").write_text(f"{CONFIG}site_dir: {folder}/site\n", encoding="utf-8")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "-f", str(folder / "mkdocs.yml")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "site"


@pytest.fixture(params=["disk", "http"])
def address(request: pytest.FixtureRequest, site: Path) -> Iterator[str]:
    if request.param == "disk":
        yield site.as_uri()
        return
    with served(site) as address:
        yield address


@pytest.fixture
def opened(browser: Any, address: str) -> Iterator[Any]:
    """Open a page while every other server is out of reach. None may have been asked for anything."""
    elsewhere: list[str] = []
    contexts = []

    def page(name: str, **options: Any) -> Any:
        context = browser.new_context(**options)
        contexts.append(context)

        def route(request: Any) -> None:
            if request.request.url.startswith(address):
                request.continue_()
            else:
                elsewhere.append(request.request.url)
                request.abort()

        context.route(re.compile("^(https?|file):"), route)
        page = context.new_page()
        page.goto(f"{address}/{name}")
        return page

    yield page
    for context in contexts:
        context.close()
    assert elsewhere == []


@tiers.long
def test_the_search_finds_a_page_without_a_network(opened: Any) -> None:
    page = opened("report.html", viewport={"width": 1400, "height": 900})
    page.click("input[name=query]")
    page.keyboard.type("leftover", delay=20)
    page.wait_for_selector(".md-search-result__item", timeout=20_000)
    assert "report.html" in page.locator(".md-search-result__link").first.get_attribute("href")


@tiers.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_problem_on_the_site(opened: Any, scheme: str) -> None:
    from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]

    for width in (1400, 390):
        page = opened("index.html", color_scheme=scheme, viewport={"width": width, "height": 900})
        page.wait_for_timeout(300)
        found = Axe().run(page).response["violations"]
        serious = [one for one in found if one["impact"] in ("serious", "critical")]
        assert not serious, json.dumps(serious, indent=1)[:3000]


def test_pages_and_site_have_one_icon() -> None:
    site = (ROOT / "docs" / "assets" / "favicon.svg").read_text(encoding="utf-8")
    assert icon() == f"data:image/svg+xml,{quote(site.strip())}"


def test_every_rule_says_what_other_tools_say() -> None:
    others = runpy.run_path(str(ROOT / "docs" / "site.py"))["others"]
    assert others("ZG101").startswith("Of drawn loops with this bug, torch-preflight")
    assert "mldoct" in others("ZG101")
    assert "ruff 0.17.4 (all rules)" in others("ZG303").split(" name none")[0]
    assert "not given" in others("ZG401")


def test_installing_is_described_the_same_way_everywhere() -> None:
    for page in (ROOT / "README.md", ROOT / "docs" / "index.md"):
        text = page.read_text(encoding="utf-8")
        assert "pip install ." in text
        assert "pip install zerograd" in text
    printed = set()
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        printed |= set(
            re.findall(r"pip install (?:--no-deps )?([^`#\n]+)", page.read_text(encoding="utf-8"))
        )
    names = {re.sub(r"\[.*?\]|\"", "", one).split()[0] for one in printed}
    assert names <= {".", "zerograd", "-r"}, names

"""The pages of the lessons in a browser: the bucket does what torch does, by mouse and keyboard."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import tiers
from support.web import served
from zerograd.cli.main import main

pytest.importorskip("torch")

from zerograd.learn.lessons.bucket import Bucket

CALLS = ("step", "backward", "step", "backward", "step", "zero", "backward", "step", "backward")
LESSONS = ("1", "6")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lessons")
    for lesson in LESSONS:
        assert main(["learn", "--lesson", lesson, "--html", str(folder)]) == 0
    return folder


@pytest.fixture
def show(browser: Any, folder: Path) -> Iterator[Any]:
    """Open a lesson. At the end there must be no console message and no network request."""
    complaints: list[str] = []
    fetched: list[str] = []
    allowed: list[str] = []
    contexts = []

    def opened(lesson: str, address: str = "", **options: Any) -> Any:
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: fetched.append(request.url))
        allowed.append(address or "file:")
        page.goto(f"{address or folder.as_uri()}/lesson-{lesson}.html")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []
    assert [url for url in fetched if not url.startswith(tuple(allowed))] == []


@tiers.long
def test_no_line_of_output_is_cut_off_on_a_wide_screen(show: Any) -> None:
    for lesson in LESSONS:
        page = show(lesson, viewport={"width": 1400, "height": 900})
        cut = page.evaluate(
            "() => [...document.querySelectorAll('pre')].filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.innerText)"
        )
        assert cut == []


def test_the_theme_is_kept_from_lesson_to_lesson(show: Any) -> None:
    page = show("1", color_scheme="light")
    light = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    dark = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    assert dark != light
    page.reload()
    assert page.evaluate("() => getComputedStyle(document.body).backgroundColor") == dark
    assert page.inner_text("#theme") == "Light"


def state(page: Any) -> tuple[str, str, str]:
    shown = (page.text_content(f"[data-show={name}]") for name in ("gradient", "state", "weight"))
    gradient, named, weight = shown
    return gradient, named, weight


def expected(lab: Bucket, call: str) -> tuple[str, str, str]:
    moment = lab.press(call)
    held = "None" if moment.gradient is None else f"{moment.gradient:.4g}"
    return held, moment.state, f"{moment.weight:.4g}"


def test_the_buttons_do_what_torch_does(show: Any) -> None:
    page = show("1")
    lab = Bucket(2.0, 0.1, (3.0, 5.0))
    for call in CALLS:
        page.click(f"button[data-call={call}]")
        assert state(page) == expected(lab, call), call
    page.click("button[data-call=again]")
    assert state(page) == ("None", "empty", "2")


@tiers.long
def test_the_bucket_can_be_used_by_keyboard(show: Any) -> None:
    page = show("1")
    page.focus("button[data-call=backward]")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert state(page) == ("3", "spent", "1.7")
    assert "step() used 3" in page.text_content("[data-show=said]")


@tiers.long
def test_a_full_bucket_is_full_and_a_stale_one_is_seen_to_be(show: Any) -> None:
    page = show("1", reduced_motion="reduce")
    for call in ("backward", "step", "backward"):
        page.click(f"button[data-call={call}]")
    assert page.evaluate("() => document.querySelector('.lab .water').style.height") == "100%"
    assert page.locator(".lab .bucket.stale").count() == 1


@tiers.long
def test_one_commits_before_the_answer_opens(show: Any) -> None:
    page = show("6")
    assert not page.locator(".question details[open]").count()
    page.click(".question button[data-answer=yes]")
    assert page.text_content(".question .said") == "Wrong: the answer is no."
    assert page.locator(".question details[open]").count() == 1
    page.click(".question button[data-answer=no]")
    assert page.text_content(".question .said") == "Wrong: the answer is no."


@tiers.long
def test_without_scripts_everything_can_be_read(show: Any) -> None:
    page = show("6", java_script_enabled=False)
    assert page.locator(".question button").first.is_hidden()
    page.click(".question summary")
    assert page.locator(".question details p").first.is_visible()


@tiers.long
def test_a_phone_shows_all_of_it(show: Any) -> None:
    for lesson in LESSONS:
        page = show(lesson, viewport={"width": 360, "height": 740})
        assert page.evaluate("() => document.documentElement.scrollWidth") <= 360, lesson


@tiers.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("lesson", LESSONS)
def test_axe_finds_no_serious_problem(show: Any, folder: Path, lesson: str, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    with served(folder) as address:
        for place in ("", address):
            page = show(lesson, place, color_scheme=scheme)
            found = axe.Axe().run(page).response["violations"]
            serious = [one for one in found if one["impact"] in ("serious", "critical")]
            assert not serious, json.dumps(serious, indent=1)[:3000]

"""A state has one colour wherever it is drawn."""

from __future__ import annotations

import re

from support.paths import ROOT

SHEETS = ("src/zerograd/report/assets/page.css", "src/zerograd/learn/page.css")


def colours(path: str, state: str) -> set[str]:
    text = (ROOT / path).read_text(encoding="utf-8")
    return set(re.findall(rf"--{state}: (#[0-9a-f]{{6}});", text))


def test_page_lessons_and_picture_have_the_same_colours() -> None:
    picture = (ROOT / "docs" / "buckets.svg").read_text(encoding="utf-8")
    for state, drawn in {"live": "live", "spent": "spent", "stale": "mixed"}.items():
        page, lessons = (colours(sheet, state) for sheet in SHEETS)
        assert len(page) == 2, "light and dark"
        assert lessons == page
        assert set(re.findall(rf"\.{drawn} {{ fill: (#[0-9a-f]{{6}}) }}", picture)) == page


def test_no_text_of_the_terminal_is_dark_blue() -> None:
    from zerograd.report.text import _STYLES
    from zerograd.terminal import status_line

    assert not any(style.split(";")[-1] == "34" for style in _STYLES.values())
    assert "\x1b[34m" not in (ROOT / str(status_line.__file__)).read_text(encoding="utf-8")
    assert '"34"' not in (ROOT / str(status_line.__file__)).read_text(encoding="utf-8")

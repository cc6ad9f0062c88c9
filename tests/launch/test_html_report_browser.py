"""The report page in a real browser: it opens from disk, is drawn, and its controls work."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import tiers
from support.command import write, zerograd
from support.pages import NASTY, SCRIPT, event, pair_run, shared_run, stale_run
from support.paths import ROOT
from support.web import served
from zerograd.core.events import Backward, Step
from zerograd.recording.writer import Recorder

EXAMPLE = ROOT / "examples" / "forgotten_zero_grad.py"
LONG = 100_000
MISSED = 77_777


class Pages:
    """The pages of several runs, each made when it is first shown."""

    def __init__(self, here: Path) -> None:
        self.here = here

    def path(self, name: str) -> Path:
        page = self.here / f"{name}.html"
        if not page.exists():
            getattr(self, name)()
            if not page.exists():
                (recording,) = {f"{name}.jsonl", name} & {one.name for one in self.here.iterdir()}
                done = zerograd("report", recording, "-o", page.name, cwd=self.here)
                assert done.returncode == 1
        return page

    def short(self) -> None:
        """Real torch."""
        write(self.here, {"forgotten.py": EXAMPLE.read_bytes()})
        done = zerograd("run", "--html", "short.html", "forgotten.py", cwd=self.here)
        assert done.returncode == 1

    def long(self) -> None:
        write(self.here, {"train.py": SCRIPT})
        stale_run(self.here / "long.jsonl", LONG, [MISSED])

    def ranks(self) -> None:
        write(self.here, {"train.py": SCRIPT})
        (self.here / "ranks").mkdir()
        for rank in range(2):
            stale_run(self.here / "ranks" / f"{rank}.jsonl", 30, [5] * rank, rank=rank)

    def shared(self) -> None:
        (self.here / "shared").mkdir()
        for rank in range(2):
            shared_run(self.here / "shared" / f"{rank}.jsonl", 50, 26, rank=rank)

    def pair(self) -> None:
        pair_run(self.here / "pair.jsonl", 10_000, 6544)

    def healthy(self) -> None:
        pair_run(self.here / "healthy.jsonl", 20_000, 20_000)
        done = zerograd("report", "healthy.jsonl", "-o", "healthy.html", cwd=self.here)
        assert done.returncode == 0

    def nasty(self) -> None:
        source = f"{NASTY}.py".replace("/", "\\")
        recorder = Recorder(str(self.here / "nasty.jsonl"), program=NASTY)
        recorder.title("SGD#1", NASTY, 2)
        for kind in (Backward, Step, Backward, Step):
            recorder.write("SGD#1", event(kind, source))
        recorder.close(clean=True)
        write(self.here, {source: f"# {NASTY}\n" * 9})


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    return Pages(tmp_path_factory.mktemp("pages"))


class Shown:
    """A page that is open, and everything that its browser complains about."""

    def __init__(self, browser: Any, path: Path, **options: Any) -> None:
        options.setdefault("viewport", {"width": 1200, "height": 900})
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        # That a test reads pixels is no fault of the page.
        self.page.on(
            "console",
            lambda message: (
                None
                if "willReadFrequently" in message.text
                else self.complaints.append(message.text)
            ),
        )
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())

    def view(self) -> dict[str, float]:
        self.page.evaluate("() => new Promise(requestAnimationFrame)")
        found: dict[str, float] = self.page.evaluate("() => ({...zerograd.view})")
        return found

    def colours(self, canvas: str) -> int:
        """How many colours are drawn."""
        number: int = self.page.evaluate(
            """(id) => {
              const c = document.querySelector(id), d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
              return new Set(new Uint32Array(d.buffer)).size;
            }""",
            canvas,
        )
        return number

    def background(self) -> int:
        """How light the page is."""
        words: str = self.page.evaluate("() => getComputedStyle(document.body).backgroundColor")
        return sum(int(part) for part in words[4:-1].split(","))


@pytest.fixture
def show(browser: Any, pages: Pages) -> Iterator[Any]:
    opened: list[Shown] = []

    def one(name: str, **options: Any) -> Shown:
        opened.append(Shown(browser, pages.path(name), **options))
        return opened[-1]

    yield one
    for shown in opened:
        shown.context.close()
        assert not shown.complaints
        assert len(shown.requests) == 1, "a page loads nothing but itself"


def test_the_verdict_the_finding_and_both_its_ends_are_there(show: Any) -> None:
    page = show("short").page
    assert page.inner_text("h1") == "1 error"
    card = page.locator(".finding")
    assert "ZG101" in card.inner_text()
    assert page.locator("mark.here").inner_text() == "loss2.backward()"
    assert page.locator("mark.there").inner_text() == "optimizer.step()"
    assert page.locator(".numbers .right b").inner_text() == "5"
    assert page.locator(".numbers .used b").inner_text() == "8"


@tiers.long
def test_the_timeline_and_the_norms_are_drawn(show: Any) -> None:
    shown = show("short")
    assert "SGD, 1 parameter" in shown.page.inner_text("#names")
    for canvas in ("#lanes", "#overview", "#charts canvas"):
        assert shown.colours(canvas) > 5, canvas
    assert "it should have been 5" in shown.page.inner_text("#detail")
    assert "step 2" in shown.page.inner_text("#detail h3")


@tiers.long
def test_keys_move_zoom_and_find(show: Any) -> None:
    shown = show("long")
    shown.page.focus("#timeline")

    def pressed(key: str) -> dict[str, float]:
        shown.page.keyboard.press(key)
        return dict(shown.view())

    whole = shown.view()
    assert (whole["from"], whole["to"]) == (0, LONG)
    assert whole["chosen"] == MISSED, "the first finding is what one looks at first"
    near = pressed("+")
    assert near["to"] - near["from"] == LONG / 2
    assert near["from"] <= MISSED < near["to"]
    for _ in range(20):
        near = pressed("+")
    assert near["to"] - near["from"] == 1, "one step fills the view"
    assert near["from"] <= MISSED + 0.5 <= near["to"]
    assert pressed("ArrowRight")["chosen"] == MISSED + 1
    assert pressed("ArrowLeft")["chosen"] == MISSED
    moved = pressed("Shift+ArrowRight")
    assert moved["from"] == pytest.approx(near["from"] + 1, abs=1.1)
    assert pressed("Home")["chosen"] == 0
    assert pressed("n")["chosen"] == MISSED
    assert pressed("n")["chosen"] == MISSED, "there is no other"
    assert pressed("End")["chosen"] == LONG - 1
    assert pressed("p")["chosen"] == MISSED
    out = pressed("-")
    assert out["to"] - out["from"] > 1
    assert pressed("0") == {"from": 0, "to": LONG, "chosen": MISSED}
    assert "ZG101" in shown.page.inner_text("#detail")


@tiers.long
def test_pointer_wheel_and_buttons_do_the_same(show: Any) -> None:
    shown = show("long")
    page = shown.page
    page.locator("#lanes").scroll_into_view_if_needed()
    box = page.locator("#lanes").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 40)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -400)
    page.keyboard.up("Control")
    near = shown.view()
    assert near["to"] - near["from"] < LONG
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 4, box["y"] + 40)
    page.mouse.up()
    assert shown.view()["from"] > near["from"], "dragged to the left, later steps come into view"
    page.click("[data-do=in]")
    assert shown.view()["to"] - shown.view()["from"] < near["to"] - near["from"]
    page.click("[data-do=all]")
    assert shown.view()["to"] == LONG
    page.fill("#goto", "1234")
    page.keyboard.press("Enter")
    assert shown.view()["chosen"] == 1233
    assert "step 1,234" in page.inner_text("#detail")
    page.click(".show")
    assert shown.view()["chosen"] == MISSED
    assert "of 100,000" in page.inner_text("#range")


@tiers.long
def test_100_000_steps_open_in_two_seconds_and_stay_responsive(show: Any) -> None:
    shown = show("long")
    page = shown.page
    opened = page.evaluate("() => performance.getEntriesByType('navigation')[0].loadEventEnd")
    assert opened < 2000
    assert page.evaluate("() => document.querySelectorAll('*').length") < 2000
    times = page.evaluate(
        """async () => {
          const times = [], line = document.getElementById("timeline");
          const press = (key, shiftKey = false) => line.dispatchEvent(new KeyboardEvent("keydown", { key, shiftKey }));
          for (const key of [..."++++++++----++----", "0", "n"].concat(Array(20).fill("ArrowRight"))) {
            const before = performance.now();
            press(key);
            await new Promise(requestAnimationFrame);
            await new Promise((done) => setTimeout(done));
            times.push(performance.now() - before);
          }
          return times.sort((a, b) => a - b);
        }"""
    )
    assert times[len(times) // 2] < 200, times


@tiers.long
def test_one_stale_step_among_100_000_is_seen(show: Any) -> None:
    """Of the two lanes, the one with the finding has a mark where it belongs."""
    shown = show("long")
    shown.page.focus("#timeline")
    shown.page.keyboard.press("Escape")
    shown.view()
    at = shown.page.evaluate(
        """() => {
          const c = document.getElementById("lanes"), k = c.width / c.clientWidth;
          const red = getComputedStyle(document.documentElement).getPropertyValue("--bad").trim();
          const [r, g, b] = [1, 3, 5].map((i) => parseInt(red.slice(i, i + 2), 16));
          const row = c.getContext("2d").getImageData(0, Math.round(23 * k), c.width, 1).data, found = [];
          for (let x = 0; x < c.width; x++) if (row[4 * x] === r && row[4 * x + 1] === g && row[4 * x + 2] === b) found.push((x / k - 46) / (c.clientWidth - 46));
          return found;
        }"""
    )
    assert at
    assert all(abs(place - MISSED / LONG) < 0.01 for place in at)


@tiers.long
def test_ranks_are_side_by_side(show: Any) -> None:
    page = show("ranks").page
    names = page.locator("#names span").all_inner_texts()
    assert [name.split(" · ")[0] for name in names] == ["rank 0", "rank 1"]
    assert page.locator("#charts figure").count() == 2
    assert "on rank 1" in page.inner_text(".finding")


def test_one_types_what_the_card_says_and_lands_there(show: Any) -> None:
    """`opt_d` takes 10,000 steps and `opt_g` 5,000: the 6,545th step of `opt_d` is the 9,817th of all."""
    shown = show("pair")
    page = shown.page
    assert "at step 6,545 of opt_d" in page.inner_text(".place")
    page.click("[data-do=all]")
    for said in ("6545", "6,545", "step 6,545 of opt_d"):
        page.keyboard.press("Escape")
        page.fill("#goto", "1")
        page.keyboard.press("Enter")
        page.fill("#goto", said)
        page.keyboard.press("Enter")
        assert shown.view()["chosen"] == 9816, said
        assert "step 6,545 of opt_d" in page.inner_text("#detail h3")
        assert "ZG101" in page.inner_text("#detail li.found")
    assert "after step 3,272 of opt_g" in page.inner_text("#detail h3")
    assert page.evaluate("() => location.hash") == "#step=6545&lane=1"
    page.fill("#goto", "step 12 of opt_g")
    page.keyboard.press("Enter")
    page.wait_for_selector("#detail h3:has-text('step 12 of opt_g')")
    page.evaluate("() => { location.hash = '#step=6545&lane=1' }")
    page.wait_for_function("() => zerograd.view.chosen === 9816")


@tiers.long
def test_card_timeline_and_chart_say_the_same_numbers(show: Any) -> None:
    page = show("pair").page
    card = [page.inner_text(f".numbers .{kind} b") for kind in ("used", "right")]
    assert card == ["4.25", "2.5"]
    assert f"used: {card[0]}; it should have been {card[1]}" in page.inner_text("#detail")


def states(shown: Shown) -> set[str]:
    """The states that the legend names, and no other is drawn."""
    return set(shown.page.locator("#legend b").all_inner_texts())


@tiers.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_healthy_lane_has_no_pixel_of_the_stale_colour(show: Any, scheme: str) -> None:
    """Of a healthy pair, zoomed in and out, in every width: leftovers are drawn, stale gradients are not."""
    for width in (1200, 1013, 390):
        shown = show("healthy", color_scheme=scheme, viewport={"width": width, "height": 900})
        assert "leftover" in states(shown)
        assert "stale" not in states(shown)
        for key in "0+++++":
            shown.page.focus("#timeline")
            shown.page.keyboard.press(key)
            shown.view()
            for canvas in ("#lanes", "#overview"):
                assert stale_pixels(shown, canvas) == 0, (width, key, canvas)
    shown = show("pair", color_scheme=scheme)
    shown.page.focus("#timeline")
    shown.page.keyboard.press("Escape")
    shown.view()
    assert stale_pixels(shown, "#lanes") > 0, "a stale one is seen"


def stale_pixels(shown: Shown, canvas: str) -> int:
    found: int = shown.page.evaluate(
        """(id) => {
          const c = document.querySelector(id), d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
          const css = getComputedStyle(document.documentElement), rgb = (name) => [1, 3, 5].map((i) => parseInt(css.getPropertyValue(name).trim().slice(i, i + 2), 16));
          const near = (i, [r, g, b]) => Math.abs(d[i] - r) + Math.abs(d[i + 1] - g) + Math.abs(d[i + 2] - b) < 12;
          let found = 0;
          for (let i = 0; i < d.length; i += 4) if (near(i, rgb("--stale"))) found++;
          return found;
        }""",
        canvas,
    )
    return found


@tiers.long
def test_a_two_rank_page_shows_the_error_first_and_marks_it_apart(show: Any) -> None:
    shown = show("shared")
    page = shown.page
    assert page.inner_text("h1") == "1 error, 1 advice"
    assert page.locator(".finding .code").all_inner_texts() == ["ZG101", "ZG403"]
    assert "50 steps on 2 ranks" in page.inner_text(".lead")
    assert "seen 50 times" in page.locator(".finding").nth(1).inner_text()
    assert shown.view()["chosen"] == 26, "the error is what one looks at first"
    page.focus("#timeline")
    page.keyboard.press("n")
    assert shown.view()["chosen"] == 26, "advice is passed over where there is an error"
    reds, hints = (
        page.evaluate(
            """(name) => {
              const c = document.getElementById("lanes"), k = c.width / c.clientWidth;
              const hex = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
              const rgb = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
              const d = c.getContext("2d").getImageData(0, Math.round(16 * k), c.width, Math.round(11 * k)).data, at = new Set();
              for (let i = 0; i < d.length; i += 4) if (rgb.every((v, j) => d[i + j] === v)) at.add(Math.floor(((i / 4) % c.width) / k));
              return [...at];
            }""",
            name,
        )
        for name in ("--bad", "--hint")
    )
    assert reds
    assert max(reds) - min(reds) < 15, "one error, one mark"
    assert max(hints) - min(hints) > 500, "advice is marked at every step"


@tiers.long
def test_shares_are_explained_and_read_out(show: Any) -> None:
    shown = show("pair")
    page = shown.page
    assert "height of a colour is its share" in page.inner_text("#reading")
    assert "opt_d, steps" in page.inner_text("#reading"), "the chosen step, without a pointer"
    page.locator("#lanes").scroll_into_view_if_needed()
    box = page.locator("#lanes").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 92 + 45)
    assert "opt_g, steps" in page.inner_text("#reading")
    assert "%" in page.inner_text("#reading")


@tiers.long
def test_what_was_watched_is_folded(show: Any) -> None:
    page = show("short").page
    assert not page.locator(".rules").first.is_visible()
    page.click("summary")
    assert page.locator(".rules").first.is_visible()


@tiers.long
def test_numbers_on_a_phone_are_not_covered_by_their_bars(show: Any) -> None:
    for name in ("short", "pair"):
        page = show(name, viewport={"width": 360, "height": 740}, has_touch=True).page
        boxes = page.evaluate(
            """() => [...document.querySelectorAll(".numbers div, .windows tr")].map((line) =>
              [...line.querySelectorAll("span, b, i, th, td:not(.bar)")].filter((one) => one.textContent || one.matches("i"))
                .map((one) => { const { left, right, top, bottom } = one.getBoundingClientRect(); return { left, right, top, bottom }; }))"""
        )
        assert boxes
        for line in boxes:
            for at, one in enumerate(line):
                for other in line[at + 1 :]:
                    apart = (
                        one["right"] <= other["left"] + 0.5
                        or other["right"] <= one["left"] + 0.5
                        or one["bottom"] <= other["top"] + 0.5
                        or other["bottom"] <= one["top"] + 0.5
                    )
                    assert apart, (name, one, other)


@tiers.long
def test_names_are_shown_and_never_run(show: Any) -> None:
    page = show("nasty").page
    assert page.evaluate("() => window.hacked === undefined && document.images.length === 0")
    assert "</script><script>" in page.inner_text(".program")
    assert "</script><script>" in page.inner_text("#names")
    # A name of a file has no slash in it.
    assert "<script>window" in page.inner_text("#detail")
    assert "</script><script>" in page.inner_text(".source")
    assert page.locator("script").count() == 2


@tiers.long
def test_dark_follows_the_system_and_the_button(show: Any) -> None:
    light, dark = show("short"), show("short", color_scheme="dark")
    assert light.background() > 600
    assert dark.background() < 150
    before = dark.page.evaluate("() => document.getElementById('lanes').toDataURL()")
    dark.page.click("#theme")
    dark.view()
    assert dark.background() > 600
    assert dark.page.evaluate("() => document.getElementById('lanes').toDataURL()") != before
    light.page.click("#theme")
    assert light.background() < 150


@tiers.long
def test_a_phone_shows_all_of_it(show: Any) -> None:
    for name in ("short", "ranks", "nasty", "pair"):
        page = show(name, viewport={"width": 360, "height": 740}, has_touch=True).page
        assert page.evaluate("() => document.documentElement.scrollWidth") <= 360, name


@tiers.long
def test_over_http_it_is_the_same_page(browser: Any, pages: Pages) -> None:
    from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]

    path = pages.path("short")
    with served(path.parent) as address:
        context = browser.new_context()
        page = context.new_page()
        page.goto(f"{address}/{path.name}#step=2")
        assert "step 2" in page.inner_text("#detail h3")
        found = Axe().run(page).response["violations"]
        assert not [one for one in found if one["impact"] in ("serious", "critical")]
        context.close()


@tiers.long
def test_the_fix_can_be_copied(browser: Any, pages: Pages) -> None:
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.goto(pages.path("short").as_uri())
    page.click(".copy")
    page.wait_for_function("document.querySelector('.copy').textContent === 'Copied'")
    copied = page.evaluate("() => navigator.clipboard.readText()")
    assert copied == page.get_attribute(".copy", "data-copy")
    assert "optimizer.zero_grad()" in copied
    context.close()


@tiers.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["short", "ranks", "pair"])
def test_axe_finds_no_serious_problem(show: Any, name: str, scheme: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    for width in (1200, 360):
        page = show(name, color_scheme=scheme, viewport={"width": width, "height": 900}).page
        found = Axe().run(page).response["violations"]
        serious = [one for one in found if one["impact"] in ("serious", "critical")]
        assert not serious, json.dumps(serious, indent=1)[:3000]

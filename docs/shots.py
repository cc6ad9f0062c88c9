"""Takes pictures of what people see: the page of a run, the terminal, the lessons and the site.

python docs/shots.py             build/shots: everything at 1400 and 390 pixels, light and dark, to look at
python docs/shots.py --readme    docs/assets: the pictures of the README and of the site's first page

The programs are real runs. It needs chromium and, for the site, `make docs`.
"""

from __future__ import annotations

import contextlib
import os
import pty
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from fcntl import ioctl
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SHOTS = ROOT / "build" / "shots"
ASSETS = ROOT / "docs" / "assets"
SITE = ROOT / "build" / "site"
WIDTHS = (1400, 390)
SCHEMES = ("light", "dark")

PAIR = """\
import time

import torch
from torch import nn

torch.manual_seed(0)
G, D = nn.Linear(8, 4), nn.Linear(4, 1)
opt_g = torch.optim.Adam(G.parameters(), lr=0.002)
opt_d = torch.optim.Adam(D.parameters(), lr=0.002)
bce = nn.BCEWithLogitsLoss()
real, fake = torch.ones(16, 1), torch.zeros(16, 1)

for i in range({rounds}):
    images = G(torch.randn(16, 8))
    loss_d = bce(D(torch.randn(16, 4) + 2), real) + bce(D(images.detach()), fake)
    if {cleared}:
        opt_d.zero_grad()
    loss_d.backward()
    opt_d.step()
    loss_g = bce(D(images), real)
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
    time.sleep({sleep})
"""
LONG = """\
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.randn(64, 16, 4)

for i in range(20_000):
    if i != 13_370:
        optimizer.zero_grad()
    loss = model(x[i % 64]).square().mean() + model.weight.sum()
    loss.backward()
    optimizer.step()
"""
NOT_FINITE = """\
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for i in range(120):
    optimizer.zero_grad()
    loss = model(torch.randn(16, 4)).square().mean()
    if i >= {first}:
        loss = loss * float("{factor}")
    loss.backward()
    optimizer.step()
"""
RANKS = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for i in range(200):
    loss = model(torch.randn(16, 4)).square().mean() / 4
    loss.backward()
    if (i + 1) % 4 == 0:
        optimizer.step()
        if i != 103:
            optimizer.zero_grad()
dist.destroy_process_group()
"""
GAN = PAIR.format(rounds=300, cleared="i != 140", sleep=0)
RUNS = {
    "gan-wrong": GAN,
    "gan-right": PAIR.format(rounds=300, cleared="True", sleep=0),
    "20000-steps": LONG,
    "not-finite": NOT_FINITE.format(first=60, factor="inf"),
    "two-ranks": RANKS,
}


def make_page(name: str, script: str, folder: Path) -> Path:
    """Run a script under `zerograd run --html`."""
    (folder / "train.py").write_text(script, encoding="utf-8")
    page = folder / f"{name}.html"
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*(launcher if script is RANKS else []), "-m", "zerograd", "run", "-q"]
    done = subprocess.run(
        [sys.executable, *command, "--html", page.name, "train.py"],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        check=False,
    )
    if not page.exists():
        raise SystemExit(f"{name}: {done.stderr.decode()}")
    return page


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """A browser without a window."""
    from playwright.sync_api import sync_playwright

    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        raise SystemExit("there is no chromium here: apt-get install chromium")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


def take(browser: Any, name: str, address: str, *, search: str = "") -> None:
    """Pictures of one page at every width, light and dark."""
    for width in WIDTHS:
        for scheme in SCHEMES:
            context = browser.new_context(
                viewport={"width": width, "height": 900}, color_scheme=scheme
            )
            page = context.new_page()
            page.goto(address)
            page.wait_for_timeout(250)
            if search:
                page.keyboard.press("/")
                page.keyboard.type(search)
                page.wait_for_timeout(1500)
            path = SHOTS / f"{name}-{width}-{scheme}.png"
            page.screenshot(path=path, full_page=not search)
            print(path.relative_to(ROOT), flush=True)
            context.close()


def everything() -> None:
    """Pictures of all there is to see."""
    shutil.rmtree(SHOTS, ignore_errors=True)
    SHOTS.mkdir(parents=True)
    with chromium() as browser, tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for name, script in RUNS.items():
            take(browser, f"page-{name}", make_page(name, script, folder).as_uri())
        for lesson in ("index", "lesson-1", "lesson-4"):
            take(browser, f"lesson-{lesson}", (SITE / "lessons" / f"{lesson}.html").as_uri())
        for page in ("index", "rules/ZG101", "report", "howto/gan"):
            name = page.replace("/", "-")
            take(browser, f"site-{name}", (SITE / f"{page}.html").as_uri())
        take(browser, "site-search", (SITE / "index.html").as_uri(), search="stale")


def readme() -> None:
    """The pictures that are part of the repository."""
    ASSETS.mkdir(exist_ok=True)
    with chromium() as browser, tempfile.TemporaryDirectory() as place:
        path = make_page("page", GAN, Path(place))
        for scheme, name in zip(SCHEMES, ("report.png", "report-dark.png"), strict=True):
            context = browser.new_context(
                viewport={"width": 1000, "height": 1180}, color_scheme=scheme
            )
            page = context.new_page()
            page.goto(path.as_uri())
            page.click(".show")
            page.evaluate("() => { document.activeElement.blur(); scrollTo(0, 0); }")
            page.wait_for_timeout(300)
            lanes = page.locator("#reading").bounding_box()
            height = int(lanes["y"] + lanes["height"]) + 10
            page.set_viewport_size({"width": 1000, "height": height})
            page.screenshot(path=ASSETS / name)
            context.close()
        (ASSETS / "live.svg").write_text(live(Path(place)), encoding="utf-8")


COLUMNS, LINES = 100, 17


def live(folder: Path) -> str:
    """What a terminal shows in the middle of `zerograd run --live`, as SVG."""
    import pyte

    (folder / "train.py").write_text(
        PAIR.format(rounds=100_000, cleared="i != 140", sleep=0.004).replace(
            "    time.sleep",
            '    if i % 100 == 0:\n        print(f"{i:5}  loss_d {loss_d:.3f}  loss_g {loss_g:.3f}")\n    time.sleep',
        ),
        encoding="utf-8",
    )
    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        environment = {**os.environ, "TERM": "xterm-256color", "OMP_NUM_THREADS": "1"}
        words = [sys.executable, "-m", "zerograd", "run", "--live", "train.py"]
        os.execve(sys.executable, words, environment)  # noqa: S606
    ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    until = time.monotonic() + 60
    try:
        while time.monotonic() < until and not _is_ready(screen):
            stream.feed(os.read(terminal, 1 << 16))
    finally:
        os.kill(pid, 2)
        with contextlib.suppress(OSError):
            while os.read(terminal, 1 << 16):
                pass
        os.waitpid(pid, 0)
        os.close(terminal)
    if not _is_ready(screen):
        raise SystemExit("the status lines did not appear: " + "\n".join(screen.display))
    return _svg(screen)


def _is_ready(screen: Any) -> bool:
    """Whether the program has gone on for a while after its finding."""
    text = "\n".join(screen.display)
    return "ZG101" in text and "  500  loss_d" in text


PALETTE = {
    "default": "#e6edf3", "black": "#8b949e", "red": "#ff7b6b", "green": "#72d3a4", "brown": "#f0c369",
    "blue": "#6ca2f5", "brightblue": "#6ca2f5", "magenta": "#d2a8ff", "cyan": "#76d6e0", "white": "#e6edf3",
    "brightblack": "#8b949e", "brightred": "#ff7b6b", "brightyellow": "#f0c369",
}  # fmt: skip


def _svg(screen: Any) -> str:
    wide, high, pad = 8.0, 18, 16
    width, height = COLUMNS * wide + 2 * pad, LINES * high + 2 * pad
    rows = []
    for number in range(LINES):
        line = screen.buffer[number]
        column = 0
        while column < COLUMNS:
            first = line[column]
            end = column
            text = ""
            while end < COLUMNS and (line[end].fg, line[end].bold) == (first.fg, first.bold):
                text += line[end].data
                end += 1
            if text.strip():
                color = PALETTE.get(first.fg, PALETTE["default"])
                bold = ' font-weight="600"' if first.bold else ""
                rows.append(
                    f'<text x="{pad + column * wide:g}" y="{pad + number * high + 13}" fill="{color}"{bold} '
                    f'textLength="{len(text.rstrip()) * wide:g}" xml:space="preserve">{escape(text.rstrip())}</text>'
                )
            column = end
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}" role="img">'
        "<title>zerograd run --live: the output of the program above, the state of the gradients below</title>"
        f'<rect width="{width:g}" height="{height}" rx="10" fill="#14171c"/>'
        '<g font-family="ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace" font-size="13">\n'
        + "\n".join(rows)
        + "\n</g></svg>\n"
    )


if __name__ == "__main__":
    readme() if sys.argv[1:] == ["--readme"] else everything()

"""Draws the picture of the README: one weight, two batches, `.grad` after each call.

python docs/picture.py           write docs/buckets.svg, and docs/buckets-narrow.svg for phones
python docs/picture.py --check   change nothing; exit with 1 if it would differ
"""

from __future__ import annotations

import sys
from pathlib import Path
from xml.sax.saxutils import escape

from zerograd.learn.content import Moment, number
from zerograd.learn.lessons.bucket import CLEARED, FORGOTTEN, moments

PICTURES = {"buckets.svg": 6, "buckets-narrow.svg": 3}
"""Each with how many buckets stand side by side."""

COLUMN, LEFT = 132, 34
HEIGHT, BUCKET = 96, 64
"""Height and width of a bucket."""
TITLE, BELOW = 40, 192
"""Height of a title, and of a row of buckets with their words."""

STYLE = """\
text { font: 14px system-ui, sans-serif; fill: #1f2328; text-anchor: middle }
.title { font-size: 16px; font-weight: 600; text-anchor: start }
.call { font: 13px ui-monospace, monospace }
.faint { fill: #59636e; font-size: 12px }
.wrong { fill: #b3261e; font-weight: 700 }
.bucket { fill: none; stroke: #59636e; stroke-width: 2; stroke-linejoin: round }
.live { fill: #4f83e0 } .spent { fill: #a6adb9 } .mixed { fill: #d9532c }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .faint { fill: #9198a1 } .wrong { fill: #ff8a75 }
  .bucket { stroke: #9198a1 } .live { fill: #5c8ef0 } .spent { fill: #667080 } .mixed { fill: #f0693f }
}"""

NARROW = ".title { font-size: 14px }\n"


def picture(beside: int) -> str:
    """The two loops, one above the other, with so many buckets side by side."""
    wrong, used = moments(FORGOTTEN)
    right, clean = moments(CLEARED)
    full = max(used)
    tall = -(-max(len(wrong), len(right)) // beside) * BELOW + TITLE
    size = f"{2 * LEFT + beside * COLUMN} {2 * tall}"
    title = f"Without a clear the second step uses {number(used[1])} instead of {number(clean[1])}."
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>\n{STYLE}\n{'' if beside > 3 else NARROW}</style>",
            *_loop(0, title, wrong, full, clean, beside),
            *_loop(tall, "With one more line:", right, full, clean, beside),
            "</svg>\n",
        ]
    )


def _loop(
    top: int, title: str, shown: list[Moment], full: float, clean: list[float], beside: int
) -> list[str]:
    parts = [f'<text class="title" x="{LEFT - 14}" y="{top + 26}">{escape(title)}</text>']
    right = iter(clean)
    mixed = False
    for at, moment in enumerate(shown):
        mixed = moment.state == "stale" or (mixed and moment.state == "spent")
        label = "None" if moment.gradient is None else number(moment.gradient)
        if moment.call == "step()" and label != (should := number(next(right))):
            label += f", not {should}"
        row, column = divmod(at, beside)
        x, y = LEFT + column * COLUMN, top + TITLE + 26 + row * BELOW
        parts += _bucket(x, y, moment, label, full, mixed=mixed)
    return parts


def _bucket(x: int, y: int, moment: Moment, label: str, full: float, *, mixed: bool) -> list[str]:
    level = round(HEIGHT * (moment.gradient or 0) / full)
    middle, bottom = x + BUCKET // 2, y + HEIGHT
    wrong = "wrong" if mixed else ""
    fill = "mixed" if moment.state == "stale" else moment.state
    below = f"{moment.state}, weight {number(moment.weight)}"
    return [
        f'<text class="call" x="{middle}" y="{y - 12}">{escape(moment.call)}</text>',
        f'<rect class="{fill}" x="{x}" y="{bottom - level}" width="{BUCKET}" height="{level}"/>',
        f'<path class="bucket" d="M{x} {y}V{bottom}H{x + BUCKET}V{y}"/>',
        f'<text class="{wrong}" x="{middle}" y="{bottom + 20}">{escape(label)}</text>',
        f'<text class="faint" x="{middle}" y="{bottom + 38}">{below}</text>',
    ]


def main() -> int:
    """Write the pictures, or check that they are up to date."""
    old = 0
    for name, beside in PICTURES.items():
        path, made = Path(__file__).with_name(name), picture(beside)
        if sys.argv[1:] != ["--check"]:
            path.write_text(made, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != made:
            print(f"{name} is out of date: run python docs/picture.py")
            old = 1
    return old


if __name__ == "__main__":
    sys.exit(main())

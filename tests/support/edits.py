"""Random edits of training code, as somebody types them: most texts parse, and some do not."""

from __future__ import annotations

import random
from collections.abc import Sequence

SNIPPETS = (
    "optimizer.zero_grad()",
    "optimizer.step()",
    "loss.backward()",
    "self.optimizer.zero_grad()",
    "self.scaler.update()",
    "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
    "x = 1",
    "if i % 4 == 0: optimizer.zero_grad()",
    "continue",
    "import accelerate",
    "from torch.optim import SGD as Fast",
    "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
    "helper(optimizer, loss)",
    "pass  # nothing",
    '"""text"""',
)


def edited(text: str, chance: random.Random, others: Sequence[str] = SNIPPETS) -> str:
    """A text with one edit: a line is added, taken, doubled, moved or changed, or a whole function is."""
    lines = text.split("\n")
    at = chance.randrange(len(lines))
    indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
    kind = chance.randrange(10)
    if kind in (0, 1, 2):
        lines.insert(at, indent + chance.choice(others))
    elif kind == 3:
        del lines[at]
    elif kind == 4:
        lines.insert(at, lines[at])
    elif kind == 5:
        lines.insert(at, "" if chance.random() < 0.5 else "# a comment")
    elif kind == 6 and lines[at].strip():
        column = chance.randrange(len(lines[at]) + 1)
        lines[at] = lines[at][:column] + chance.choice("abx_. (") + lines[at][column:]
    elif kind == 7:
        words = [word for word in ("optimizer", "model", "loss", "step", "train") if word in text]
        if words:
            word = chance.choice(words)
            lines[at] = lines[at].replace(word, f"{word}2")
    elif kind == 8:
        return _with_functions_moved(lines, chance)
    else:
        lines[at] = lines[at].replace("backward", "forward").replace("zero_grad", "eval")
    return "\n".join(lines)


def _with_functions_moved(lines: list[str], chance: random.Random) -> str:
    """Two statements of the top level change places, or one of them is there twice."""
    starts = [at for at, line in enumerate(lines) if line[:1].isalpha() or line[:1] == "@"]
    if len(starts) < 3:
        return "\n".join(lines)
    parts = [lines[a:b] for a, b in zip(starts, [*starts[1:], len(lines)], strict=True)]
    one, other = chance.randrange(len(parts)), chance.randrange(len(parts))
    if chance.random() < 0.7:
        parts[one], parts[other] = parts[other], parts[one]
    else:
        parts.insert(other, parts[one])
    return "\n".join(line for part in [lines[: starts[0]], *parts] for line in part)

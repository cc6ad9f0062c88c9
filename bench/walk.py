"""Counts how much of zerograd's own code one `zerograd check` and one `zero_grad()` go through.

The check is the second one in this process, of an eight-line file, so that imports are not counted.
The `zero_grad()` is one that `zerograd.watch` has seen before, in a loop that does not repeat itself:
a call of a loop that does is compared in one place. PYTHONPATH decides which zerograd is measured:
only its command and its public names are used.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import runpy
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import zerograd

HOME = str(Path(zerograd.__file__).parent)
ITERATION = 3
"""The iteration whose zero_grad() is counted. The one before it is unlike the first, so no loop is followed yet."""

EIGHT_LINES = """\
import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    loss = (model(x) - y).pow(2).mean()
    loss.backward()
    optimizer.step()
"""


@dataclass(frozen=True)
class Hop:
    """One call of a function of zerograd."""

    module: str
    function: str
    depth: int
    """How many functions of zerograd are running, this one included."""
    caller: str
    """The module of the nearest of them; empty for the first."""


@dataclass
class Walk:
    """The calls, in order. A generator that resumes counts as called again.

    Up to Python 3.11, a comprehension is a function of its own.
    """

    hops: list[Hop] = field(default_factory=list)
    codes: set[CodeType] = field(default_factory=set)

    def counts(self) -> Counts:
        across = [hop for hop in self.hops if hop.caller not in ("", hop.module)]
        return Counts(
            modules=len({hop.module for hop in self.hops}),
            functions=len(self.codes),
            calls=len(self.hops),
            across=len(across),
            edges=len({(hop.caller, hop.module) for hop in across}),
            depth=max((hop.depth for hop in self.hops), default=0),
        )

    def by_module(self) -> Counter[str]:
        return Counter(hop.module for hop in self.hops)


@dataclass(frozen=True)
class Counts:
    """The walk in numbers."""

    modules: int
    functions: int
    """Distinct functions."""
    calls: int
    across: int
    """Calls from one module to another, also through functions of other libraries."""
    edges: int
    """Distinct pairs of modules in which one calls the other."""
    depth: int
    """How many calls are nested at most."""


@contextlib.contextmanager
def walking(walk: Walk) -> Iterator[None]:
    """Record every call of a function of zerograd in this thread."""

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or not _ours(code) or code.co_name == "<module>":
            return
        depth, caller, above = 1, "", frame.f_back
        while above is not None:
            if _ours(above.f_code) and above.f_code.co_name != "<module>":
                depth += 1
                caller = caller or _module(above.f_code)
            above = above.f_back
        name = getattr(code, "co_qualname", code.co_name)
        walk.hops.append(Hop(_module(code), name, depth, caller))
        walk.codes.add(code)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(before)


def _ours(code: CodeType) -> bool:
    return code.co_filename.startswith(HOME)


def _module(code: CodeType) -> str:
    path = Path(code.co_filename).relative_to(HOME).with_suffix("")
    parts = path.parts[:-1] if path.name == "__init__" else path.parts
    return ".".join(("zerograd", *parts))


# What is walked


def check(path: Path) -> Walk:
    """The second of two checks of a file."""
    words = ["check", "--no-cache", "--jobs", "1", str(path)]
    _command(words)
    walk = Walk()
    with walking(walk):
        _command(words)
    return walk


def _command(words: list[str]) -> None:
    """`python -m zerograd`, in this process."""
    given, sys.argv = sys.argv, ["zerograd", *words]
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            runpy.run_module("zerograd", run_name="__main__")
    except SystemExit as ended:
        if ended.code not in (None, 0, 1):
            raise RuntimeError(f"zerograd {' '.join(words)}: {said.getvalue()}") from None
    finally:
        sys.argv = given


def zero_grad() -> Walk:
    """One clear of a plain loop under watch."""
    import torch

    walk = Walk()

    def train(iterations: int, walked: int) -> None:
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for iteration in range(1, iterations + 1):
            loss = model(torch.ones(3, 2)).sum()
            with walking(walk) if iteration == walked else contextlib.nullcontext():
                optimizer.zero_grad()
            for _ in range(2 if iteration == ITERATION - 1 else 1):
                loss.backward(retain_graph=True)
            optimizer.step()

    with zerograd.watch(on="collect"):
        train(ITERATION, 0)  # what a process does only once is not counted
    with zerograd.watch(on="collect"):
        train(ITERATION, ITERATION)
    return walk


# The command line


def render(title: str, walk: Walk, listed: bool) -> Iterator[str]:
    counts = walk.counts()
    yield f"{title}: {counts.modules} modules, {counts.functions} functions, {counts.calls} calls"
    yield f"  {counts.across} calls from one module to another, over {counts.edges} edges"
    yield f"  {counts.depth} hops deep"
    if listed:
        yield from (f"  {calls:5} {module}" for module, calls in walk.by_module().most_common())


def tree(walk: Walk) -> Iterator[str]:
    """Every call, indented by its depth."""
    yield from (f"{'  ' * hop.depth}{hop.module} {hop.function}" for hop in walk.hops)


def main() -> int:
    """Walk, count, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", type=Path, metavar="FILE", help="check this instead")
    parser.add_argument("--only", choices=("check", "zero_grad"), help="one of the two walks")
    parser.add_argument(
        "--list", action="store_true", help="the modules, and how often each is called"
    )
    parser.add_argument("--tree", action="store_true", help="every call")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    options = parser.parse_args()
    walks: dict[str, Callable[[], Walk]] = {
        "check": lambda: _check_given(options.file),
        "zero_grad": zero_grad,
    }
    done = {name: walk() for name, walk in walks.items() if options.only in (None, name)}
    if options.json:
        made = {
            name: {**asdict(w.counts()), "by_module": w.by_module()} for name, w in done.items()
        }
        print(json.dumps({"zerograd": HOME, **made}, indent=1))
        return 0
    print(f"zerograd in {HOME}, Python {sys.version.split()[0]}")
    for name, walk in done.items():
        print(*render(name, walk, options.list), sep="\n")
        if options.tree:
            print(*tree(walk), sep="\n")
    return 0


def _check_given(path: Path | None) -> Walk:
    if path is not None:
        return check(path)
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder, "train.py")
        written.write_text(EIGHT_LINES, encoding="utf-8")
        return check(written)


if __name__ == "__main__":
    sys.exit(main())

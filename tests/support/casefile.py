"""Reads the Markdown case files: a claim, the code it is about, the expectation on the line.

A case is a `##` heading (the claim, one sentence) followed by one or more ```python blocks. A block
may begin with `# file: pkg/train.py`; without it the case is the single file `train.py`. What is
expected is a comment at the end of the line it is about:

    loss.backward()  # ZG101        a certain finding (an error or an advice)
    loss.backward()  # ZG101?       a possible finding, shown only with --pedantic
    loss.backward()  # not ZG101    the place where a naive reader would see one: nothing

Everything else is silent: the findings of a case are exactly its expectations.
A block opened with ```python run is a whole program that runs in a second on plain torch. Blocks
opened with ```python cell and ```markdown cell are, in order, the cells of `notebook.ipynb`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from support.paths import ROOT

CASES = ROOT / "tests" / "cases"
DEFAULT_FILE = "train.py"
NOTEBOOK = "notebook.ipynb"

_HEADING = re.compile(r"^## +(?P<claim>.+?)\s*$")
_FENCE = re.compile(r"^(?P<ticks>`{3,})(?P<info>.*)$")
_FILE = re.compile(r"^# file: +(?P<path>\S+)\s*$")
_EXPECT = re.compile(r"#\s*(?P<refuted>not\s+)?(?P<codes>ZG\d{3}\??(?:[,\s]+ZG\d{3}\??)*)\s*$")
_CODE = re.compile(r"(?P<code>ZG\d{3})(?P<doubt>\??)")
_INFOS = ("python", "python run", "python cell", "markdown cell")


class CaseError(ValueError):
    """A case file that does not keep to the format."""


@dataclass(frozen=True, order=True)
class Expectation:
    """One finding, as far as a case file can tell it."""

    path: str
    line: int
    code: str
    certain: bool = True
    cell: int | None = None

    def __str__(self) -> str:
        cell = "" if self.cell is None else f" cell {self.cell}"
        return f"{self.path}{cell}:{self.line} {self.code}{'' if self.certain else '?'}"


@dataclass(frozen=True)
class Block:
    """The text of one file, or of one cell of the notebook."""

    path: str
    text: str
    cell: int | None = None
    is_code: bool = True


@dataclass(frozen=True)
class Case:
    """A claim with its files, what must be found in them, and what must not."""

    topic: str
    claim: str
    line: int
    blocks: tuple[Block, ...]
    expected: frozenset[Expectation]
    refuted: frozenset[Expectation]
    runnable: bool

    @property
    def id(self) -> str:
        return f"{self.topic}:{self.claim}"

    @property
    def silent(self) -> bool:
        return not self.expected

    @property
    def files(self) -> dict[str, str]:
        """The text of each file, in the order of the case."""
        files = {block.path: block.text for block in self.blocks if block.cell is None}
        cells = [block for block in self.blocks if block.cell is not None]
        if cells:
            files[NOTEBOOK] = _notebook(cells)
        return files

    def write(self, root: Path) -> list[Path]:
        """Write the case's files below `root`; the paths in the order of the case."""
        paths = []
        for name, text in self.files.items():
            path = root / PurePosixPath(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            paths.append(path)
        return paths


def _notebook(cells: list[Block]) -> str:
    """The cells as Jupyter saves them."""
    body: list[dict[str, object]] = [
        {
            "cell_type": "code" if cell.is_code else "markdown",
            "metadata": {},
            "source": cell.text.rstrip("\n").splitlines(keepends=True),
            **({"execution_count": None, "outputs": []} if cell.is_code else {}),
        }
        for cell in cells
    ]
    metadata = {"language_info": {"name": "python"}}
    book = {"cells": body, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(book, indent=1) + "\n"


def expectations(block: Block) -> tuple[set[Expectation], set[Expectation]]:
    """What the comments of one block expect, and what they say must not be found."""
    expected: set[Expectation] = set()
    refuted: set[Expectation] = set()
    if not block.is_code:
        return expected, refuted
    for number, line in enumerate(block.text.splitlines(), start=1):
        match = _EXPECT.search(line)
        if match is None:
            continue
        target = refuted if match["refuted"] else expected
        for code in _CODE.finditer(match["codes"]):
            certain = not code["doubt"]
            target.add(Expectation(block.path, number, code["code"], certain, block.cell))
    return expected, refuted


def parse(topic: str, markdown: str) -> list[Case]:
    """The cases of one Markdown text, in order."""
    cases: list[Case] = []
    claim: str | None = None
    start = 0
    fenced: list[tuple[str, str]] = []

    def close() -> None:
        if claim is None:
            return
        if not fenced:
            raise CaseError(f"{topic}.md:{start}: a claim without code: {claim}")
        cases.append(_case(topic, claim, start, fenced))

    lines = markdown.splitlines()
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        if heading := _HEADING.match(line):
            close()
            claim, start, fenced = heading["claim"], number, []
        elif fence := _FENCE.match(line):
            opened = number
            body: list[str] = []
            while number < len(lines) and lines[number].rstrip() != fence["ticks"]:
                body.append(lines[number])
                number += 1
            if number == len(lines):
                raise CaseError(f"{topic}.md:{opened}: a block that is never closed")
            number += 1
            if claim is not None:
                fenced.append((fence["info"].strip(), "\n".join(body) + "\n"))
    close()
    return cases


def _case(topic: str, claim: str, line: int, fenced: list[tuple[str, str]]) -> Case:
    where = f"{topic}.md:{line}"
    blocks: list[Block] = []
    for info, text in fenced:
        if info not in _INFOS:
            raise CaseError(f"{where}: a block of {info or 'no language'!r}, not of python")
        if info.endswith("cell"):
            cell = 1 + sum(block.cell is not None for block in blocks)
            blocks.append(Block(NOTEBOOK, text, cell, info.startswith("python")))
            continue
        first, _, rest = text.partition("\n")
        if any(map(_FILE.match, rest.splitlines())):
            raise CaseError(f"{where}: two files in one block")
        named = _FILE.match(first)
        name = named["path"] if named else DEFAULT_FILE
        if any(block.path == name for block in blocks):
            raise CaseError(f"{where}: two blocks for {name}")
        blocks.append(Block(name, text))
    found = [expectations(block) for block in blocks]
    return Case(
        topic,
        claim,
        line,
        tuple(blocks),
        expected=frozenset().union(*(expected for expected, _ in found)),
        refuted=frozenset().union(*(refuted for _, refuted in found)),
        runnable=all(info == "python run" for info, _ in fenced),
    )


def load(path: Path) -> list[Case]:
    """The cases of one file."""
    return parse(path.stem, path.read_text(encoding="utf-8"))


def load_all(folder: Path = CASES) -> list[Case]:
    """The cases of every file in the folder, by topic."""
    return [case for path in sorted(folder.glob("*.md")) for case in load(path)]

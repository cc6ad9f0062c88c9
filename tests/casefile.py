"""Reads the Markdown case files: a claim, the code it is about, the expectation on the line.

A case is a `##` heading (the claim, one sentence) followed by one or more ```python blocks. A block
may begin with `# file: pkg/train.py`; without it the case is the single file `train.py`. What is
expected stands as a comment at the end of the line it is about:

    loss.backward()  # ZG101        a certain finding (an error or an advice)
    loss.backward()  # ZG101?       a possible finding, shown only with --pedantic
    loss.backward()  # not ZG101    the place where a naive reader would see one: nothing

Everything else is silent: the findings of a case are exactly its expectations.
A block opened with ```python run is a whole program that runs in a second on plain torch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

CASES = Path(__file__).parent / "cases"
DEFAULT_FILE = "train.py"

_HEADING = re.compile(r"^## +(?P<claim>.+?)\s*$")
_FENCE = re.compile(r"^(?P<ticks>`{3,})(?P<info>.*)$")
_FILE = re.compile(r"^# file: +(?P<path>\S+)\s*$")
_EXPECT = re.compile(r"#\s*(?P<refuted>not\s+)?(?P<codes>ZG\d{3}\??(?:[,\s]+ZG\d{3}\??)*)\s*$")
_CODE = re.compile(r"(?P<code>ZG\d{3})(?P<doubt>\??)")


class CaseError(ValueError):
    """A case file that does not keep to the format."""


@dataclass(frozen=True, order=True)
class Expectation:
    """One finding, as far as a case file can tell it."""

    path: str
    line: int
    code: str
    certain: bool = True

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.code}{'' if self.certain else '?'}"


@dataclass(frozen=True)
class Case:
    """A claim with its files, what must be found in them, and what must not."""

    topic: str
    claim: str
    line: int
    files: tuple[tuple[str, str], ...]
    expected: frozenset[Expectation]
    refuted: frozenset[Expectation]
    runnable: bool

    @property
    def id(self) -> str:
        return f"{self.topic}:{self.claim}"

    @property
    def silent(self) -> bool:
        return not self.expected

    def write(self, root: Path) -> list[Path]:
        """Write the case's files below `root`; the paths in the order of the case."""
        paths = []
        for name, text in self.files:
            path = root / PurePosixPath(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            paths.append(path)
        return paths


def expectations(path: str, text: str) -> tuple[set[Expectation], set[Expectation]]:
    """What the comments of one file expect, and what they say must not be found."""
    expected: set[Expectation] = set()
    refuted: set[Expectation] = set()
    for number, line in enumerate(text.splitlines(), start=1):
        match = _EXPECT.search(line)
        if match is None:
            continue
        target = refuted if match["refuted"] else expected
        for code in _CODE.finditer(match["codes"]):
            target.add(Expectation(path, number, code["code"], not code["doubt"]))
    return expected, refuted


def parse(topic: str, markdown: str) -> list[Case]:
    """The cases of one Markdown text, in order."""
    cases: list[Case] = []
    claim: str | None = None
    start = 0
    blocks: list[tuple[str, str]] = []

    def close() -> None:
        if claim is None:
            return
        if not blocks:
            raise CaseError(f"{topic}.md:{start}: a claim without code: {claim}")
        cases.append(_case(topic, claim, start, blocks))

    lines = markdown.splitlines()
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        if heading := _HEADING.match(line):
            close()
            claim, start, blocks = heading["claim"], number, []
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
                blocks.append((fence["info"].strip(), "\n".join(body) + "\n"))
    close()
    return cases


def _case(topic: str, claim: str, line: int, blocks: list[tuple[str, str]]) -> Case:
    where = f"{topic}.md:{line}"
    files: dict[str, str] = {}
    expected: set[Expectation] = set()
    refuted: set[Expectation] = set()
    for info, text in blocks:
        if info not in {"python", "python run"}:
            raise CaseError(f"{where}: a block of {info or 'no language'!r}, not of python")
        named = _FILE.match(text.partition("\n")[0])
        name = named["path"] if named else DEFAULT_FILE
        if name in files:
            raise CaseError(f"{where}: two blocks for {name}")
        files[name] = text
        wanted, unwanted = expectations(name, text)
        expected |= wanted
        refuted |= unwanted
    runnable = all(info == "python run" for info, _ in blocks)
    return Case(
        topic,
        claim,
        line,
        tuple(files.items()),
        frozenset(expected),
        frozenset(refuted),
        runnable,
    )


def load(path: Path) -> list[Case]:
    """The cases of one file."""
    return parse(path.stem, path.read_text(encoding="utf-8"))


def load_all(folder: Path = CASES) -> list[Case]:
    """The cases of every file in the folder, by topic."""
    return [case for path in sorted(folder.glob("*.md")) for case in load(path)]

"""A file that is parsed piece by piece has the tree and the facts of one that is parsed as a whole."""

from __future__ import annotations

import ast
import random
from typing import Any

import pytest

from support import tiers
from support.casefile import load_all
from support.edits import edited
from zerograd.core.finding import Problem
from zerograd.static.read import file_index, parsed_file
from zerograd.static.read.file_index import Facts, FileFacts
from zerograd.static.read.parsed_file import ParsedFile
from zerograd.static.read.source import Source, Unreadable, parse, parse_text

CASES = [text for case in load_all() for name, text in case.files.items() if name.endswith(".py")]
ODD = (
    "# about\n\n@wraps(f)\n@cache\ndef g():\n    return '''\n# text\n'''\n\n# end\n",
    "a = 1; b = 2\nclass A: x = 1\nclass B(A):\n    def f(self): return lambda: self.f()\n",
    "x = 1\n\fdef f():\n\n    pass\n\x0b\n# \x1c \u2028 are no line ends\ny = [\n  1,\n]",
    "if a:\n    pass\nelse:\n    import torch as t\nfrom a import *\nfor x in y: t.step()\n",
)


def shown(node: ast.AST) -> tuple[Any, ...]:
    return type(node).__name__, getattr(node, "lineno", 0), getattr(node, "name", "")


def described(facts: Facts) -> dict[str, Any]:
    """What facts say, with nodes by kind and place."""
    found: dict[str, Any] = {**vars(facts), "locals": facts.locals}
    found.pop("called", None)
    found.pop("stored", None)
    for name in ("assigns", "returns"):
        found[name] = [shown(node) for node in found[name]]
    found["grown"] = [(shown(one), type(op), shown(other)) for one, op, other in facts.grown]
    found["locals"] = {
        name: [(*one[:3], shown(one[3])) for one in values] for name, values in facts.locals.items()
    }
    return found


def plain(file: FileFacts) -> dict[str, Any]:
    return {
        "imports": file.imports,
        "stars": file.stars,
        "methods": file.methods,
        "asked": [shown(node) for node in file.asked],
        "functions": {shown(node): described(facts) for node, facts in file.functions.items()},
        "top": described(file.top),
    }


def whole(source: Source) -> tuple[ast.Module | None, Problem | None]:
    """The tree of a source, or what is wrong with it."""
    try:
        return parse(source), None
    except Unreadable as error:
        return None, error.problem


def assert_same(parsed: ParsedFile, text: str) -> bool:
    """Whether the text parses, in which case its tree and facts are the right ones."""
    source = Source("train.py", text)
    tree, problem = whole(source)
    if tree is None:
        with pytest.raises(Unreadable, match=r"\w") as raised:
            parsed.read(source)
        assert raised.value.problem == problem
        return False
    made, facts = parsed.read(source)
    assert ast.dump(made, include_attributes=True) == ast.dump(tree, include_attributes=True)
    right, found = plain(file_index.read(tree)), plain(facts)
    # In which order tests are met does not matter.
    right["asked"].sort()
    found["asked"].sort()
    assert found == right
    return True


@pytest.mark.parametrize("seed", tiers.sample(range(60), 8))
def test_after_random_edits_tree_and_facts_are_those_of_the_whole(seed: int) -> None:
    chance = random.Random(seed)
    text = "\n\n".join([*chance.sample(CASES, chance.randrange(0, 4)), chance.choice(ODD)])
    parsed = ParsedFile()
    for _ in range(12):
        was = text
        if not assert_same(parsed, text) and chance.random() < 0.5:
            text = was
        text = edited(text, chance)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = 1", "x = 10"),
        ("x = 1 \\\n", "x = 1 \\\n+ 2\n"),
        ("f()\n", "f()\nelse: pass\n"),
        ("def f():\n    pass\ng()\n", "def f():\n    pass\n\n    g()\ng()\n"),
        ("def f():\n    pass\n# a\ng()\n", "def f():\n    pass\n# a\n# b\ng()\n"),
        ("g()\n", "# b\ng()\n"),
        ("a()\ndef f(): pass\n", "a()\n@cache\ndef f(): pass\n"),
        ("a()\ndef f(): pass\nb()\n", "a()\n'''\ndef f(): pass\nb()\n"),
        ("def a(): pass\ndef b(): pass\n", "def a(): pass\n(1,\ndef b(): pass\n"),
        ("x.cuda(1)\ndef f(): pass\n", "x.cuda(async=1)\ndef f(): 'async = 1'\n"),
        ("def a(): pass\n\nb()\n", ""),
        ("", "def a(): pass"),
        ("def a(): pass\nc = 1 \\\n\ndef b(): pass\n", "def a(): pass\nc = 1 \\\ndef b(): pass\n"),
    ],
)
def test_a_change_at_the_border_of_a_statement(before: str, after: str) -> None:
    parsed = ParsedFile()
    for text in (before, after, before, after):
        assert_same(parsed, text)


def test_a_piece_that_has_not_changed_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    functions = "".join(f"def f{n}():\n    return {n}\n\n" for n in range(9))
    parsed = ParsedFile()
    parsed.read(Source("train.py", functions))
    seen: list[str] = []

    def seeing(text: str) -> ast.Module:
        seen.append(text)
        return parse_text(text)

    monkeypatch.setattr(parsed_file, "parse_text", seeing)
    assert_same(parsed, functions.replace("return 4", "x = 1\n    return 4"))
    assert [text.lstrip() for text in seen] == ["def f4():\n    x = 1\n    return 4\n\n"]


def test_a_broken_text_in_between_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = ParsedFile()
    assert assert_same(parsed, "def f():\n    pass\ng()\n")
    assert not assert_same(parsed, "def f():\n    pass\ng(\n")
    monkeypatch.setattr(parsed_file, "parse", None)
    parsed.read(Source("train.py", "def f():\n    pass\ng(1)\n"))


def test_an_interrupted_change_leaves_nothing_half_done(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a()\ndef f():\n    pass\n"
    parsed = ParsedFile()
    assert_same(parsed, text)
    original = parsed_file._move

    def interrupted(piece: Any, by: int) -> None:
        original(piece, by)
        raise KeyboardInterrupt

    monkeypatch.setattr(parsed_file, "_move", interrupted)
    with pytest.raises(KeyboardInterrupt):
        parsed.read(Source("train.py", f"b()\n{text}"))
    monkeypatch.undo()
    assert_same(parsed, text)

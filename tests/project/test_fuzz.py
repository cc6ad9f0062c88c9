"""Random input to everything that reads files: a sentence about what is wrong, never an exception of ours.

Each reader gets random bytes, valid input that was damaged, and random input of the right shape. `bench/fuzz.py` runs
the same tests for ten minutes each. Whatever has failed once is an explicit example here.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support import tiers
from support.command import FORGOTTEN_ZERO
from support.paths import ROOT
from zerograd.check import settings
from zerograd.check.check_session import CheckOptions
from zerograd.launch.replay import judged
from zerograd.server.editor_checks import Checker, Text, allowing, with_repair
from zerograd.static.check_file import result_for_bytes

OURS = "zerograd failed"

# Python

NAMES = ("opt", "self.opt", "opts[i]", "opts['g']", "model", "loss", "scaler", "x", "p", "f")
CALLS = (
    "{}.step()", "{}.zero_grad()", "{}.backward()", "{}.zero_grad(set_to_none={})", "{}.step({})", "{}.update()",
    "{}.unscale_({})", "{}.scale({}).backward()", "clip_grad_norm_({}.parameters(), 1)", "{} = {}({})", "{} += {}",
    "{}.grad = None", "{}.grad.zero_()", "del {}", "return {}", "yield {}", "continue", "break", "pass", "raise {}",
    "{} = lambda: {}", "{}, {} = {}, {}", "{} = torch.optim.SGD({}.parameters(), lr=1)", "{}.requires_grad_(False)",
    "setattr({}, 'grad', {})", "{} = [{} for {} in {}]", "print({})", "{} = {} if {} else {}", "global f", "await {}",
    "torch.autograd.backward([{}, {}])", "{} = {}.detach()", "{}.{} = {}", "exec({})", "{}: int = {}", "({} := {})",
)  # fmt: skip
BLOCKS = (
    "for i, {} in enumerate({}):", "while {}:", "if {}:", "if (i + 1) % N == 0:", "with {}:", "try:", "def f({}):",
    "class C(D):", "with torch.no_grad():", "for {} in {}.parameters():", "async def g({}):", "with {}.accumulate({}):",
    "for epoch in range(9):", "@{}", "match {}:", "else:", "elif {}:", "except E:", "finally:", "case {}:",
)  # fmt: skip


def program(seed: int, length: int) -> str:
    """Nearly valid training code: blocks, calls and names in random order."""
    source = random.Random(seed)
    lines: list[str] = ["import torch"]
    depth = 0
    for _ in range(length):
        shape = source.choice(BLOCKS if source.random() < 0.35 else CALLS)
        # The opener of a block has to be followed by a deeper line.
        line = shape.format(*(source.choice(NAMES) for _ in range(shape.count("{}"))))
        lines.append("    " * depth + line)
        if line.endswith(":"):
            depth += 1
            lines.append("    " * depth + "pass")
        elif depth and source.random() < 0.25:
            depth -= 1
    return "\n".join(lines) + "\n"


@tiers.random(1500)
@given(st.integers(0, 10**9), st.integers(1, 40))
@example(36679, 11)
def test_any_training_code_is_read(seed: int, length: int) -> None:
    text = program(seed, length)
    for data in (text, _repaired(text)):
        verdict = result_for_bytes(data.encode(), "train.py", explain=True)
        assert not [one for one in verdict.problems if OURS in one.message], data
        again = result_for_bytes(data.encode(), "train.py", explain=True)
        assert again.findings == verdict.findings


def _repaired(text: str) -> str:
    """The text without the lines that Python refuses."""
    lines = text.splitlines()
    while lines:
        try:
            compile("\n".join(lines), "train.py", "exec", dont_inherit=True)
        except SyntaxError as error:
            del lines[min(max((error.lineno or 1) - 1, 0), len(lines) - 1)]
        except ValueError:
            break
        else:
            break
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def corpus() -> list[bytes]:
    """Training code of our own."""
    return [path.read_bytes() for path in sorted((ROOT / "bench" / "right").glob("*.py"))]


@tiers.random(400)
@given(st.integers(0, 10**9))
def test_damaged_code_is_read_or_refused(corpus: list[bytes], seed: int) -> None:
    source = random.Random(seed)
    data = _damaged(source.choice(corpus), source)
    verdict = result_for_bytes(data, "train.py")
    assert not [one for one in verdict.problems if OURS in one.message]


def _damaged(data: bytes, source: random.Random) -> bytes:
    """Bytes cut out, doubled, moved, or flipped."""
    for _ in range(source.randint(1, 6)):
        a, b = sorted(source.randrange(len(data) + 1) for _ in range(2))
        kind = source.randrange(5)
        if kind == 0:
            data = data[:a] + data[min(b, a + 40) :]
        elif kind == 1:
            data = data[:a] + data[a : min(b, a + 60)] * 2 + data[a:]
        elif kind == 2:
            lines = data.split(b"\n")
            i, j = source.randrange(len(lines)), source.randrange(len(lines))
            lines[i], lines[j] = lines[j], lines[i]
            data = b"\n".join(lines)
        elif kind == 3 and data:
            flipped = bytearray(data)
            flipped[a % len(data)] ^= 1 << source.randrange(8)
            data = bytes(flipped)
        else:
            data = data[:a] + source.choice((b"\x00", b"\xff", b"\t", b"(", b'"""', b"\r", b"\\", b":\n")) + data[a:]  # fmt: skip
    return data


# Editors


@tiers.random(300)
@given(st.integers(0, 10**9))
def test_an_editor_gets_an_answer_to_every_text(
    tmp_path_factory: pytest.TempPathFactory, corpus: list[bytes], seed: int
) -> None:
    """One checker for texts that are damaged more and more, alone and as the cells of a notebook."""
    source = random.Random(seed)
    folder = tmp_path_factory.mktemp("project")
    checker = Checker(CheckOptions(()))
    data = source.choice([*corpus, FORGOTTEN_ZERO.encode()])
    for _ in range(3):
        shown = data.decode("utf-8", "replace")
        at = source.randrange(len(shown) + 1)
        cells = (shown[:at], None, shown[at:])
        for text in (
            Text(str(folder / "train.py"), shown),
            Text(str(folder / "train.ipynb"), cells=cells),
        ):
            checked = checker.check(text, str(folder))
            assert not [one for one in checked.problems if OURS in one.message], shown
            for finding in checked.findings[:2]:
                allowing(text, finding)
                assert with_repair(checked, finding).code == finding.code
        data = _damaged(data, source)
    checker.tidy()


# Notebooks

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
CELL = st.fixed_dictionaries(
    {},
    optional={
        "cell_type": st.sampled_from(["code", "markdown", "raw"]) | JSON,
        "source": st.lists(st.sampled_from(FORGOTTEN_ZERO.splitlines(keepends=True)), max_size=9)
        | st.text(max_size=40)
        | st.sampled_from(
            ["%%bash\nls", "!ls", "%time loss.backward()", "loss?", "?loss", FORGOTTEN_ZERO]
        )
        | JSON,
        "metadata": JSON,
        "outputs": JSON,
    },
)
BOOK = st.fixed_dictionaries(
    {}, optional={"cells": st.lists(CELL | JSON, max_size=5) | JSON, "nbformat": JSON, "metadata": JSON}
)  # fmt: skip


@tiers.random(600)
@given(BOOK | JSON)
@example({"cells": [{"cell_type": "code", "source": [FORGOTTEN_ZERO]}], "nbformat": 4})
def test_any_notebook_is_read_or_refused(book: object) -> None:
    verdict = result_for_bytes(json.dumps(book).encode(), "book.ipynb")
    assert not [one for one in verdict.problems if OURS in one.message]


# Settings

VALUE = st.one_of(
    st.text(max_size=12).map(json.dumps),
    st.booleans().map(lambda value: str(value).lower()),
    st.integers(-(2**70), 2**70).map(str),
    st.lists(st.sampled_from(["ZG1", "stale-gradient", "", "*", "../x", "[", "ZG999"]), max_size=3).map(json.dumps),
    st.sampled_from(["{}", '{ "a" = ["ZG1"] }', "[[]]", "nan", "1979-05-27", "'''x'''", '{ ZG101 = "off" }']),
)  # fmt: skip
KEY = st.sampled_from(
    ["select", "ignore", "exclude", "per-file-ignores", "pedantic", "include-tests", "severity", "extend", "fail-on", "x"]
)  # fmt: skip


@tiers.random(400)
@given(st.dictionaries(KEY, VALUE, max_size=5), st.binary(max_size=6))
@example({"extend": '"\\u0000"'}, b"")
def test_any_settings_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, given_: dict[str, str], tail: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "settings" / "pyproject.toml"
    path.parent.mkdir(exist_ok=True)  # settings hold for all directories below theirs
    text = "[tool.zerograd]\n" + "".join(f"{key} = {value}\n" for key, value in given_.items())
    path.write_bytes(text.encode("utf-8", "surrogatepass") + tail)
    found, problems = settings.load(str(path))
    assert found is not None or problems or not given_
    assert all(problem.message for problem in problems)


# Recordings


@pytest.fixture(scope="module")
def recordings() -> list[bytes]:
    """Recordings of earlier versions, which have every kind of line."""
    return [path.read_bytes() for path in sorted((ROOT / "tests/recording/data").glob("*.jsonl"))]


@tiers.random(400)
@given(st.integers(0, 10**9))
def test_a_damaged_recording_is_judged_up_to_the_damage(
    tmp_path_factory: pytest.TempPathFactory, recordings: list[bytes], seed: int
) -> None:
    source = random.Random(seed)
    path: Path = tmp_path_factory.getbasetemp() / "run.jsonl"
    lines = source.choice(recordings).split(b"\n")
    kind = source.randrange(4)
    at = source.randrange(len(lines))
    if kind == 0:
        lines[at] = _damaged(lines[at], source)
    elif kind == 1:
        del lines[at : at + source.randint(1, 4)]
    elif kind == 2:
        source.shuffle(lines)
    else:
        lines.insert(
            at, json.dumps(source.choice([1, [], {}, {"define": 1}, {"end": 0}, None])).encode()
        )
    path.write_bytes(b"\n".join(lines))
    report = judged(str(path), None, ()).report
    assert all(problem.message for problem in report.errors)

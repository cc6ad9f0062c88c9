"""A rule that needs no new fact is one file and one line; with a repair, one file more.

The rule is added to a copy of the package. The commands and the documentation must know it then.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from support.command import Done, zerograd
from support.copies import extended
from support.paths import ROOT
from support.warm_python import with_torch

RULE = '''"""The gradients are cleared twice in a row.

The second clear does nothing. One of the two was meant for another optimizer.

Fix: unsafe. The second clear is removed.

## Bad

```python
for x, y in loader:
    optimizer.zero_grad()
    optimizer.zero_grad()
    loss = loss_fn(model(x), y)
    loss.backward()
    optimizer.step()
```

## Good

```python
for x, y in loader:
    optimizer.zero_grad()
    loss = loss_fn(model(x), y)
    loss.backward()
    optimizer.step()
```
"""

from zerograd.core.events import Event, Zero
from zerograd.core.lifecycle import State
from zerograd.core.finding import Note
from zerograd.core.rule import Rule, Violation


def check(before: State, event: Event) -> Violation | None:
    if not isinstance(event, Zero) or before.cleared is None:
        return None
    return Violation(
        site=event.site,
        message="the gradients are already cleared",
        notes=(Note(before.cleared.site, "cleared here"),),
    )


RULE = Rule(
    code="ZG150", name="repeated-clear", doc=__doc__, check=check, reads=frozenset({"cleared"})
)
'''
FIX = '''"""ZG150: the second clear is removed."""

from collections.abc import Iterator

from zerograd.fix.context import Repair, Scene
from zerograd.fix.syntax import CLEAR_WORDS


def repairs(scene: Scene) -> Iterator[Repair]:
    edits = scene.code.delete([scene.here], CLEAR_WORDS)
    yield Repair("remove the clear", lambda: (edits,), safe=False)
'''
PROGRAM = """\
import torch

model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in [(torch.ones(1), torch.ones(1))] * 3:
    optimizer.zero_grad()
    optimizer.zero_grad()
    loss = (model(x) - y).square().mean()
    loss.backward()
    optimizer.step()
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with one rule more; the folder it is in."""
    return extended(
        tmp_path_factory.mktemp("copy"),
        {"rules/repeated_clear.py": RULE, "fix/repeated_clear.py": FIX},
        {"rules/catalogue.py": ('    "self_backward",', '    "repeated_clear",')},
    )


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder with a program that breaks the rule."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "train.py").write_text(PROGRAM)
    return folder


def ask(package: Path, work: Path, *words: str) -> Done:
    return zerograd(*words, cwd=work, PYTHONPATH=str(package))


def found(done: Done) -> list[tuple[str, str, int]]:
    findings = json.loads(done.stdout)["findings"]
    return [(one["code"], one["name"], one["line"]) for one in findings]


def test_check_finds_it(package: Path, work: Path) -> None:
    done = ask(package, work, "check", "train.py", "--format", "json")
    assert found(done) == [("ZG150", "repeated-clear", 7)]
    assert json.loads(done.stdout)["findings"][0]["fix"]["safe"] is False
    assert found(ask(package, work, "check", ".", "--format", "json", "--ignore", "ZG15")) == []
    sarif = json.loads(ask(package, work, "check", ".", "--format", "sarif").stdout)
    assert sarif["runs"][0]["results"][0]["ruleId"] == "ZG150"


def test_run_finds_it(package: Path, work: Path) -> None:
    done = ask(package, work, "run", "--format", "json", "train.py")
    assert found(done) == [("ZG150", "repeated-clear", 7)]


def test_explain_shows_it(package: Path, work: Path) -> None:
    assert "ZG150  repeated-clear" in ask(package, work, "explain").stdout
    page = ask(package, work, "explain", "repeated-clear").stdout
    assert "The gradients are cleared twice in a row." in page
    assert "the gradients are already cleared" in page


def test_a_comment_silences_it(package: Path, work: Path) -> None:
    lines = PROGRAM.splitlines()
    lines[6] += "  # zerograd: allow[repeated-clear]"
    (work / "train.py").write_text("\n".join(lines))
    assert found(ask(package, work, "check", "train.py", "--format", "json")) == []


def test_its_repair_is_made(package: Path, work: Path) -> None:
    ask(package, work, "check", "train.py", "--unsafe-fixes")
    assert (work / "train.py").read_text().count("zero_grad") == 1


def test_the_documentation_shows_it(package: Path, tmp_path: Path) -> None:
    code = (
        "import runpy, sys\n"
        "sys.path.insert(0, 'docs')\n"
        "readme, site = runpy.run_path('docs/readme.py'), runpy.run_path('docs/site.py')\n"
        "print(readme['rules'](), readme['fixes'](), site['rules'](), sep='\\n')\n"
        "print(*(site['rule'](site['explained'](page)) for page in site['PAGES']"
        " if page.code == 'ZG150'))\n"
    )
    script = tmp_path / "show.py"
    script.write_text(code, encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": str(package)}
    done = with_torch().run(script, cwd=ROOT, env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("| repeated-clear |") == 3
    assert "# ZG150 repeated-clear" in done.stdout
    assert "the gradients are already cleared" in done.stdout

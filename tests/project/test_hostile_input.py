"""Code from strangers: nothing of it is executed, nothing is written outside, nothing reaches a terminal or a page raw."""

from __future__ import annotations

import hashlib
import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from support.command import FORGOTTEN_ZERO, cold, environment, write, zerograd
from zerograd.report.formats import FORMATS

LOOP = FORGOTTEN_ZERO.partition("\n")[2]
MARK = "executed"
EFFECT = f"open({MARK!r}, 'a').write('x')\n"

EXECUTES: dict[str, dict[str, str | bytes]] = {
    "a module that is checked": {"train.py": EFFECT + "import torch\n" + LOOP},
    "a module that is imported": {
        "train.py": "import torch\nfrom helper import fit\n" + LOOP,
        "helper.py": EFFECT + "def fit(): pass\n",
    },
    "a module named like one of the standard library": {
        "train.py": "import torch\nimport json, ast\n" + LOOP,
        "json.py": EFFECT,
        "ast.py": EFFECT,
        "tomllib.py": EFFECT,
        "marshal.py": EFFECT,
        "typing.py": EFFECT,
        "argparse.py": EFFECT,
        "multiprocessing/__init__.py": EFFECT,
    },
    "a sitecustomize": {"train.py": FORGOTTEN_ZERO, "sitecustomize.py": EFFECT},
    "a package named torch": {"train.py": FORGOTTEN_ZERO, "torch/__init__.py": EFFECT},
    "a conftest and a setup.py": {
        "train.py": FORGOTTEN_ZERO,
        "conftest.py": EFFECT,
        "setup.py": EFFECT,
    },
    "a default argument and a decorator": {
        "train.py": f"import torch\ndef deco(f=({EFFECT.strip()})): return f\n@deco\ndef g(): pass\n{LOOP}"
    },
    "an annotation": {"train.py": f"import torch\nx: ({EFFECT.strip()}) = 1\n{LOOP}"},
    "a notebook with a shell line": {
        "train.ipynb": json.dumps(
            {
                "nbformat": 4,
                "nbformat_minor": 5,
                "metadata": {},
                "cells": [
                    {
                        "cell_type": "code",
                        "metadata": {},
                        "outputs": [],
                        "execution_count": None,
                        "source": f"!touch {MARK}\n%%bash\ntouch {MARK}\n",
                    },
                    {
                        "cell_type": "code",
                        "metadata": {},
                        "outputs": [],
                        "execution_count": None,
                        "source": f"!touch {MARK}\n" + FORGOTTEN_ZERO,
                    },
                ],
            }
        )
    },
    "a notebook with magics that run and write files": {
        "train.ipynb": json.dumps(
            {
                "nbformat": 4,
                "nbformat_minor": 5,
                "metadata": {"kernelspec": {"name": "../../kernel", "argv": ["touch", MARK]}},
                "cells": [
                    {"cell_type": "code", "source": f"%%writefile ../{MARK}\nx = 1\n"},
                    {"cell_type": "code", "source": f"%run ../{MARK}.py\n%load ../{MARK}.py\n"},
                    {
                        "cell_type": "code",
                        "attachments": {f"../{MARK}": {"text/plain": "x"}},
                        "source": f"%save ../{MARK} 1\n%cd ..\n" + FORGOTTEN_ZERO,
                    },
                ],
            }
        ),
        f"{MARK}.py": EFFECT,
    },
    "settings that look like code": {
        "train.py": FORGOTTEN_ZERO,
        "pyproject.toml": f'[tool.zerograd]\nexclude = ["{{}}", "$(touch {MARK})", "`touch {MARK}`"]\n',
    },
}
AT_START = ("a module named like one of the standard library", "a sitecustomize")
"""What would be executed when an interpreter starts."""


@pytest.mark.parametrize("what", EXECUTES)
def test_nothing_that_is_read_is_executed(tmp_path: Path, what: str) -> None:
    here = write(tmp_path / "project", EXECUTES[what])
    said = {"": "ZG101", "--loops": "wrong", "--diff": "optimizer.zero_grad()"}
    for flag, expected in said.items():
        words = ("check", *flag.split(), "--jobs", "2", ".")
        if what in AT_START:
            done = cold(["-m", "zerograd", *words], here, environment(tmp_path / "project.cache"))
        else:
            done = zerograd(*words, cwd=here)
        assert expected in done.stdout
        assert not list(tmp_path.rglob(MARK))
        assert not (tmp_path.parent / MARK).exists()


OUTSIDE = "../victim.py"


def tree(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and "project.cache" not in path.parts
    }


def test_a_fix_writes_only_files_that_were_checked(tmp_path: Path) -> None:
    # The loop is in the project, what it calls is outside: a link, and a package above.
    outside = "def update(optimizer, loss):\n    loss.backward()\n    optimizer.step()\n"
    write(tmp_path, {"victim.py": outside, "away/helper.py": outside})
    here = write(
        tmp_path / "project",
        {
            "train.py": "import torch\nfrom helper import update\nmodel = torch.nn.Linear(1, 1)\n"
            "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
            "for x in [torch.ones(1)] * 3:\n    update(optimizer, model(x).mean())\n"
        },
    )
    (here / "helper.py").symlink_to(tmp_path / "away" / "helper.py")
    before = tree(tmp_path / "away") | {"victim": (tmp_path / "victim.py").read_text()}
    zerograd("check", "--fix", "--unsafe-fixes", "train.py", cwd=here)
    after = tree(tmp_path / "away") | {"victim": (tmp_path / "victim.py").read_text()}
    assert after == before


@pytest.mark.parametrize("path", [OUTSIDE, "/etc/hostname", "a\0b", "a" * 5000, "..", ""])
def test_a_baseline_with_odd_paths_touches_nothing(tmp_path: Path, path: str) -> None:
    write(tmp_path, {"victim.py": FORGOTTEN_ZERO})
    known = {
        "rule": "ZG101",
        "path": path,
        "function": "",
        "lines": ["loss.backward()"],
        "count": 9,
    }
    here = write(
        tmp_path / "project",
        {
            "train.py": FORGOTTEN_ZERO,
            "known.json": json.dumps({"version": 1, "findings": [known]}),
        },
    )
    before = tree(tmp_path)
    done = zerograd("check", "--baseline", "known.json", ".", cwd=here)
    assert done.returncode == 1
    assert "ZG101" in done.stdout
    assert tree(tmp_path) == before


@pytest.mark.parametrize("name", ["pyproject.toml", ".gitignore", "helper.py", "book.ipynb"])
@pytest.mark.parametrize("kind", ["pipe", "device", "directory"])
def test_what_is_no_file_is_not_read(tmp_path: Path, name: str, kind: str) -> None:
    # A pipe never ends to be waited for, a device never ends to be read.
    here = write(tmp_path / "project", {"train.py": "from helper import *\n" + FORGOTTEN_ZERO})
    if kind == "pipe":
        os.mkfifo(here / name)
    elif kind == "device":
        (here / name).symlink_to("/dev/zero")
    else:
        (here / name).mkdir()
    done = zerograd("check", ".", cwd=here)
    assert "ZG101" in done.stdout
    assert done.returncode == (2 if name == "pyproject.toml" else 1)


def test_a_page_of_a_rule_that_settings_name_is_only_an_address(tmp_path: Path) -> None:
    settings = '[tool.zerograd]\nrule-pages = "javascript:alert(1)//\\u001b]0;x\\u0007"\n'
    here = write(tmp_path / "project", {"train.py": FORGOTTEN_ZERO, "pyproject.toml": settings})
    for name in FORMATS:
        done = zerograd("check", "--format", name, ".", cwd=here)
        assert not CONTROL.search(done.stdout + done.stderr)


@pytest.mark.parametrize("command", [["replay", "run.jsonl"], ["report", "run.jsonl", "-o", "run.html"]])  # fmt: skip
def test_a_crafted_recording_is_shown_without_control_characters_and_scripts(
    tmp_path: Path, command: list[str]
) -> None:
    here = write(tmp_path / "project", {"train.py": FORGOTTEN_ZERO})
    zerograd("run", "--record", "run.jsonl", "train.py", cwd=here)
    recorded = (here / "run.jsonl").read_text(encoding="utf-8")
    crafted = recorded.replace("train.py", json.dumps(NASTY)[1:-1]).replace("SGD", json.dumps(NASTY)[1:-1])  # fmt: skip
    (here / "run.jsonl").write_text(crafted, encoding="utf-8")
    before = tree(here)
    done = zerograd(*command, cwd=here)
    assert not CONTROL.search(done.stdout + done.stderr)
    assert {name for name in tree(here) if name not in before} <= {"run.html"}
    page = here / "run.html"
    assert page.exists() is (command[0] == "report")
    assert not page.exists() or "<script>alert(1)" not in page.read_text(encoding="utf-8")


DEEP = "[" * 100_000 + "]" * 100_000
WIDE = '{"cells": [' + ",".join(["{}"] * 50_000) + "]}"


@pytest.mark.parametrize("name", ["book.ipynb", "known.json", "run.jsonl"])
@pytest.mark.parametrize("text", [DEEP, '{"a":' * 50_000, WIDE, "9" * 100_000, '"\\ud800"'])
def test_deep_and_wide_json_is_refused_or_read_in_time(
    tmp_path: Path, name: str, text: str
) -> None:
    here = write(tmp_path / "project", {"train.py": FORGOTTEN_ZERO, name: text})
    words = {
        "book.ipynb": ["check", "book.ipynb", "train.py"],
        "known.json": ["check", "--baseline", "known.json", "train.py"],
        "run.jsonl": ["replay", "run.jsonl"],
    }
    done = zerograd(*words[name], cwd=here)
    # A notebook with empty cells is one; everything else is refused with a sentence.
    assert done.returncode == 2 or (name == "book.ipynb" and text is WIDE and done.returncode == 1)
    assert (done.stdout + done.stderr).strip()


NASTY = "\x1b]0;owned\x07\x1b[2J\x9b1m\u202e</script><script>alert(1)</script>&<!--]]>"
NASTY_NAME = "a\x1b[2J<b>'&\u202e.py"


@pytest.fixture(scope="module")
def nasty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose file names, source lines and names of modules contain escapes and markup."""
    here = tmp_path_factory.mktemp("nasty") / "project"
    text = FORGOTTEN_ZERO.replace("loss.backward()", f"loss.backward()  # {NASTY}")
    return write(here, {NASTY_NAME: text})


CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.mark.parametrize("name", FORMATS)
def test_no_format_passes_control_characters_on(nasty: Path, name: str) -> None:
    done = zerograd("check", "--format", name, ".", cwd=nasty)
    assert done.returncode == 1
    assert not CONTROL.search(done.stdout + done.stderr)
    if name == "junit":
        ET.fromstring(done.stdout)
    if name == "json":
        (finding,) = json.loads(done.stdout)["findings"]
        assert finding["path"] == NASTY_NAME


def test_a_loop_is_listed_and_explained_without_control_characters(nasty: Path) -> None:
    done = zerograd("check", "--loops", ".", cwd=nasty)
    assert not CONTROL.search(done.stdout + done.stderr)
    done = zerograd("check", "--why", f"{NASTY_NAME}:7", ".", cwd=nasty)
    assert done.returncode in (0, 1)
    assert not CONTROL.search(done.stdout + done.stderr)


def test_sarif_places_are_relative_addresses_without_tricks(nasty: Path) -> None:
    said = json.loads(zerograd("check", "--format", "sarif", ".", cwd=nasty).stdout)
    (result,) = said["runs"][0]["results"]
    address = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert re.fullmatch(r"[\w.%~'&-]+", address)


class Scripts(HTMLParser):
    """The text of every script element."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.count += tag == "script"


def test_a_page_of_a_hostile_program_has_no_script_of_its_own(tmp_path: Path, nasty: Path) -> None:
    plain = write(tmp_path / "plain", {"a.py": FORGOTTEN_ZERO})
    counts: list[int] = []
    for here, script in ((plain, "a.py"), (nasty, NASTY_NAME)):
        page = tmp_path / f"{len(counts)}.html"
        zerograd("run", "--html", page, script, cwd=here)
        seen = Scripts()
        seen.feed(page.read_text(encoding="utf-8"))
        counts.append(seen.count)
    assert counts[0] == counts[1]


def test_a_recording_holds_no_numbers_of_tensors(tmp_path: Path) -> None:
    # The source is recorded, so the numbers must not be in it.
    code = FORGOTTEN_ZERO.replace(
        "for x, y in", "with torch.no_grad():\n    model.weight.fill_(73219 / 100000)\nfor x, y in"
    ).replace("torch.ones(1), torch.ones(1)", "torch.full((1,), 135717 / 10000), torch.ones(1)")
    here = write(tmp_path / "project", {"train.py": code})
    zerograd("run", "--record", "run.jsonl", "train.py", cwd=here)
    recorded = (here / "run.jsonl").read_text(encoding="utf-8")
    assert '"kind": "step"' in recorded
    assert "0.7321" not in recorded
    assert "13.571" not in recorded

"""Strange projects: a check of them ends, says what it did not follow, and always says the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support import tiers
from support.command import write, zerograd

STEP = """\
import torch


class Engine:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train_step(self, batch):
        self.model(batch).mean().backward()
        self.optimizer.step()
"""
DRIVE = """\
from {module} import Engine


def main(model, loader):
    engine = Engine(model)
    for batch in loader:
        engine.train_step(batch)
"""


def printed(folder: Path, *words: str, **env: str) -> dict[str, Any]:
    """What a check says of a folder: its findings and its loops."""
    done = zerograd(
        "check", ".", "--loops", "--no-cache", "--format", "json", *words, cwd=folder, **env
    )
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def found(report: dict[str, Any]) -> list[tuple[str, str, int]]:
    return [(one["code"], one["path"], one["line"]) for one in report["findings"]]


def test_modules_that_import_each_other_are_read_once(tmp_path: Path) -> None:
    files = {
        "engine.py": "import main\n" + STEP,
        "main.py": "import other\n" + DRIVE.format(module="engine"),
        "other.py": "from main import main\nfrom other import *\n",
    }
    write(tmp_path, files)
    assert found(printed(tmp_path)) == [("ZG101", "engine.py", 11)]


def test_a_module_of_the_project_comes_before_one_of_the_standard_library(tmp_path: Path) -> None:
    write(tmp_path, {"queue.py": STEP, "main.py": DRIVE.format(module="queue")})
    assert found(printed(tmp_path)) == [("ZG101", "queue.py", 10)]


def test_of_two_packages_with_one_name_the_nearer_one_is_read(tmp_path: Path) -> None:
    right = STEP.replace(
        "        self.model(batch)", "        self.optimizer.zero_grad()\n        self.model(batch)"
    )
    files = {
        "a/kit/__init__.py": "",
        "a/kit/engine.py": STEP,
        "a/main.py": DRIVE.format(module="kit.engine"),
        "b/kit/__init__.py": "",
        "b/kit/engine.py": right,
        "b/main.py": DRIVE.format(module="kit.engine"),
    }
    write(tmp_path, files)
    report = printed(tmp_path)
    assert found(report) == [("ZG101", "a/kit/engine.py", 10)]
    drivers = {one["path"]: one["verdict"] for one in report["loops"]}
    assert drivers == {"a/main.py": "wrong", "b/main.py": "right"}


def test_a_tree_that_is_linked_twice_is_reported_once(tmp_path: Path) -> None:
    write(tmp_path, {"lab/engine.py": STEP, "lab/main.py": DRIVE.format(module="engine")})
    (tmp_path / "again").symlink_to(tmp_path / "lab", target_is_directory=True)
    (tmp_path / "lab" / "up").symlink_to(tmp_path, target_is_directory=True)
    assert found(printed(tmp_path)) == [("ZG101", "lab/engine.py", 10)]


def test_a_loop_is_read_through_a_linked_file(tmp_path: Path) -> None:
    right = "        self.optimizer.zero_grad()\n        self.model(batch)"
    files = {
        "a/engine.py": STEP.replace("        self.model(batch)", right),
        "b/main.py": DRIVE.format(module="engine"),
    }
    write(tmp_path, files)
    (tmp_path / "b" / "engine.py").symlink_to("../a/engine.py")
    loops = {one["path"]: one["verdict"] for one in printed(tmp_path)["loops"]}
    assert loops["b/main.py"] == "right"


def test_a_step_is_found_under_fifty_classes(tmp_path: Path) -> None:
    classes = [STEP.replace("Engine", "C0")]
    classes += [f"class C{at}(C{at - 1}):\n    pass\n" for at in range(1, 51)]
    drive = DRIVE.split("\n\n\n")[1].replace("Engine", "C50")
    write(tmp_path, {"train.py": "\n\n".join([*classes, drive])})
    assert found(printed(tmp_path)) == [("ZG101", "train.py", 10)]


def test_a_function_that_calls_itself_ends_and_is_not_called_right_for_it(tmp_path: Path) -> None:
    source = (
        "import torch\n\n\n"
        "def train(model, optimizer, batches):\n"
        "    for batch in batches:\n"
        "        model(batch).mean().backward()\n"
        "        optimizer.step()\n"
        "        train(model, optimizer, batch.parts)\n"
    )
    write(tmp_path, {"train.py": source})
    (loop,) = printed(tmp_path)["loops"]
    assert loop["verdict"] == "wrong" or loop["reason_code"] == "unfollowed-call"


GENERATED = 4_000


def test_generated_code_is_bounded_and_what_is_cut_short_is_said(tmp_path: Path) -> None:
    lines = ["import torch", "for x in loader:"]
    for at in range(GENERATED):
        lines += [
            f"    if flag{at}: optimizer.zero_grad()",
            f"    if want{at}: model(x).mean().backward()",
        ]
    lines.append("    optimizer.step()")
    write(tmp_path, {"train.py": "\n".join(lines) + "\n"})
    report = printed(tmp_path)
    assert all(one["verdict"] != "right" for one in report["loops"])
    assert report["loops"] or report["errors"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Several drivers of several engines, some right and some wrong."""
    files = {}
    for at in range(12):
        clears = "        self.optimizer.zero_grad()\n" if at % 3 else ""
        step = STEP.replace("        self.model(batch)", clears + "        self.model(batch)")
        files[f"engine{at}.py"] = step
        files[f"main{at}.py"] = DRIVE.format(module=f"engine{at}")
    write(tmp_path, files)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "env"),
    [
        ((), {"PYTHONHASHSEED": "1"}),
        ((), {"PYTHONHASHSEED": "4711"}),
        (("--jobs", "1"), {}),
        (("--jobs", "3"), {}),
    ],
    ids=["seed 1", "seed 4711", "one job", "three jobs"],
)
def test_seed_and_number_of_processes_change_nothing(
    project: Path, words: tuple[str, ...], env: dict[str, str]
) -> None:
    usual = printed(project, PYTHONHASHSEED="0")
    assert len(usual["findings"]) == 4
    assert printed(project, *words, **env) == usual


def test_the_order_of_the_files_changes_only_the_order_of_the_findings(project: Path) -> None:
    names = sorted(path.name for path in project.iterdir())
    words = ("check", "--loops", "--no-cache", "--format", "json")
    forward = json.loads(zerograd(*words, *names, cwd=project).stdout)
    backward = json.loads(zerograd(*words, *reversed(names), cwd=project).stdout)
    assert sorted(found(forward)) == sorted(found(backward))
    for report in (forward, backward):
        for loop in report["loops"]:
            loop["findings"] = [report["findings"][at]["path"] for at in loop["findings"]]
    assert forward["loops"] == backward["loops"]
    assert len(forward["loops"]) == 12


@tiers.long
def test_ten_thousand_files_are_checked_and_the_loop_among_them_is_found(tmp_path: Path) -> None:
    for at in range(100):
        package = tmp_path / f"p{at}"
        package.mkdir()
        for number in range(100):
            text = f"from p{(at + 1) % 100} import m{number}\n\n\ndef helper{number}(x):\n    return x\n"
            (package / f"m{number}.py").write_text(text)
    write(tmp_path, {"p7/engine.py": STEP, "p8/main.py": DRIVE.format(module="p7.engine")})
    report = printed(tmp_path)
    assert report["files"] == 10_002
    assert found(report) == [("ZG101", "p7/engine.py", 10)]

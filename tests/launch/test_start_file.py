"""`zerograd enable` and `disable`: the variable ZEROGRAD watches whatever runs in an environment."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from support import tiers
from support.command import FORGOTTEN_ZERO, RIGHT, write
from support.paths import ROOT
from zerograd.launch.start_file import NAME

Done = subprocess.CompletedProcess[str]

RANKS = """\
import torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    model(torch.ones(1, 1)).sum().backward()
    optimizer.step()
dist.destroy_process_group()
"""
SPAWNED = f"""\
import multiprocessing
def work():
{"".join(f"    {line}" for line in FORGOTTEN_ZERO.splitlines(keepends=True))}
if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=work)
    child.start()
    child.join()
"""


class Environment:
    """A virtual environment with what this one has, so that the file is not written here."""

    def __init__(self, home: Path) -> None:
        venv.create(home, symlinks=True, with_pip=False)
        self.python = str(home / "bin" / "python")
        self.packages = Path(sysconfig.get_path("purelib", vars={"base": str(home)}))
        here = f"{ROOT / 'src'}\n{sysconfig.get_path('purelib')}\n"
        (self.packages / "here.pth").write_text(here, encoding="utf-8")

    @property
    def start_file(self) -> Path:
        return self.packages / NAME

    def run(self, *words: str, cwd: Path, **variables: str) -> Done:
        kept = {name: value for name, value in os.environ.items() if name != "ZEROGRAD"}
        return subprocess.run(
            [self.python, *words],
            cwd=cwd,
            env={**kept, **variables},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("environment"))


@pytest.fixture
def enabled(environment: Environment, tmp_path: Path) -> Environment:
    done = environment.run("-m", "zerograd", "enable", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{environment.start_file} is written")
    return environment


def test_disable_takes_back_what_enable_has_written(enabled: Environment, tmp_path: Path) -> None:
    assert enabled.start_file.exists()
    done = enabled.run("-m", "zerograd", "disable", cwd=tmp_path)
    assert done.stdout == f"{enabled.start_file} is removed.\n"
    assert not enabled.start_file.exists()
    again = enabled.run("-m", "zerograd", "disable", cwd=tmp_path)
    assert (again.returncode, again.stdout[:22]) == (0, "nothing to undo: there")


@pytest.mark.parametrize("variables", [{}, {"ZEROGRAD": ""}, {"ZEROGRAD": "off"}])
def test_without_the_variable_nothing_is_watched(
    enabled: Environment, tmp_path: Path, variables: dict[str, str]
) -> None:
    ask = "import sys; print(any(getattr(one, 'zerograd', False) for one in sys.meta_path))"
    done = enabled.run("-c", ask, cwd=tmp_path, **variables)
    assert (done.stdout, done.stderr) == ("False\n", "")
    if not variables:
        loaded = enabled.run("-c", "import sys; print('zerograd' in sys.modules)", cwd=tmp_path)
        assert loaded.stdout == "False\n"


def test_a_wrong_value_is_said_and_the_program_runs(enabled: Environment, tmp_path: Path) -> None:
    done = enabled.run("-c", "print(1)", cwd=tmp_path, ZEROGRAD="loud")
    assert (done.returncode, done.stdout) == (0, "1\n")
    assert done.stderr == (
        "zerograd: ZEROGRAD=loud is not one of warn, raise, collect, off; nothing is watched\n"
    )


def test_a_start_survives_that_zerograd_is_gone(environment: Environment, tmp_path: Path) -> None:
    line = environment.run(
        "-c", "from zerograd.launch.start_file import LINE; print(LINE)", cwd=tmp_path
    )
    broken = line.stdout.replace("zerograd.launch", "removed.launch")
    done = environment.run("-c", f"exec({broken!r})\nprint(1)", cwd=tmp_path, ZEROGRAD="warn")
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


def of_user(*words: str, cwd: Path, **variables: str) -> Done:
    """Run the Python that this environment was made from, whose user has a directory below `cwd`."""
    base: str = getattr(sys, "_base_executable", sys.executable)
    paths = os.pathsep.join([str(ROOT / "src"), sysconfig.get_path("purelib")])
    kept = {name: value for name, value in os.environ.items() if name != "ZEROGRAD"}
    variables |= {"PYTHONUSERBASE": str(cwd / "user"), "PYTHONPATH": paths}
    return subprocess.run(
        [base, *words],
        cwd=cwd,
        env={**kept, **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_user_enables_without_touching_the_environment(tmp_path: Path) -> None:
    done = of_user("-m", "zerograd", "enable", "--user", cwd=tmp_path)
    if "no directory of the user" in done.stderr:
        pytest.skip("this Python was built without a directory of the user")
    (written,) = tmp_path.rglob(NAME)
    assert written.is_relative_to(tmp_path / "user")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{written} is written")
    asked = "import sys; print('zerograd' in sys.modules)"
    assert of_user("-c", asked, cwd=tmp_path).stdout == "False\n"
    assert of_user("-c", asked, cwd=tmp_path, ZEROGRAD="collect").stdout == "True\n"
    assert of_user("-m", "zerograd", "disable", cwd=tmp_path).returncode == 0
    assert not written.exists()


def test_an_environment_has_no_directory_of_a_user(
    environment: Environment, tmp_path: Path
) -> None:
    done = environment.run("-m", "zerograd", "enable", "--user", cwd=tmp_path)
    assert done.returncode == 2
    assert "leave --user out" in done.stderr


def test_a_file_that_cannot_be_written_is_said(environment: Environment, tmp_path: Path) -> None:
    environment.start_file.unlink(missing_ok=True)
    environment.start_file.mkdir()
    try:
        done = environment.run("-m", "zerograd", "enable", cwd=tmp_path)
    finally:
        environment.start_file.rmdir()
    assert done.returncode == 2
    assert f"{environment.start_file} cannot be written" in done.stderr
    assert "use a virtual environment" in done.stderr
    assert not list(environment.packages.glob("*.tmp"))


def test_a_program_is_watched_and_keeps_its_exit_code(enabled: Environment, tmp_path: Path) -> None:
    write(tmp_path, {"train.py": FORGOTTEN_ZERO})
    done = enabled.run("train.py", cwd=tmp_path, ZEROGRAD="warn")
    assert done.returncode == 0
    assert done.stderr.startswith("train.py:7:5  ZG101 stale-gradient")
    assert done.stderr.endswith("watched 3 steps: 1 error\n")


@tiers.long
@pytest.mark.parametrize(
    ("mode", "program", "code", "times"),
    [("collect", FORGOTTEN_ZERO, 0, 2), ("raise", FORGOTTEN_ZERO, 1, 2), ("warn", RIGHT, 0, 0)],
)
def test_the_variable_decides_what_a_finding_does(
    enabled: Environment, tmp_path: Path, mode: str, program: str, code: int, times: int
) -> None:
    write(tmp_path, {"train.py": program})
    done = enabled.run("train.py", cwd=tmp_path, ZEROGRAD=mode)
    assert done.returncode == code
    assert done.stderr.count("train.py:7:5  ZG101") == times
    assert done.stderr.count("   help  clear the gradients") == bool(times), (
        "at once, or at the end"
    )
    assert ("GradientError" in done.stderr) is (mode == "raise")
    assert "step_and_clear" not in done.stderr, "the traceback is the user's"
    if not times:
        assert done.stderr == ""


@tiers.long
def test_ranks_of_torchrun_and_spawned_children_are_watched(
    enabled: Environment, tmp_path: Path
) -> None:
    write(tmp_path, {"ranks.py": RANKS, "spawned.py": SPAWNED})
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "ranks.py")
    done = enabled.run(*launcher, cwd=tmp_path, ZEROGRAD="warn")
    assert done.returncode == 0, done.stderr
    assert "watched 3 steps on 2 ranks: 1 error" in done.stderr
    done = enabled.run("spawned.py", cwd=tmp_path, ZEROGRAD="collect")
    assert "watched 3 steps: 1 error" in done.stderr

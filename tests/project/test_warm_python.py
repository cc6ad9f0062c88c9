"""The warm Python of the tests: a program in it cannot tell that it has not been started by `python`."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from support.command import cold, environment, write
from support.warm_python import WarmPython, with_commands, with_torch

LOOK = """\
import os, signal, sys
print(sys.argv, sys.path, os.getcwd(), os.environ["MINE"], __name__, __file__, sys.stdin.read())
print(sys.stdout.encoding, sys.stdout.errors, sys.stderr.errors, sys.stdout.line_buffering)
print(sorted(name for name in sys.modules if name.partition(".")[0] == "torch"))
print([signal.getsignal(one) for one in (signal.SIGINT, signal.SIGCHLD, signal.SIGTERM)][1:])
print("on standard error", file=sys.stderr)
"""
ENDINGS = {
    "0": "",
    "7": "import sys; sys.exit(7)",
    "a message": "import sys; sys.exit('cannot go on')",
    "an exit handler": "import atexit; atexit.register(print, 'at the end')",
    "a thread": "import threading, time; threading.Thread(target=lambda: print('late')).start()",
    "a signal": "import os; os.kill(os.getpid(), 15)",
    "an interrupt": "import signal; signal.signal(2, signal.default_int_handler); signal.raise_signal(2)",
    "at once": "import os; print('lost'); os._exit(3)",
}


@pytest.mark.parametrize("python", [with_torch, with_commands], ids=["torch", "commands"])
@pytest.mark.parametrize("words", [["look.py", "--a"], ["-m", "look", "b"]], ids=["script", "-m"])
def test_a_program_sees_what_it_sees_under_python(
    tmp_path: Path, python: Callable[[], WarmPython], words: list[str]
) -> None:
    write(tmp_path, {"look.py": LOOK, "more/x.py": ""})
    env = {**environment(tmp_path), "MINE": "1", "PYTHONPATH": str(tmp_path / "more")}
    warm = python().run(*words, cwd=tmp_path, env=env, stdin=b"typed")
    plain = cold(words, tmp_path, env, b"typed")
    assert (warm.returncode, warm.stdout, warm.stderr) == (0, plain.stdout, plain.stderr)


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("name", ENDINGS)
def test_a_program_ends_as_under_python(tmp_path: Path, name: str, unbuffered: str) -> None:
    write(tmp_path, {"end.py": f"print('begun', flush=True)\n{ENDINGS[name]}\n"})
    env = environment(tmp_path, PYTHONUNBUFFERED=unbuffered)
    warm = with_torch().run("end.py", cwd=tmp_path, env=env)
    plain = cold(["end.py"], tmp_path, env)
    assert (warm.returncode, warm.stdout) == (plain.returncode, plain.stdout)
    assert warm.stderr.splitlines()[-1:] == plain.stderr.splitlines()[-1:]


def test_torch_is_imported_once_and_is_the_real_one(tmp_path: Path) -> None:
    text = (
        "import sys\nfrom torch import nn\nimport torch, torch.optim\n"
        "assert torch.__spec__.name == torch.__name__ and torch.__spec__.loader is torch.__loader__\n"
        "assert sys.modules['torch.nn'] is nn is torch.nn\n"
        "model = nn.Linear(1, 1)\nmodel(torch.ones(1)).backward()\n"
        "torch.optim.SGD(model.parameters(), 0.1).step()\nprint(model.weight.grad.item())\n"
    )
    write(tmp_path, {"train.py": text})
    done = with_torch().run("train.py", cwd=tmp_path, env=environment(tmp_path))
    assert (done.stdout, done.stderr) == ("1.0\n", "")


def test_a_program_that_hangs_is_killed(tmp_path: Path) -> None:
    write(tmp_path, {"wait.py": "import time\ntime.sleep(600)\n"})
    with Path(os.devnull).open("r+b") as nowhere:
        streams = (nowhere.fileno(),) * 3
        one = with_commands().start(
            ["wait.py"], cwd=tmp_path, env=environment(tmp_path), streams=streams
        )
        with pytest.raises(TimeoutError):
            one.wait(0.1)
        assert one.wait() == -signal.SIGKILL

"""`zerograd run`: a script runs as under python, and its findings are reported."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from support import tiers
from support.command import FORGOTTEN_ZERO, RIGHT, environment, write, zerograd
from support.warm_python import with_torch

CHAINED = """\
def inner():
    raise KeyError("a")

def outer():
    try:
        inner()
    except KeyError as error:
        raise ValueError("b") from error

try:
    outer()
except ValueError:
    1 / 0
"""

LEAVING = """\
import atexit, sys, threading, time

def late():
    time.sleep(0.2)
    print("thread done", flush=True)

threading.Thread(target=late).start()
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
atexit.register(print, "first registered")
atexit.register(print, "second registered")
print("main done", flush=True)
"""

PICKLED = """\
import dataclasses, pickle

@dataclasses.dataclass
class Thing:
    number: int

assert pickle.loads(pickle.dumps(Thing(1))) == Thing(1)
import __main__
assert __main__.Thing is Thing
print(Thing.__module__, Thing.__annotations__)
"""

SPAWNING = """\
import multiprocessing

def square(number):
    return number * number

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(square, [1, 2, 3]))
"""

LOOKING = """\
import sys
kept = ("__name__", "__doc__", "__package__", "__spec__", "__file__", "__cached__", "__annotations__")
print({name: globals().get(name, "none") for name in kept}, type(__loader__).__name__)
print(__builtins__, sys.argv, sys.path, sys.modules["__main__"].__dict__ is globals())
print(sys.stdout.errors, sys.stderr.errors, sorted(name for name in dir() if name[0] != "_"))
"""

ENDINGS: dict[str, str | bytes] = {
    "looking": LOOKING,
    "nothing": "",
    "zero": "import sys; sys.exit(0)",
    "seven": "import sys; sys.exit(7)",
    "negative": "import sys; sys.exit(-1)",
    "large": "import sys; sys.exit(256 + 3)",
    "true": "import sys; sys.exit(True)",
    "message": "import sys; sys.exit('cannot go on')",
    "none": "import sys; sys.exit(None)",
    "raise": "def f():\n    raise ValueError('no')\nf()\n",
    "chained": CHAINED,
    "group": "raise ExceptionGroup('g', [ValueError(1), TypeError(2)])\n",
    "cause of itself": "e = ValueError(1)\ne.__context__ = e\nraise e\n",
    "syntax": "def f(:\n    pass\n",
    "indentation": "if 1:\npass\n",
    "latin": b"# -*- coding: latin-1 -*-\nprint(ascii('\xe9'))\n",
    "bom": b"\xef\xbb\xbfprint(1)\n",
    "interrupt": "raise KeyboardInterrupt",
    "interrupted": "import os, signal\nsignal.signal(2, signal.default_int_handler)\nos.kill(os.getpid(), signal.SIGINT)\n",
    "terminated": "import os, signal\nprint(1, flush=True)\nos.kill(os.getpid(), signal.SIGTERM)\n",
    "killed": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n",
    "aborted": "import os\nos.abort()\n",
    "left": "import os\nprint('lost')\nos._exit(5)\n",
    "leaving": LEAVING,
    "left by a handler": "import atexit, os\natexit.register(os._exit, 9)\n",
    "a handler raises": "import atexit\natexit.register(lambda: 1 / 0)\nprint('here')\n",
    "a thread exits": "import sys, threading\nt = threading.Thread(target=sys.exit, args=(3,))\nt.start()\n",
    "pickled": PICKLED,
    "spawning": SPAWNING,
    "own hook": "import sys\nsys.excepthook = lambda *e: print('mine', e[1], e[2].tb_lineno)\n1 / 0\n",
    "broken hook": "import sys\nsys.excepthook = lambda *e: {}[1]\n1 / 0\n",
    "exiting hook": "import sys\nsys.excepthook = lambda *e: sys.exit(4)\n1 / 0\n",
    "directory": "import os\nos.chdir('/')\nprint(os.getcwd(), __file__)\n1 / 0\n",
    "stderr closed": "import sys\nsys.stderr.close()\nprint(1)\n",
    "stderr closed, raises": "import sys\nsys.stderr.close()\n1 / 0\n",
    "stderr closed, exits": "import sys\nsys.stderr.close()\nsys.exit('lost')\n",
    "descriptor closed": "import os\nos.close(2)\nprint(1)\n",
    "stdout closed": "import sys\nsys.stdout.close()\n",
    "both closed": "import os\nos.close(1)\nos.close(2)\n",
    "all closed": "import os\nos.closerange(3, 1024)\nprint(open(__file__).fileno())\n",
    "stderr none": "import sys\nsys.stderr = None\nsys.exit('lost')\n",
    "warnings": "import warnings\nwarnings.warn('old', DeprecationWarning)\n",
    "unencodable": "print('\\udcff')\n",
    "main is gone": "import sys\ndel sys.modules['__main__']\nprint(1)\n",
    "help": "import argparse\nargparse.ArgumentParser().parse_args()\n",
    "a thread raises": "import threading\nt = threading.Thread(target=lambda: 1 / 0)\nt.start()\nt.join()\n",
    "generator": "def g():\n    try:\n        yield\n    finally:\n        print('closed')\nkept = g()\nnext(kept)\n",
    "deleted": "class A:\n    def __del__(self):\n        print('gone')\nkept = A()\n",
}


@pytest.fixture
def here(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def start(*words: str | Path, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=cwd,
        env=environment(cwd / "cache", **more),
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="backslashreplace",
        timeout=120,
        check=False,
    )


def watched(*words: str | Path, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return start("-m", "zerograd", "run", *words, cwd=cwd, **more)


def trained(*words: str | Path, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """`zerograd run` of a program that imports torch, in a warm Python."""
    env = environment(cwd / "cache", **more)
    return with_torch().run("-m", "zerograd", "run", *words, cwd=cwd, env=env)


def settled(text: str) -> str:
    """Without addresses and the like, which are never the same."""
    return re.sub(r"0x[0-9a-f]+|refcount : \d+", "0x", text).rstrip("\n")


def same(plain: subprocess.CompletedProcess[str], run: subprocess.CompletedProcess[str]) -> None:
    assert settled(run.stdout) == settled(plain.stdout)
    assert settled(run.stderr) == settled(plain.stderr)
    assert run.returncode == plain.returncode


USUAL = (
    *("looking", "nothing", "seven", "message", "raise", "chained", "syntax", "latin"),
    *("interrupted", "killed", "left", "leaving", "a handler raises", "pickled", "own hook"),
    *("directory", "stderr closed", "stdout closed", "warnings", "main is gone", "help"),
)


@pytest.mark.parametrize("name", tiers.sample(ENDINGS, USUAL))
def test_a_script_does_what_it_does_under_python(here: Path, name: str) -> None:
    if name == "group" and sys.version_info < (3, 11):
        pytest.skip("exception groups came with Python 3.11")
    write(here, {"train.py": ENDINGS[name]})
    same(start("train.py", "--a", cwd=here), watched("-q", "train.py", "--a", cwd=here))


@pytest.mark.parametrize(
    "name", tiers.sample(["looking", "raise", "spawning", "pickled", "syntax"])
)
@pytest.mark.parametrize("how", ["module", "package", "directory", "zip", "below", "link"])
def test_programs_of_every_kind_do_what_they_do_under_python(
    here: Path, name: str, how: str
) -> None:
    text = ENDINGS[name]
    assert isinstance(text, str)
    files = {
        "beside.py": "",
        "inner/train.py": text,
        "pack/__init__.py": "",
        "pack/__main__.py": text,
    }
    write(here, {"train.py": text, **files})
    with zipfile.ZipFile(here / "train.zip", "w") as archive:
        archive.writestr("__main__.py", text)
    (here / "link.py").symlink_to(here / "inner" / "train.py")
    words = {
        "module": ["-m", "train", "-m", "--help"],
        "package": ["-m", "pack", "--", "-x"],
        "directory": ["pack", "--quiet"],
        "zip": ["train.zip", "--format", "no such"],
        "below": ["inner/train.py"],
        "link": ["./link.py", "-"],
    }[how]
    if name == "spawning" and how in ("package", "directory", "zip"):
        pytest.skip("python itself cannot do that")
    same(start(*words, cwd=here), watched("-q", *words, cwd=here))


@pytest.mark.parametrize("source", [b"print('\xe9')\n", b"print(1)\n\0"])
def test_what_python_cannot_read_is_a_syntax_error(here: Path, source: bytes) -> None:
    write(here, {"train.py": source})
    done = watched("-q", "train.py", cwd=here)
    assert done.returncode == start("train.py", cwd=here).returncode
    assert re.search(r"^(SyntaxError|ValueError): ", done.stderr, re.MULTILINE)
    assert "Traceback" not in done.stderr


def test_arguments_after_the_script_are_its_own(here: Path) -> None:
    write(here, {"show.py": "import sys; print(sys.argv)"})
    for words in (["--help"], ["--on", "raise"], ["--"], ["-m", "x"], ["run"]):
        done = watched("-q", "--format=text", "--select", "ZG1", "show.py", *words, cwd=here)
        assert (done.stdout, done.returncode) == (f"{['show.py', *words]}\n", 0)
    done = watched("-q", "-mshow", "a", cwd=here)
    assert done.stdout == f"{[str(here / 'show.py'), 'a']}\n"
    done = watched("-q", "--", "show.py", "a", cwd=here)
    assert done.stdout == f"{['show.py', 'a']}\n"


def test_warnings_are_those_that_python_was_asked_for(here: Path) -> None:
    write(here, {"warn.py": "import warnings\nwarnings.warn('old')\n"})
    plain = start("-W", "error", "warn.py", cwd=here)
    same(plain, start("-W", "error", "-m", "zerograd", "run", "-q", "warn.py", cwd=here))
    same(plain, watched("-q", "warn.py", cwd=here, PYTHONWARNINGS="error"))


def test_safe_path_is_kept(here: Path) -> None:
    write(here, {"look.py": "import sys; print(sys.path)"})
    plain = start("look.py", cwd=here, PYTHONSAFEPATH="1")
    same(plain, watched("-q", "look.py", cwd=here, PYTHONSAFEPATH="1"))


def test_a_closed_pipe_is_the_scripts_own_affair(here: Path) -> None:
    write(here, {"talk.py": "for n in range(100_000): print(n)"})
    codes = []
    for words in (["talk.py"], ["-m", "zerograd", "run", "-q", "talk.py"]):
        with subprocess.Popen(
            [sys.executable, *words],
            cwd=here,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(here / "cache"),
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.readline()
            process.stdout.close()
            said = process.stderr.read().decode()
            codes.append((process.wait(timeout=60), said))
    assert codes[0] == codes[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["gone.py"], "no such file: gone.py"),
        (["-"], "standard input"),
        ([], "needs a SCRIPT"),
        (["-m"], "needs a MODULE"),
        (["-m", "no_such_module"], "no module 'no_such_module'"),
        (["empty"], "__main__"),
        (["--select", "nonsense", "right.py"], "unknown rule 'nonsense'"),
        (["--select", "", "right.py"], "--select names no rule"),
        (["--select", "unused-allow", "right.py"], "leave no rule"),
        (["--output", "no/such/file", "right.py"], "no/such/file cannot be written"),
        (["--record", "no/such/file", "right.py"], "no/such/file cannot be written"),
        (["--output", "empty", "right.py"], "empty cannot be written"),
        (["--record", "/dev/null/x", "right.py"], "cannot be written"),
        (["--on", "explode", "right.py"], "invalid choice"),
        (["--frmat", "json", "right.py"], "--frmat"),
    ],
)
def test_what_cannot_begin_is_refused(here: Path, words: list[str], said: str) -> None:
    write(here, {"right.py": "print('ran')", "empty/readme": ""})
    done = watched(*words, cwd=here)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not done.stdout


def test_a_script_without_torch_runs_and_says_so(here: Path) -> None:
    write(here, {"plain.py": "print('ran')"})
    done = watched("plain.py", cwd=here)
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert done.stderr == "zerograd: plain.py never imported torch: nothing to watch\n"


NO_TORCH = "import sys\nsys.path[:] = [p for p in sys.path if 'site-packages' not in p]\n"


def test_no_torch_at_all(here: Path) -> None:
    write(here, {"train.py": f"{NO_TORCH}import torch\n"})
    done = watched("train.py", cwd=here)
    assert done.returncode == 1
    assert "No module named 'torch'" in done.stderr
    assert "torch is not installed" in done.stderr
    assert "importlib" not in done.stderr
    assert "zerograd/" not in done.stderr
    quiet = "try:\n    import torch\nexcept ImportError:\n    print('without')\n"
    write(here, {"train.py": f"{NO_TORCH}{quiet}"})
    done = watched("--format", "json", "train.py", cwd=here)
    assert done.returncode == 2
    out = done.stdout.removeprefix("without\n")
    assert "torch is not installed" in json.loads(out)["errors"][0]["message"]


def test_an_old_torch_is_not_watched(here: Path) -> None:
    write(here, {"torch.py": "__version__ = '1.4.0'\n", "train.py": "import torch; print('ran')"})
    done = watched("train.py", cwd=here)
    assert (done.returncode, done.stdout) == (2, "ran\n")
    assert "1.4" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_torch_that_fails_to_load_fails_as_under_python(here: Path) -> None:
    write(here, {"torch/__init__.py": "def f():\n    1 / 0\nf()\n", "train.py": "import torch"})
    same(start("train.py", cwd=here), watched("-q", "train.py", cwd=here))


def test_a_forgotten_zero_is_reported_at_once_and_at_the_end(here: Path) -> None:
    write(here, {"train.py": f"{FORGOTTEN_ZERO}print('trained')\n"})
    done = watched("train.py", cwd=here)
    assert (done.returncode, done.stdout) == (1, "trained\n")
    at_once, _, summary = done.stderr.partition("zerograd watched train.py\n")
    assert at_once.count("ZG101 stale-gradient") == 1
    assert "^^^^" in at_once
    assert summary.count("ZG101 stale-gradient") == 1
    for word in (
        "SGD, 2 parameters",
        "steps",
        "windows",
        "rules",
        "seen 2 times, first at step 2",
        "1 error",
    ):
        assert word in summary


def test_a_right_script_ends_with_zero(here: Path) -> None:
    write(here, {"train.py": RIGHT})
    done = trained("train.py", cwd=here)
    assert done.returncode == 0
    assert done.stderr.startswith("zerograd watched train.py\n")
    assert done.stderr.endswith("watched 3 steps: nothing to report\n")


def test_a_quiet_run_prints_findings_and_nothing_else(here: Path) -> None:
    write(here, {"train.py": FORGOTTEN_ZERO})
    quiet = trained("-q", "--html", "page.html", "train.py", cwd=here)
    assert quiet.returncode == 1
    assert quiet.stderr.startswith("train.py:")
    assert quiet.stderr.count("ZG101") == 1
    assert "zerograd watched" not in quiet.stderr
    assert "shows the run" not in quiet.stderr


@tiers.long
def test_a_quiet_run_of_a_right_script_prints_nothing(here: Path) -> None:
    write(here, {"train.py": RIGHT})
    quiet = trained("-q", "train.py", cwd=here)
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "")


@tiers.long
@pytest.mark.parametrize(
    "first",
    [
        "from torch import nn",
        "import importlib; importlib.import_module('torch.nn')",
        "import importlib.util; importlib.util.find_spec('torch')",
        "import torch.optim as optim",
        "import threading\nt = threading.Thread(target=__import__, args=('torch',))\nt.start()\nt.join()",
    ],
)
def test_torch_is_noticed_however_it_is_imported(here: Path, first: str) -> None:
    after = "import sys; assert 'exec_module' not in vars(torch.__loader__)\n"
    write(here, {"train.py": f"{first}\n{FORGOTTEN_ZERO}{after}"})
    done = watched("--format", "json", "train.py", cwd=here)
    assert [one["code"] for one in json.loads(done.stdout)["findings"]] == ["ZG101"]
    assert done.returncode == 1


ALL_AT_ONCE = """\
import atexit, importlib, threading
thread = threading.Thread(target=importlib.import_module, args=("torch.nn",))
thread.start()
thread.join()
import torch

@atexit.register
def train():
{body}

model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(1)).sum().backward()  # its window stays open
model(torch.ones(1)).sum().backward(torch.ones(3))
"""


def test_a_run_that_is_broken_off_and_trains_in_a_handler(here: Path) -> None:
    """Each of these has a test of its own in the long tier."""
    body = "\n".join(f"    {line}" for line in FORGOTTEN_ZERO.splitlines()[1:])
    write(here, {"train.py": ALL_AT_ONCE.format(body=body)})
    done = trained("--format", "json", "train.py", cwd=here)
    assert done.returncode == 1
    found = json.loads(done.stdout)["findings"]
    assert [(one["code"], one["line"]) for one in found] == [("ZG101", 14)]
    trace = done.stderr[done.stderr.index("Traceback") : done.stderr.index("RuntimeError: ")]
    frames = re.findall(r'File "([^"]+)"', trace)
    assert frames[0] == str(here / "train.py")
    assert not [name for name in frames if "zerograd" in name]


def test_torch_is_not_imported_before_the_script_does_it(here: Path) -> None:
    write(here, {"look.py": "import sys; print('torch' in sys.modules)"})
    assert watched("-q", "look.py", cwd=here).stdout == "False\n"


@tiers.long
@pytest.mark.parametrize("name", ["text", "concise", "json", "github", "gitlab", "junit", "sarif"])
def test_the_report_in_every_format(here: Path, name: str) -> None:
    write(here, {"train.py": FORGOTTEN_ZERO})
    done = trained("--format", name, "train.py", cwd=here)
    assert done.returncode == 1
    assert "ZG101" in done.stderr
    assert ("ZG101" in done.stdout) == (name != "text")
    into = trained("--format", name, "--output", "found", "train.py", cwd=here)
    assert not into.stdout
    assert "ZG101" in (here / "found").read_text()


CHOICES = {"--ignore=stale-gradient": 0, "--select=ZG2": 0, "--exit-zero": 0, "--select=ZG101": 1}


@pytest.mark.parametrize("word", tiers.sample(CHOICES))
def test_rules_can_be_chosen(here: Path, word: str) -> None:
    write(here, {"train.py": FORGOTTEN_ZERO})
    assert trained(word, "train.py", cwd=here).returncode == CHOICES[word]


def test_raise_stops_at_the_first_error(here: Path) -> None:
    write(here, {"train.py": f"{FORGOTTEN_ZERO}print('trained')\n"})
    done = trained("--on", "raise", "train.py", cwd=here)
    assert (done.returncode, done.stdout) == (1, "")
    trace = done.stderr[done.stderr.index("Traceback") :]
    frames = re.findall(r'File "([^"]+)"', trace)
    assert frames[0] == str(here / "train.py")
    assert not [name for name in frames if "zerograd" in name]


@tiers.long
@pytest.mark.parametrize("where", ["main thread", "another thread"])
def test_tracebacks_through_watched_calls_are_pythons(here: Path, where: str) -> None:
    wrong = RIGHT.replace("loss.backward()", "loss.backward(torch.ones(3))")
    threaded = "\n".join(f"    {line}" for line in wrong.splitlines())
    body = f"import threading\ndef train():\n{threaded}\nt = threading.Thread(target=train)\nt.start()\n"
    write(here, {"train.py": wrong if where == "main thread" else body})
    same(start("train.py", cwd=here), watched("-q", "train.py", cwd=here))


@pytest.mark.parametrize(
    ("ending", "code"),
    tiers.sample(
        [
            ("sys.exit(3)", 3),
            ("os._exit(4)", 4),
            ("1 / 0", 1),
            ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
            ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
            ("signal.default_int_handler(2, None)", -signal.SIGINT),
            ("os.chdir('/')", 1),
            ("os.close(2)", 1),
            ("sys.stderr.close()", 1),
            ("os.execv('/bin/true', ['true'])", 0),
            ("sys.excepthook = None; 1 / 0", 1),
        ],
        fast=2,
    ),
)
def test_however_a_script_ends_what_was_found_is_kept(here: Path, ending: str, code: int) -> None:
    write(here, {"train.py": f"import os, signal, sys\n{FORGOTTEN_ZERO}{ending}\n"})
    words = ["--format", "json", "--output", "found.json", "--record", "events.jsonl", "train.py"]
    done = trained(*words, cwd=here)
    assert done.returncode == code
    assert "ZG101" in done.stderr
    found = json.loads((here / "found.json").read_text())["findings"]
    assert [one["code"] for one in found] == ["ZG101"]
    again = zerograd("replay", "--format", "json", "events.jsonl", cwd=here)
    assert again.returncode == 1
    assert [one["code"] for one in json.loads(again.stdout)["findings"]] == ["ZG101"]
    assert {path.name for path in here.iterdir()} <= {
        "train.py", "found.json", "events.jsonl", "cache"
    }  # fmt: skip


@pytest.mark.parametrize("first", tiers.sample(["import torch\n", ""]), ids=["after", "before"])
def test_a_forked_child_leaves_the_report_to_its_parent(here: Path, first: str) -> None:
    """It is forked after torch was imported, or before."""
    forks = f"import os\nchild = os.fork()\n{FORGOTTEN_ZERO}if child: os.waitpid(child, 0)\n"
    write(here, {"train.py": first + forks})
    words = ["--format", "json", "--record", "events.jsonl", "train.py"]
    done = trained(*words, cwd=here)
    assert [one["code"] for one in json.loads(done.stdout)["findings"]] == ["ZG101"]
    assert done.stderr.count("zerograd watched") == 1
    assert zerograd("replay", "events.jsonl", cwd=here).returncode == 1


def test_a_forked_daemon_does_not_keep_our_streams_open(here: Path) -> None:
    daemon = (
        "import os, time\nif os.fork() == 0:\n    os.close(1); os.close(2)\n    time.sleep(20)\n"
        "    os._exit(0)\n"
    )
    write(here, {"daemon.py": daemon})
    begun = os.times().elapsed
    assert watched("daemon.py", cwd=here).returncode == 0
    assert os.times().elapsed - begun < 15


@tiers.long
def test_what_atexit_handlers_do_is_watched(here: Path) -> None:
    body = "\n".join(f"    {line}" for line in FORGOTTEN_ZERO.splitlines()[1:])
    write(here, {"train.py": f"import atexit, torch\n@atexit.register\ndef train():\n{body}\n"})
    done = trained("train.py", cwd=here)
    assert done.returncode == 1
    assert "ZG101" in done.stderr


@tiers.long
def test_a_run_that_is_broken_off_is_not_blamed_for_its_open_window(here: Path) -> None:
    late = RIGHT.replace("    optimizer.step()", "    if x is not None: raise SystemExit(3)")
    write(here, {"train.py": late})
    done = trained("--format", "json", "train.py", cwd=here)
    assert (done.returncode, json.loads(done.stdout)["findings"]) == (3, [])


@tiers.long
def test_an_output_that_is_no_file_is_written_once(here: Path) -> None:
    write(here, {"train.py": FORGOTTEN_ZERO})
    done = watched("--format", "concise", "--output", "/dev/stdout", "train.py", cwd=here)
    assert done.stdout.count("ZG101") == 1
    assert Path("/dev/stdout").is_symlink()


@tiers.long
def test_an_output_may_be_thrown_away(here: Path) -> None:
    write(here, {"train.py": FORGOTTEN_ZERO})
    assert trained("--output", "/dev/null", "train.py", cwd=here).returncode == 1
    assert Path("/dev/null").is_char_device()


@tiers.long
def test_an_output_behind_a_link_stays_there(here: Path) -> None:
    write(here, {"train.py": FORGOTTEN_ZERO, "real.txt": ""})
    (here / "real.txt").chmod(0o640)
    (here / "link.txt").symlink_to("real.txt")
    trained("--output", "link.txt", "train.py", cwd=here)
    assert (here / "link.txt").is_symlink()
    assert "ZG101" in (here / "real.txt").read_text()
    assert (here / "real.txt").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(("term", "colored"), tiers.sample([("xterm", True), ("dumb", False)]))
def test_colors_are_for_terminals(here: Path, term: str, colored: bool) -> None:
    write(here, {"train.py": FORGOTTEN_ZERO})
    leader, follower = pty.openpty()
    with Path(os.devnull).open("r+b") as nowhere:
        process = with_torch().start(
            ["-m", "zerograd", "run", "train.py"],
            cwd=here,
            env=environment(here / "cache", TERM=term),
            streams=(nowhere.fileno(), nowhere.fileno(), follower),
        )
    os.close(follower)
    said = b""
    while True:
        try:
            said += (more := os.read(leader, 4096))
        except OSError:
            break
        if not more:
            break
    process.wait(timeout=60)
    os.close(leader)
    assert (b"\x1b[" in said) == colored
    assert b"ZG101" in said


def test_help_teaches_by_examples(here: Path) -> None:
    done = watched("--help", cwd=here)
    assert done.returncode == 0
    for word in ("-m MODULE", "--record run.jsonl", "exit:", "zerograd.allow"):
        assert word in done.stdout

"""The tools that are compared with zerograd: how each is installed, attached to a program, and heard.

Each tool has an environment of its own below bench/.cache/tools. It sees the torch and numpy of the environment
that runs the benchmark, so that all tools judge the same torch.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mutation import trial

HERE = Path(__file__).parent
CACHE = HERE / ".cache" / "tools"
OURS = "zerograd"
ABOUT = re.compile(r"ZG|grad|backward|clip|scaler|optimizer", re.IGNORECASE)
"""A message about gradients."""

Said = list[set[str]]
"""The messages of a tool for each program."""


class Unavailable(Exception):
    """The tool cannot be run here, and why."""


@dataclass(frozen=True)
class Tool:
    """A tool, its requirements, and its messages for programs."""

    name: str
    reads: str
    """source or runs"""
    ask: Callable[[Tool, list[Path]], Said]
    set_up: tuple[str, ...]
    """What a user does before the tool says something, after installing it."""
    packages: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    interpreter: str = sys.executable
    sample: int | None = None
    """So many programs of each family, and no mutants, because the tool takes a minute for each."""
    slow: bool = False
    """The tool takes longer than others that read source."""
    absent: str = ""
    """Why the tool is not run."""

    @property
    def ours(self) -> bool:
        """Whether the tool is zerograd."""
        return self.name.startswith(OURS)

    @property
    def home(self) -> Path:
        """The environment of the tool."""
        return CACHE / re.sub(r"\W+", "-", self.name)

    @property
    def own(self) -> str:
        """The interpreter that runs the tool."""
        return str(self.home / "bin" / "python") if self.packages else sys.executable

    def install(self) -> None:
        """Install the tool once."""
        if self.absent:
            raise Unavailable(self.absent)
        if not self.packages or (self.home / ".done").exists():
            return
        interpreter = shutil.which(self.interpreter)
        if interpreter is None or subprocess.run([interpreter, "-c", ""], capture_output=True, check=False).returncode:  # fmt: skip
            raise Unavailable(f"it needs {self.interpreter}")
        shutil.rmtree(self.home, ignore_errors=True)
        try:
            subprocess.run([interpreter, "-m", "venv", str(self.home)], check=True)
            pip = [self.own, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
            subprocess.run(
                [*pip, "--no-deps", *self.packages], check=True, stderr=subprocess.DEVNULL
            )
        except (OSError, subprocess.CalledProcessError) as error:
            raise Unavailable("it cannot be installed here") from error
        if self.interpreter == sys.executable:
            (site,) = (self.home / "lib").glob("python*/site-packages")
            shared = sysconfig.get_paths()["purelib"]
            # As a folder of packages: the .pth files in it count, too.
            line = f"import site; site.addsitedir({shared!r})\n"
            (site / "shared.pth").write_text(line, encoding="utf-8")
        (self.home / ".done").touch()

    def python(self, *words: str | Path, folder: Path | None = None) -> str:
        """Run the tool's Python; what it prints."""
        done = subprocess.run(
            [self.own, *map(str, words)],
            cwd=folder or tempfile.gettempdir(),  # some tools write into the working directory
            env={**os.environ, "NO_COLOR": "1", "COLUMNS": "500", "PATH": f"{self.home / 'bin'}:{os.environ['PATH']}"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )  # fmt: skip
        return done.stdout + done.stderr


# Tools that read source


def by_zerograd(tool: Tool, paths: list[Path]) -> Said:
    """The codes of zerograd's findings."""
    said = json.loads(tool.python("-m", "zerograd", *tool.words, "--format", "json", *paths))
    return _by_stem(paths, ((one["path"], one["code"]) for one in said["findings"]))


def by_line(tool: Tool, paths: list[Path]) -> Said:
    """The messages of a linter that checks many files; each line begins with the place."""
    lines = tool.python("-m", *tool.words, *paths).splitlines()
    places = (re.match(r"(\S*?\w+\.py):[\d:]+ *(.*)", line) for line in lines)
    return _by_stem(paths, ((one[1], re.sub(r"\d+", "", one[2])) for one in places if one))


def by_preflight(tool: Tool, paths: list[Path]) -> Said:
    """The findings of torch-preflight that are more than a note."""
    said = json.loads(
        tool.python("-m", "torch_preflight", "check", "-f", "json", "-j", "1", *paths)
    )
    return _by_stem(
        paths,
        (
            (one["path"], f"{one['code']} {one['message']}")
            for one in said["diagnostics"]
            if one["severity"] != "note"
        ),
    )  # fmt: skip


def by_semgrep(tool: Tool, paths: list[Path]) -> Said:
    """The results of our rules for semgrep."""
    semgrep = tool.home / "bin" / "semgrep"
    command = [str(semgrep), "scan", "--config", str(RULES), "--json", "--quiet", "--metrics=off", "--disable-version-check", "--no-git-ignore", "--jobs=1"]  # fmt: skip
    said = subprocess.run(
        [*command, *map(str, paths)],
        env={**os.environ, "PATH": f"{semgrep.parent}:{os.environ['PATH']}"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    ).stdout
    return _by_stem(
        paths, ((one["path"], one["extra"]["message"]) for one in json.loads(said)["results"])
    )


def by_mldoct(tool: Tool, paths: list[Path]) -> Said:
    """The findings of mldoct, without mere information; its command takes one file and loads torch for it."""
    said = json.loads(tool.python("-c", MLDOCT, *paths))
    return _by_stem(paths, map(tuple, said))


MLDOCT = """
import importlib.util, json, pathlib, sys
found = importlib.util.find_spec("mldoctor")
file = pathlib.Path(found.origin).with_name("linter.py")
spec = importlib.util.spec_from_file_location("linter", file)
linter = importlib.util.module_from_spec(spec)
spec.loader.exec_module(linter)
print(json.dumps([
    (path, one["message"])
    for path in sys.argv[1:]
    for one in linter.lint_script(path)[0]
    if one["severity"] != "INFO"
]))
"""
RULES = HERE / "semgrep.yml"


def _by_stem(paths: list[Path], said: object) -> Said:
    found: dict[str, set[str]] = {path.stem: set() for path in paths}
    for place, message in said:  # type: ignore[attr-defined]
        found[Path(place).stem].add(message)
    return list(found.values())


# Tools that watch runs


def by_running(tool: Tool, paths: list[Path]) -> Said:
    """The messages of a tool while programs run."""
    said = _run(tool, paths, rounds=0).split(MARK)[1:]
    assert len(said) == len(paths), f"{tool.name} ran {len(said)} of {len(paths)} programs"
    return [{_message(line) for line in one.splitlines() if WORDS.search(line)} for one in said]


def timed(tool: Tool, paths: list[Path], rounds: int) -> list[dict[str, float]]:
    """In each round, the processor time of all programs: bare, with the tool, and bare again."""
    took: list[dict[str, float]] = [{} for _ in range(rounds)]
    for line in _run(tool, paths, rounds).splitlines():
        if line.startswith("took "):
            _, number, name, seconds = line.split()
            took[int(number)][name] = took[int(number)].get(name, 0.0) + float(seconds)
    return took


def _run(tool: Tool, paths: list[Path], rounds: int) -> str:
    """Run programs, each in a fork of one process that has loaded torch."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "with_tool.py"
        text = RUN.replace("STANDINS", str(trial.STANDINS)).replace("TOOL", tool.words[0])
        script.write_text(text, encoding="utf-8")
        listed = Path(folder) / "programs.json"
        listed.write_text(json.dumps([str(path) for path in paths]), encoding="utf-8")
        return tool.python(script, listed, str(rounds))


def _message(line: str) -> str:
    """A line without numbers and frames; a code of zerograd as it is."""
    return line if CODE.fullmatch(line) else SIGNS.sub("", line).strip()


CODE = re.compile(r"ZG\d+")
WORDS = re.compile(r"[a-z]{3}|ZG")
SIGNS = re.compile(r"[\d.e+-]*\d[\d.e+-]*|[│┃─━┏┓┗┛└┘├┤╭╮╰╯]")
MARK = "===== program ====="
RUN = """
import contextlib, gc, io, json, os, signal, sys, time, warnings
sys.path.insert(0, "STANDINS")
import torch
TOOL

class Made:
    # The modules and optimizers of a program, with the first batch of each module.
    def __init__(self, on_optimizer=None):
        self.nets, self.first, self.on_optimizer, self.depth = nets, {}, on_optimizer, 0

    def __enter__(self):
        kinds = {one for one in vars(torch.optim).values() if isinstance(one, type)}
        kinds = [one for one in kinds if issubclass(one, torch.optim.Optimizer)]
        kinds.remove(torch.optim.Optimizer)
        self.before = [(kind, kind.__init__) for kind in (torch.nn.Module, *kinds)]
        for kind, init in self.before:
            kind.__init__ = self.noting(init, self.optimizer if kind in kinds else self.nets.append)
        self.hook = torch.nn.modules.module.register_module_forward_hook(self.called)
        return self

    def __exit__(self, *error):
        self.hook.remove()
        for kind, init in self.before:
            kind.__init__ = init

    def noting(self, init, note):
        def wrapper(made, *given, **named):
            self.depth += 1
            try:
                init(made, *given, **named)
            finally:
                self.depth -= 1
            if note == self.nets.append or not self.depth:
                note(made)
        return wrapper

    def called(self, net, given, result):
        self.first.setdefault(id(net), (given, result))

    def optimizer(self, made):
        # Its net is the largest module that has its parameters.
        own = {id(p) for group in made.param_groups for p in group["params"]}
        sizes = {
            number: sum(p.numel() for p in net.parameters())
            for number, net in enumerate(self.nets)
            if own & {id(p) for p in net.parameters()}
        }
        if sizes and self.on_optimizer:
            self.on_optimizer(max(sizes, key=sizes.get), made)

def attach_each(said):
    # `audit` gets each net with its optimizer and, from a run before, its first batch.
    ends = []
    def add(number, optimizer):
        end = audit(made.nets[number], optimizer, batches.get(number), said)
        if end:
            ends.append(end)
    made = Made(add)
    made.__enter__()
    # What a module is called with is known from the run before.
    made.hook.remove()
    def done():
        made.__exit__()
        for end in ends:
            end()
    return done

def execute(code, path):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(Exception):
        exec(code, {"__name__": "__main__", "__file__": path})

def run(path, attach):
    said = []
    warnings.showwarning = lambda message, *rest, **more: said.append(str(message))
    code = compile(open(path, encoding="utf-8-sig").read(), path, "exec")
    batches.clear()
    if attach is attach_each:
        with Made() as made:
            execute(code, path)
        batches.update((at, made.first[id(net)]) for at, net in enumerate(made.nets) if id(net) in made.first)
        said.clear()
        nets.clear()
    done = attach(said)
    # Only the last time is measured: the first operations of a process load much of torch.
    for _ in range(2 if rounds else 1):
        nets.clear()
        began = time.process_time()
        execute(code, path)
        took = time.process_time() - began
    done()
    return took, said

def forked(work):
    child = os.fork()
    if not child:
        signal.alarm(60)  # a broken loop may have no end
        work()
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)

def bare(said):
    return lambda: None

torch.set_num_threads(1)
nets, batches = [], {}
attach = globals().get("attach", attach_each)
rounds = int(sys.argv[2])
paths = json.load(open(sys.argv[1], encoding="utf-8"))
# What the first program of a process loads is loaded once, before the forks.
run(paths[0], bare)
if attach is not attach_each:
    run(paths[0], attach)
gc.collect()
gc.freeze()
for path in paths:
    if not rounds:
        print("===== program =====", flush=True)
        forked(lambda: print("\\n".join(run(path, attach)[1])))
    for number in range(rounds):
        kinds = [("bare", bare), ("tool", attach), ("again", bare)]
        for name, how in kinds if number % 2 else kinds[::-1]:
            forked(lambda: print("took", number, name, run(path, how)[0], flush=True))
"""

ZEROGRAD = """
import zerograd
def attach(said):
    watch = zerograd.watch(on="collect")
    report = watch.start()
    def done():
        watch.stop()
        said.extend(one.code for one in report.findings)
    return done
"""

TORCH_AUDIT = """
import torch_audit
def audit(net, optimizer, batch, said):
    auditor = torch_audit.autopatch(net, optimizer=optimizer, every_n_steps=1, fail_level="FATAL")
    def done():
        found = [one for one in auditor.findings if one.severity.value != "INFO"]
        said.extend(f"{one.rule_id} {one.message}" for one in found)
    return done
"""

ONE_TENSOR = """
def audit(net, optimizer, batch, said):
    # The tool takes one batch of a net with one input and one output.
    if batch and len(batch[0]) == 1 and all(map(torch.is_tensor, (*batch[0], batch[1]))):
        x, y = batch[0][0].detach(), torch.randn(batch[1].shape)
        with torch.random.fork_rng():
            look(net, optimizer, x, y, said)
"""

GUARDTOWER = f"""
import guardtower
def look(net, optimizer, x, y, said):
    loss = lambda: torch.nn.functional.mse_loss(net(x), y)
    report = guardtower.audit(net, loss, optimizer=optimizer, inputs=x)
    said.extend(one.message for one in report.findings if one.severity.label != "INFO")
    optimizer.zero_grad()
    guardtower.monitor(net, on_nonfinite="warn").__enter__()
{ONE_TENSOR}"""

TORCHTEST2 = f"""
import torchtest2
def look(net, optimizer, x, y, said):
    loss = torch.nn.functional.mse_loss
    report = torchtest2.check_model(net, x, y, loss_fn=loss, optimizer=optimizer)
    found = [one for one in report.results if one.status.name in ("WARN", "FAIL")]
    said.extend(f"{{one.name}}: {{one.message}}" for one in found)
{ONE_TENSOR}"""


def by_traincheck(tool: Tool, paths: list[Path]) -> Said:
    """The violations of what TrainCheck has learned from a right program.

    Programs come in pairs, the wrong one first. Its right twin is the reference, which is the best case for the
    tool; the right program itself is checked against what was learned from the right program of the pair before.
    """
    found: Said = []
    learned: list[Path] = []
    with tempfile.TemporaryDirectory() as given:
        folder = Path(given)
        rights = paths[1::2]
        for number, right in enumerate(rights):
            reference = folder / f"reference{number}"
            invariants = folder / f"invariants{number}.json"
            _collect(tool, right, reference)
            tool.python("-m", "traincheck.infer_engine", "-f", reference, "-o", invariants, folder=folder)  # fmt: skip
            learned.append(invariants)
        for number in range(len(rights)):
            for end, by in ((0, learned[number]), (1, learned[number - 1])):
                target = folder / f"target{2 * number + end}"
                _collect(tool, paths[2 * number + end], target, "--invariants", by)
                said = folder / f"said{2 * number + end}"
                tool.python("-m", "traincheck.checker", "-f", target, "-i", by, "-o", said, folder=folder)  # fmt: skip
                found.append(_violations(said))
    return found


def _collect(tool: Tool, program: Path, folder: Path, *more: str | Path) -> None:
    # It asks for the names of the modules: here, of all whose parameters the program asks for.
    nets = dict.fromkeys(re.findall(r"(\w+)\.parameters\(", program.read_text(encoding="utf-8")))
    tool.python("-m", "traincheck.collect_trace", "--pyscript", program, "--models-to-track", *nets, "--output-dir", folder, *more, folder=folder.parent)  # fmt: skip


def _violations(folder: Path) -> set[str]:
    (path,) = folder.rglob("violations_summary.json")
    said = json.loads(path.read_text(encoding="utf-8"))
    return {re.sub(r"\d+", "", one["display_name"]) for one in said["violations"]}


RICH = ("rich==15.0.0", "markdown-it-py==4.3.0", "mdurl==0.1.2", "pygments==2.21.0")
FLAKE8 = ("flake8==7.5.0", "mccabe==0.7.0", "pycodestyle==2.15.0", "pyflakes==4.1.0")
ONE_COMMAND = ("run a command",)
DSLINTER_RULES = "gradient-clear-pytorch,forward-pytorch,deterministic-pytorch,randomness-control-pytorch,missing-mask-pytorch,hyperparameters-pytorch"
DSLINTER = ("dslinter==2.0.9", "pylint==2.12.2", "astroid==2.9.3", "isort==5.13.2", "lazy-object-proxy==1.12.0", "mccabe==0.6.1", "mypy==0.931", "mypy-extensions==1.1.0", "platformdirs==4.4.0", "toml==0.10.2", "tomli==2.5.0", "typing-extensions==4.16.0", "wrapt==1.13.3")  # fmt: skip
TRAINCHECK = ("traincheck==0.2.0", "astor==0.8.1", "tqdm==4.70.1", "numba==0.68.1", "llvmlite==0.50.0", "pandas==3.1.1", "polars==2.1.0", "polars-runtime-32==2.1.0", "pyyaml==6.0.3", "orjson==3.13.0", "watchdog==7.1.0", "python-dateutil==4.0.0", "pytz==2026.6", "tzdata==2026.6", "six==1.17.0")  # fmt: skip
SEMGREP = ("semgrep==1.180.0", "annotated-types==0.8.0", "anyio==4.16.0", "attrs==26.1.0", "boltons==21.0.0", "bracex==3.2.2", "certifi==2026.10.18", "cffi==2.1.1", "charset-normalizer==3.5.2", "click==8.4.2", "click-option-group==0.5.9", "colorama==0.4.6", "cryptography==50.0.2", "exceptiongroup==1.2.2", "face==26.0.1", "glom==25.12.0", "googleapis-common-protos==1.76.0", "h11==0.16.0", "httpcore==1.0.9", "httpx==0.28.1", "httpx-sse==0.4.3", "idna==3.20", "importlib_metadata==8.7.1", "jsonschema==4.25.1", "jsonschema-specifications==2025.9.1", "markdown-it-py==4.3.0", "mcp==1.29.0", "mdurl==0.1.2", "opentelemetry-api==1.37.0", "opentelemetry-exporter-otlp-proto-common==1.37.0", "opentelemetry-exporter-otlp-proto-http==1.37.0", "opentelemetry-instrumentation==0.58b0", "opentelemetry-instrumentation-requests==0.58b0", "opentelemetry-instrumentation-threading==0.58b0", "opentelemetry-proto==1.37.0", "opentelemetry-sdk==1.37.0", "opentelemetry-semantic-conventions==0.58b0", "opentelemetry-util-http==0.58b0", "packaging==26.3", "peewee==3.19.0", "protobuf==6.33.6", "pycparser==3.12", "pydantic==2.14.3", "pydantic-settings==2.16.3", "pydantic_core==2.50.4", "Pygments==2.21.0", "PyJWT==2.15.1", "python-dotenv==1.2.4", "python-multipart==0.0.33", "referencing==0.37.0", "requests==2.34.2", "rich==15.0.0", "rpds-py==2026.9.1", "ruamel.yaml==0.19.1", "ruamel.yaml.clib==0.2.15", "semantic-version==2.10.0", "sse-starlette==3.7.0", "starlette==1.10.0", "tomli==2.4.1", "typing-inspection==0.4.5", "typing_extensions==4.16.0", "urllib3==2.8.0", "uvicorn==0.54.0", "wcmatch==8.5.2", "wrapt==1.17.3", "zipp==4.1.2")  # fmt: skip

TOOLS = (
    Tool("zerograd check", "source", by_zerograd, ONE_COMMAND, words=("check", "--no-cache")),
    Tool("zerograd run", "runs", by_running, ONE_COMMAND, words=(ZEROGRAD,)),
    Tool("ruff 0.17.4, all rules", "source", by_line, ONE_COMMAND, words=("ruff", "check", "--isolated", "--preview", "--no-cache", "--output-format", "concise", "--select", "ALL")),
    Tool("flake8 7.5.0", "source", by_line, ONE_COMMAND, FLAKE8, ("flake8",)),
    Tool("pylint 4.1.3", "source", by_line, ONE_COMMAND, ("pylint==4.1.3", "astroid==4.3.4", "dill==0.4.1", "isort==9.0.2", "mccabe==0.7.0", "platformdirs==4.14.5", "tomlkit==0.15.2"), ("pylint", "--disable=duplicate-code"), slow=True),
    Tool("TorchFix 0.7.0, all rules", "source", by_line, ONE_COMMAND, ("torchfix==0.7.0", *FLAKE8, "libcst==1.5.1", "pyyaml==6.0.3"), ("torchfix", "--select=ALL"), slow=True),
    Tool("torch-preflight 0.5.0", "source", by_preflight, ONE_COMMAND, ("torch-preflight==0.5.0", "libcst==1.5.1", "pyyaml==6.0.3", *RICH)),
    Tool("mldoct 1.0.0", "source", by_mldoct, ONE_COMMAND, ("mldoct==1.0.0",)),
    Tool("dslinter 2.0.9, rules for PyTorch", "source", by_line, ("have Python 3.9", "name its plug-in to pylint", "run a command"), DSLINTER, ("pylint", "--load-plugins=dslinter", "--disable=all", f"--enable={DSLINTER_RULES}"), "python3.9"),
    Tool("semgrep 1.180.0, rules of ours", "source", by_semgrep, ("write rules", "run a command"), SEMGREP, slow=True),
    Tool("Trainlint", "source", by_line, (), absent="its public source is now a harness for coding agents, with no command that checks a file and no rule about zero_grad or clipping"),
    Tool("torch-audit 0.3.0, every step", "runs", by_running, ("attach it to each model and optimizer", "finish it"), ("torch-audit==0.3.0", "click==8.5.1", *RICH), (TORCH_AUDIT,)),
    Tool("guardtower 0.1.0, audit and monitor", "runs", by_running, ("write a closure with a batch and a loss", "audit each model with it", "monitor the loop"), ("guardtower==0.1.0",), (GUARDTOWER,)),
    Tool("torchtest2 0.1.0", "runs", by_running, ("take a batch", "check each model with it and a loss"), ("torchtest2==0.1.0",), (TORCHTEST2,)),
    Tool("TrainCheck 0.2.0", "runs", by_traincheck, ("have a right program", "trace it", "infer invariants", "trace the program", "check the trace"), TRAINCHECK, sample=1),
)  # fmt: skip

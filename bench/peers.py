"""Runs other tools on the bad and the good example of each rule.

A tool has found a bug if it prints something for the bad example that it does not print for the good
one. Any message counts. A false alarm is a message about gradients for correct code. Tools for source
read the file; tools for runs are attached to model and optimizer as in their documentation, and look
at every step. Each tool is installed separately, below bench/.cache/peers.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from corpus import progress
from zerograd.learn.rule_pages import Explained, explained, prelude
from zerograd.rules.catalogue import PAGES, RULES

HERE = Path(__file__).parent
CACHE = HERE / ".cache" / "peers"
ABOUT = re.compile(r"ZG|grad|backward|clip|scaler|optimizer", re.IGNORECASE)

RIGHT = {
    "cleared by p.grad = None": """\
for x, y in loader:
    for p in model.parameters():
        p.grad = None
    loss_fn(model(x), y).backward()
    optimizer.step()
""",
    "cleared by p.grad.zero_()": """\
for x, y in loader:
    for p in model.parameters():
        if p.grad is not None:
            p.grad.zero_()
    loss_fn(model(x), y).backward()
    optimizer.step()
""",
    "cleared through the module": """\
for x, y in loader:
    model.zero_grad()
    loss_fn(model(x), y).backward()
    optimizer.step()
""",
    "cleared after the step": """\
for x, y in loader:
    loss_fn(model(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()
""",
    "two losses, one step": """\
for x, y in loader:
    optimizer.zero_grad()
    loss_fn(model(x), y).backward()
    (0.01 * model.weight.square().sum()).backward()
    optimizer.step()
""",
    "a closure": """\
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
for x, y in loader:
    def closure():
        optimizer.zero_grad()
        loss = loss_fn(model(x), y)
        loss.backward()
        return loss
    optimizer.step(closure)
""",
    "a GAN": """\
for x, y in loader:
    opt_d.zero_grad()
    loss_fn(D(G(x).detach()), y).backward()
    opt_d.step()
    opt_g.zero_grad()
    loss_fn(D(G(x)), y).backward()
    opt_g.step()
""",
}
"""Correct programs that look wrong to a tool that searches for zero_grad()."""


@dataclass(frozen=True)
class Tool:
    """A tool, its requirements, and its messages for a program."""

    name: str
    packages: tuple[str, ...]
    ask: Callable[[Tool, list[Path]], list[set[str]]]
    words: tuple[str, ...] = ()
    interpreter: str = sys.executable

    @property
    def home(self) -> Path:
        """The directory of the tool."""
        return CACHE / re.sub(r"\W+", "-", self.name)

    def install(self) -> None:
        """Install the tool once, in its own directory; torch and numpy are shared."""
        if not self.packages or (self.home / ".done").exists():
            return
        options = ["--no-deps", "--target", str(self.home)]
        if self.interpreter != sys.executable:
            subprocess.run([self.interpreter, "-m", "venv", str(self.home)], check=True)
            options = []
        pip = [self.own, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
        subprocess.run([*pip, *options, *self.packages], check=True, stderr=subprocess.DEVNULL)
        (self.home / ".done").touch()

    @property
    def own(self) -> str:
        """The interpreter that runs the tool."""
        inside = self.home / "bin" / "python"
        return str(inside) if self.interpreter != sys.executable else self.interpreter

    def python(self, *words: str | Path) -> str:
        """Run Python with the tool on its path."""
        done = subprocess.run(
            [self.own, *map(str, words)],
            cwd=tempfile.gettempdir(),  # some tools write into the working directory
            env={**os.environ, "PYTHONPATH": str(self.home), "NO_COLOR": "1", "COLUMNS": "500"},
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        return done.stdout + done.stderr


def by_table(tool: Tool, paths: list[Path]) -> list[set[str]]:
    """The rows of mldoct's table, without mere information."""
    found = []
    for path in paths:
        said = tool.python("-m", *tool.words, path).splitlines()
        found.append({line for line in said if line.startswith("│") and "INFO" not in line})
    return found


def by_line(tool: Tool, paths: list[Path]) -> list[set[str]]:
    """The messages of a linter that checks many files; each line begins with the place."""
    found: dict[str, set[str]] = {path.stem: set() for path in paths}
    for line in tool.python("-m", *tool.words, *paths).splitlines():
        place = re.match(r"\S*?(train\d+)\.py:[\d:]+ *(.*)", line)
        if place is not None:
            found[place[1]].add(re.sub(r"\d+", "", place[2]))
    return list(found.values())


def by_zerograd(tool: Tool, paths: list[Path]) -> list[set[str]]:
    """The codes of zerograd's findings."""
    found: dict[str, set[str]] = {path.stem: set() for path in paths}
    said = json.loads(tool.python("-m", "zerograd", *tool.words, "--format", "json", *paths))
    for one in said["findings"]:
        found[Path(one["path"]).stem].add(one["code"])
    return list(found.values())


def by_running(tool: Tool, paths: list[Path]) -> list[set[str]]:
    """The messages of a tool while programs run. torch is loaded once; each program is a fork."""
    script = paths[0].with_name("with_tool.py")
    script.write_text(RUN.replace("TOOL", tool.words[0]), encoding="utf-8")
    said = tool.python(script, *paths).split(MARK)[1:]
    assert len(said) == len(paths), said
    return [{_message(line) for line in one.splitlines() if WORDS.search(line)} for one in said]


def _message(line: str) -> str:
    """A line without numbers and frames; a code of zerograd as it is."""
    return line if CODE.fullmatch(line) else SIGNS.sub("", line).strip()


CODE = re.compile(r"ZG\d+")
WORDS = re.compile(r"[a-z]{3}|ZG")
SIGNS = re.compile(r"[\d.e+-]*\d[\d.e+-]*|[│┃─━┏┓┗┛└┘├┤╭╮╰╯]")
MARK = "===== program ====="
RUN = """
import ast, os, re, sys, warnings
TOOL

def run(code):
    names, said = {}, []
    warnings.showwarning = lambda message, *rest, **more: said.append(str(message))
    statements = ast.parse(code).body
    loops = [i for i, one in enumerate(statements) if isinstance(one, (ast.For, ast.With))]
    begin = (loops or [len(statements)])[0]
    exec(compile(ast.Module(statements[:begin], []), "train.py", "exec"), names)
    pairs = [("G", "opt_g"), ("D", "opt_d")] if "G(x)" in code else [("model", "optimizer")]
    if named := re.match("# PAIRS (.*)", code):
        pairs = ast.literal_eval(named[1])
        names.setdefault("loss_fn", names["criterion"])
    if "head" in names:
        names["model"] = names["nn"].Sequential(names["body"], names["head"])
    done = attach([(names[net], names[optimizer]) for net, optimizer in pairs], names, said)
    try:
        exec(compile(ast.Module(statements[begin:], []), "train.py", "exec"), names)
    except (AttributeError, RuntimeError):
        pass
    done()
    print("\\n".join(said))

# Optimizers load half of torch when the first is made: once, before the forks.
torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), lr=0.1)
for path in sys.argv[1:]:
    print("===== program =====", flush=True)
    child = os.fork()
    if not child:
        run(open(path, encoding="utf-8").read())
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)
"""

ZEROGRAD = """
import torch, zerograd
def attach(pairs, names, said):
    watch = zerograd.watch(on="collect")
    report = watch.start()
    def done():
        watch.stop()
        said.extend(one.code for one in report.findings)
    return done
"""

TORCH_AUDIT = """
import torch, torch_audit
def attach(pairs, names, said):
    auditors = [
        torch_audit.autopatch(net, optimizer=optimizer, every_n_steps=1, fail_level="FATAL")
        for net, optimizer in pairs
    ]
    def done():
        for auditor in auditors:
            said.extend(f"{one.rule_id} {one.message}" for one in auditor.findings)
    return done
"""

GUARDTOWER = """
import torch, guardtower
def attach(pairs, names, said):
    for net, optimizer in pairs:
        x, y = names["loader"][0]
        report = guardtower.audit(
            net, lambda: names["loss_fn"](net(x)[:, :1], y), optimizer=optimizer
        )
        said.append(str(report))
        optimizer.zero_grad()
        guardtower.monitor(net, on_nonfinite="warn").__enter__()
    return lambda: None
"""


RICH = ("rich==15.0.0", "markdown-it-py==4.3.0", "mdurl==0.1.2", "pygments==2.21.0")
TOOLS = (
    Tool("zerograd check", (), by_zerograd, ("check", "--no-cache")),
    Tool("zerograd.watch", (), by_running, (ZEROGRAD,)),
    Tool("ruff 0.17.4, all rules", (), by_line, ("ruff", "check", "--isolated", "--preview", "--no-cache", "--output-format", "concise", "--select", "ALL")),
    Tool("flake8 7.5.0", ("flake8==7.5.0", "mccabe==0.7.0", "pycodestyle==2.15.0", "pyflakes==4.1.0"), by_line, ("flake8",)),
    Tool("pylint 4.1.3", ("pylint==4.1.3", "astroid==4.3.4", "dill==0.4.1", "isort==9.0.2", "mccabe==0.7.0", "platformdirs==4.14.5", "tomlkit==0.15.2"), by_line, ("pylint", "--disable=duplicate-code")),
    Tool("TorchFix 0.7.0", ("torchfix==0.7.0", "flake8==7.5.0", "mccabe==0.7.0", "pycodestyle==2.15.0", "pyflakes==4.1.0", "libcst==1.5.1", "pyyaml==6.0.3"), by_line, ("torchfix", "--select=ALL")),
    Tool("mldoct 1.0.0", ("mldoct==1.0.0", *RICH, "pandas==2.3.3", "python-dateutil==3.0.0", "pytz==2026.6", "tzdata==2026.6", "six==1.17.0", "scikit-learn==1.9.1", "scipy==1.17.1", "joblib==1.6.0", "threadpoolctl==3.8.0", "narwhals==2.28.0"), by_table, ("mldoctor.mldoctor", "check")),
    Tool("dslinter 2.0.9", ("dslinter==2.0.9",), by_line, ("pylint", "--load-plugins=dslinter", "--disable=duplicate-code"), "python3.9"),
    Tool("torch-audit 0.3.0", ("torch-audit==0.3.0", "click==8.5.1", *RICH), by_running, (TORCH_AUDIT,)),
    Tool("guardtower 0.1.0", ("guardtower==0.1.0",), by_running, (GUARDTOWER,)),
)  # fmt: skip


def main() -> int:
    """Run every tool on every example, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    parser.add_argument(
        "--said", action="store_true", help="also print the messages of the other tools"
    )
    parser.add_argument(
        "--only", default="", metavar="NAME", help="only tools whose name contains this"
    )
    options = parser.parse_args()
    pages = [explained(page) for page in PAGES]
    # Examples with accelerate or several processes are left out: no other tool supports them.
    shown = [one for one in pages if one.bad and one.page.code[:3] not in ("ZG4", "ZG5")]
    rows = []
    for tool in (tool for tool in TOOLS if options.only in tool.name):
        if shutil.which(tool.interpreter) is None:
            print(f"{tool.name} is left out: it needs {tool.interpreter}")
            continue
        tool.install()
        found, alarms = asked(tool, shown)
        rows.append((tool.name, found, alarms))
    show(shown, rows, markdown=options.markdown)
    if options.said:
        for name, found, alarms in rows:
            for where, messages in {**found, **alarms}.items():
                for message in sorted(messages):
                    print(f"{name}: {where}: {message[:160]}")
    return 0


Said = dict[str, set[str]]


def asked(tool: Tool, shown: list[Explained]) -> tuple[Said, Said]:
    """The bugs that a tool found, and its false alarms."""
    programs = [code for page in shown for code in (page.bad, page.good)]
    # Messages about the model and the data alone do not count.
    programs += ["", *RIGHT.values()]
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"train{number:03}.py" for number in range(len(programs))]
        for path, code in zip(paths, programs, strict=True):
            given = prelude(code).replace("2 * N + 2", "8 * N + 2")
            given = given.replace("N = 4\n", "N = 4\ntorch.manual_seed(0)\n")
            path.write_text(given + code, encoding="utf-8")
        answers = tool.ask(tool, paths)
    found, alarms = {}, {}
    for number, page in enumerate(shown):
        new = answers[2 * number] - answers[2 * number + 1]
        if new:
            found[page.page.code] = new
    bare, *right = answers[2 * len(shown) :]
    for name, messages in zip(RIGHT, right, strict=True):
        about = {one for one in messages - bare if ABOUT.search(one)}
        if about:
            alarms[name] = about
    progress(tool.name, 1, 1, f"{len(found)} found")
    return found, alarms


def show(shown: list[Explained], rows: list[tuple[str, Said, Said]], *, markdown: bool) -> None:
    """Print the table."""
    total, right = len(shown), len(RIGHT)
    seen = {rule.code: rule.only for rule in RULES}
    static = sum(seen[one.page.code] != "runtime" for one in shown)
    running = sum(seen[one.page.code] != "static" for one in shown)
    print(f"Python {platform.python_version()}; {total} rules ({static} seen in source, {running} in runs), {right} right programs\n")  # fmt: skip
    line = "| {} | {} | {} |" if markdown else "{:26}{:>14}   {}"
    print(line.format("tool", f"found of {total}", f"false alarms in {right}"))
    if markdown:
        print("|---|---|---|")
    for name, found, alarms in rows:
        few = f" ({', '.join(found)})" if 0 < len(found) < 6 else ""
        on = f": {', '.join(alarms)}" if alarms else ""
        print(line.format(name, f"{len(found)}{few}", f"{len(alarms)}{on}"))


if __name__ == "__main__":
    sys.exit(main())

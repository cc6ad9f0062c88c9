"""Shows other tools what zerograd shows in its rules: the bad example of each page, then the good one.

A tool has found something if it says of the bad example what it does not say of the good one: any
message counts, whatever it is about. A false alarm is a message about gradients on code that is right.
Tools for source read the file; tools for runs are put onto the model and the optimizer, as their
makers describe it, and looking at every step. Each is installed by itself, below bench/.cache/peers.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from corpus import progress
from zerograd.check import catalogue
from zerograd.explain import Explained, explained, prelude
from zerograd.rules import RULES

HERE = Path(__file__).parent
CACHE = HERE / ".cache" / "peers"
ABOUT = re.compile(r"grad|backward|clip|scaler|optimizer", re.IGNORECASE)

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
"""What fools a reader who looks for a missing zero_grad()."""


@dataclass(frozen=True)
class Tool:
    """A tool, what it needs, and what it says of a program: a set of messages."""

    name: str
    packages: tuple[str, ...]
    ask: Callable[[Tool, Path], set[str]]
    words: tuple[str, ...] = ()

    @property
    def home(self) -> Path:
        """Where it is installed, by itself."""
        return CACHE / re.sub(r"\W+", "-", self.name)

    def install(self) -> None:
        """Once; torch and numpy are those that are there."""
        if self.packages and not (self.home / ".done").exists():
            pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
            subprocess.run(
                [*pip, "--no-deps", "--target", str(self.home), *self.packages],
                check=True,
                stderr=subprocess.DEVNULL,
            )
            (self.home / ".done").touch()

    def python(self, *words: str | Path) -> str:
        """What Python says with the tool on its path."""
        done = subprocess.run(
            [sys.executable, *map(str, words)],
            env={**os.environ, "PYTHONPATH": str(self.home), "NO_COLOR": "1", "COLUMNS": "500"},
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        return done.stdout + done.stderr


def by_line(tool: Tool, path: Path) -> set[str]:
    """A linter's messages, without the places."""
    said = tool.python("-m", *tool.words, path)
    found = {re.sub(r"\d+", "", line).replace(str(path), "") for line in said.splitlines()}
    return {line.strip() for line in found if re.search(r"[a-z]{3}", line)}


def by_zerograd(tool: Tool, path: Path) -> set[str]:
    """Zerograd's own, as any program would read them."""
    with tempfile.NamedTemporaryFile() as out:
        tool.python("-m", "zerograd", *tool.words, "--format", "json", "--output", out.name, path)
        return {one["code"] for one in json.loads(Path(out.name).read_text())["findings"]}


RUN = """
import ast, io, sys, warnings
code = open(sys.argv[1], encoding="utf-8").read()
names, said = {}, []
warnings.showwarning = lambda message, *rest, **more: said.append(str(message))
TOOL
statements = ast.parse(code).body
begin = next(i for i, one in enumerate(statements) if isinstance(one, (ast.For, ast.With)))
exec(compile(ast.Module(statements[:begin], []), "train.py", "exec"), names)
pairs = [("model", "optimizer")]
if "G(x)" in code:
    pairs = [("G", "opt_g"), ("D", "opt_d")]
if "head" in names:
    names["model"] = names["nn"].Sequential(names["body"], names["head"])
attach([(names[net], names[optimizer]) for net, optimizer in pairs])
try:
    exec(compile(ast.Module(statements[begin:], []), "train.py", "exec"), names)
except Exception as error:
    pass
print("\\n".join(said))
"""

TORCH_AUDIT = """
import torch_audit
def attach(pairs):
    for net, optimizer in pairs:
        torch_audit.autopatch(net, optimizer=optimizer, every_n_steps=1, fail_level="FATAL")
"""

GUARDTOWER = """
import guardtower
def attach(pairs):
    for net, optimizer in pairs:
        x, y = names["loader"][0]
        step = lambda net=net: names["loss_fn"](net(x)[:, :1], y)
        report = guardtower.audit(net, step, optimizer=optimizer)
        said.extend(f"{one.check} {one.message}" for one in report.findings)
        guardtower.monitor(net, on_nonfinite="warn").__enter__()
"""


def by_running(tool: Tool, path: Path) -> set[str]:
    """What a tool says while the program runs with it."""
    script = path.with_name("with_tool.py")
    script.write_text(RUN.replace("TOOL", tool.words[0]), encoding="utf-8")
    said = tool.python(script, path)
    lines = {
        re.sub(r"[\d.e+-]+|[│┃─━┏┓┗┛└┘├┤╭╮╰╯]", "", line).strip() for line in said.splitlines()
    }
    return {line for line in lines if re.search(r"[a-z]{3}", line)}


RICH = ("rich==15.0.0", "markdown-it-py==4.3.0", "mdurl==0.1.2", "pygments==2.21.0")
TOOLS = (
    Tool("zerograd check", (), by_zerograd, ("check", "--no-cache")),
    Tool("zerograd run", (), by_zerograd, ("run", "--quiet")),
    Tool("ruff 0.17.4, all rules", (), by_line, ("ruff", "check", "--isolated", "--preview", "--no-cache", "--output-format", "concise", "--select", "ALL")),
    Tool("flake8 7.5.0", ("flake8==7.5.0", "mccabe==0.7.0", "pycodestyle==2.15.0", "pyflakes==4.1.0"), by_line, ("flake8",)),
    Tool("pylint 4.1.3", ("pylint==4.1.3", "astroid==4.4.0", "dill==0.4.1", "isort==9.0.2", "mccabe==0.7.0", "platformdirs==4.14.5", "tomlkit==0.15.2"), by_line, ("pylint",)),
    Tool("TorchFix 0.7.0", ("torchfix==0.7.0", "flake8==7.5.0", "mccabe==0.7.0", "pycodestyle==2.15.0", "pyflakes==4.1.0", "libcst==1.5.1", "pyyaml==6.0.3"), by_line, ("torchfix", "--select=ALL")),
    Tool("mldoct 1.0.0", ("mldoct==1.0.0", *RICH, "pandas==2.3.3", "python-dateutil==3.0.0", "pytz==2026.6", "tzdata==2026.6", "six==1.17.0", "scikit-learn==1.9.1", "scipy==1.17.1", "joblib==1.6.0", "threadpoolctl==3.8.0", "narwhals==2.28.0"), by_line, ("mldoctor.mldoctor", "check")),
    Tool("torch-audit 0.3.0", ("torch-audit==0.3.0", "click==8.5.1", *RICH), by_running, (TORCH_AUDIT,)),
    Tool("guardtower 0.1.0", ("guardtower==0.1.0",), by_running, (GUARDTOWER,)),
)  # fmt: skip


def main() -> int:
    """Ask every tool about every page, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    parser.add_argument("--said", action="store_true", help="also what the others said of what")
    options = parser.parse_args()
    pages = [explained(page) for page in catalogue()]
    # What needs accelerate, or several processes, is left out: no other tool knows of it.
    shown = [one for one in pages if one.bad and one.page.code[:3] not in ("ZG4", "ZG5")]
    rows = []
    for tool in TOOLS:
        tool.install()
        found, alarms = asked(tool, shown)
        rows.append((tool.name, found, alarms))
    show(shown, rows, markdown=options.markdown)
    if options.said:
        for name, found, alarms in rows[2:]:
            for where, messages in {**found, **alarms}.items():
                for message in sorted(messages):
                    print(f"{name}: {where}: {message[:160]}")
    return 0


Said = dict[str, set[str]]


def asked(tool: Tool, shown: list[Explained]) -> tuple[Said, Said]:
    """What a tool found in which page, and what it said of code that is right."""
    found: Said = {}
    alarms: Said = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.py"

        def told(code: str) -> set[str]:
            given = prelude(code).replace("2 * N + 2", "8 * N + 2")
            path.write_text(given + code, encoding="utf-8")
            return tool.ask(tool, path)

        for number, page in enumerate(shown, 1):
            good = told(page.good)
            new = told(page.bad) - good
            if new:
                found[page.page.code] = new
            progress(tool.name, number, len(shown), page.page.code)
        bare = told("")  # what it says of the model and the data alone is about those
        for said, code in RIGHT.items():
            about = {one for one in told(code) - bare if ABOUT.search(one) or one.startswith("ZG")}
            if about:
                alarms[said] = about
    return found, alarms


def show(shown: list[Explained], rows: list[tuple[str, Said, Said]], *, markdown: bool) -> None:
    """The table."""
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

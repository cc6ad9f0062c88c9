"""`zerograd doctor`: what is installed, and what zerograd can and cannot check and watch here."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Iterator

from zerograd import __version__

_EXTRAS = {"lsp": ("pygls", "2", "zerograd server"), "mcp": ("mcp", "2", "zerograd mcp")}
"""By name of the extra: the package, its major version, and what needs it."""
_LIBRARIES = ("pytest", "ipython", "lightning", "pytorch-lightning", "transformers", "accelerate")
"""Libraries that zerograd works in."""


def add(parser: argparse.ArgumentParser) -> None:
    """The options of `doctor`: there are none."""
    parser.description = "Says what is installed, and what can be checked and watched here."
    parser.epilog = "exit: 0, also if torch is missing: check does not need it"


def run(arguments: argparse.Namespace) -> int:
    """Print what is there; the exit code."""
    rows = [*_versions(), *_check(), *_watch(), *_places()]
    width = max(len(label) for label, _ in rows)
    for label, text in rows:
        print(f"{label:<{width}}  {text}")
    return 0


def _versions() -> Iterator[tuple[str, str]]:
    yield "zerograd", f"{__version__} ({os.path.dirname(os.path.dirname(__file__))})"
    yield "python", f"{platform.python_version()} ({sys.executable})"
    yield "system", f"{platform.system()} {platform.machine()}"


def _check() -> Iterator[tuple[str, str]]:
    from zerograd.check.cache import directory
    from zerograd.check.discover import Discovery

    discovery = Discovery()
    settings = discovery.settings_above(os.getcwd())
    yield "settings", settings.path or "none: no pyproject.toml above here has [tool.zerograd]"
    for problem in discovery.found.problems:
        yield "problem", f"{problem.path} {problem.message}"
    yield "cache", directory()
    yield "check", f"{_rules_but('runtime')} need a run"


def _rules_but(reader: str) -> str:
    """How many rules do not need this reader, and the codes of those that do."""
    from zerograd.rules.catalogue import PAGES

    others = [page.code for page in PAGES if page.only == reader]
    return f"{len(PAGES) - len(others)} of {len(PAGES)} rules; {', '.join(others)}"


def _watch() -> Iterator[tuple[str, str]]:
    from zerograd.runtime.patches import Unsupported, load_torch

    try:
        torch = load_torch()
    except Unsupported as error:
        yield "run", f"not possible: {error}"
        return
    yield "torch", str(torch.__version__)
    yield "run", f"{_rules_but('static')} need the source"
    yield (
        "watched",
        "backward, zero_grad, clips and steps of every torch.optim.Optimizer, GradScaler",
    )
    if torch.distributed.is_available():
        yield "watched", "ranks: DDP, FSDP2 and collective calls"
    else:
        yield "not watched", "ranks: this build of torch has no torch.distributed"
    yield (
        "not watched",
        "steps in code that torch.compile has compiled: it calls no hooks",
    )
    yield "not watched", "optimizers that are not a torch.optim.Optimizer: they have no hooks"


def _places() -> Iterator[tuple[str, str]]:
    """Where zerograd can be used here, and what is missing for the rest."""
    from zerograd.launch.start_file import written

    for extra, (package, major, command) in _EXTRAS.items():
        found = _version(package)
        way = f"pip install 'zerograd[{extra}]'"
        if not found:
            yield "missing", f"{package}, for {command}: {way}"
        elif found.split(".")[0] != major:
            yield "missing", f"{package} {major}, for {command}; {found} is installed: {way}"
        else:
            yield "extra", f"{package} {found}, for {command}"
    here = [f"{name} {found}" for name in _LIBRARIES if (found := _version(name))]
    yield "libraries", ", ".join(here) or "none that zerograd works in"
    files = written()
    mode = os.environ.get("ZEROGRAD") or "not set"
    for path in files:
        yield "enabled", f"{path} reads the variable ZEROGRAD, which is {mode}"
    if not files:
        yield "enabled", "no: zerograd enable lets the variable ZEROGRAD watch what runs here"


def _version(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return ""

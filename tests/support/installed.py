"""Runs the tests that do not read the source tree against the wheel, installed where there is no source tree.

    python tests/support/installed.py [arguments of pytest]       make test-wheel

The wheel is built and installed into an environment of its own, which takes the other packages from the one that runs
this. Only the tests are copied beside it. Which of them read more of the repository than `tests` is derived from their
code: they, or a module of `support` that they import, use ROOT for another folder, or import a module of `bench`.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"


def readers() -> list[Path]:
    """The test modules that read more of the repository than the tests."""
    bench = {path.stem for path in (ROOT / "bench").iterdir()}
    reads: dict[str, bool] = {}

    def reading(path: Path) -> bool:
        name = str(path)
        if name not in reads:
            reads[name] = False  # for imports in a circle
            tree = ast.parse(path.read_text(encoding="utf-8"))
            reads[name] = _uses_root(tree) or any(
                module in bench or (found is not None and reading(found))
                for module, found in _imports(tree)
            )
        return reads[name]

    return [path for path in sorted(TESTS.rglob("test_*.py")) if reading(path)]


def _uses_root(tree: ast.Module) -> bool:
    """Whether ROOT is used for anything but `ROOT / "tests"`."""
    own = {
        id(node.left)
        for node in ast.walk(tree)
        if isinstance(node, ast.BinOp)
        and isinstance(node.right, ast.Constant)
        and str(node.right.value).split("/")[0] == "tests"
    }
    return any(
        isinstance(node, ast.Name)
        and node.id == "ROOT"
        and isinstance(node.ctx, ast.Load)
        and id(node) not in own
        for node in ast.walk(tree)
    )


def _imports(tree: ast.Module) -> Iterator[tuple[str, Path | None]]:
    """The first part of the name of each imported module, and its file if it is one of `support`."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{one.name}" for one in node.names)]
        for name in names:
            file = TESTS / (name.replace(".", "/") + ".py")
            inside = name.startswith("support.") and file.exists()
            yield name.partition(".")[0], file if inside else None


def install(folder: Path) -> Path:
    """Build the wheel, and install it into an environment; its Python."""
    dist = folder / "dist"
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(dist)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = dist.glob("*.whl")
    home = folder / "environment"
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    install = ["-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--no-deps"]
    subprocess.run([str(python), *install, str(wheel)], check=True)
    # Lines of a file like this one are added to the path, but the files in that folder, which lead to the source tree,
    # are not read.
    found = subprocess.run(
        [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    )
    others = Path(found.stdout.strip()) / "others.pth"
    others.write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return python


def main(words: list[str]) -> int:
    """Run the tests; the exit code is that of pytest."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        python = install(folder)
        here = folder / "copy"
        left_out = shutil.ignore_patterns("__pycache__", "libraries")
        shutil.copytree(TESTS, here / "tests", ignore=left_out)
        shutil.copy(ROOT / "pyproject.toml", here)
        ignored = [f"--ignore={path.relative_to(ROOT)}" for path in readers()]
        where = [str(python), "-c", "import zerograd; print(zerograd.__file__)"]
        place = subprocess.run(where, cwd=here, check=True, capture_output=True, text=True).stdout
        assert place.startswith(str(folder)), place
        sys.stderr.write(f"{len(ignored)} test modules read the source tree and are left out\n")
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        environment["PATH"] = f"{python.parent}{os.pathsep}{environment['PATH']}"
        command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *ignored, *words]
        return subprocess.run(command, cwd=here, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

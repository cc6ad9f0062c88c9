"""Where on disk an import leads: the file of the project that a dotted name is defined in, by names alone."""

from __future__ import annotations

import os
import time

from zerograd.static.read.recent import Recent


def locate(path: str, dotted: str) -> tuple[str, str] | None:
    """The file that `dotted`, imported in the file at `path`, is in, and the rest of the name.

    None for what is not part of the project.
    """
    here = os.path.dirname(os.path.abspath(path))
    now = time.monotonic()
    since, found = _LOCATED.get((here, dotted)) or (-FRESH, None)
    if now - since >= FRESH:
        found = _found(here, dotted)
        _LOCATED.put((here, dotted), (now, found))
    return found


def _found(here: str, dotted: str) -> tuple[str, str] | None:
    """The file that `dotted`, imported in a folder, is in, and the rest of the name."""
    if dotted.startswith("."):
        level = len(dotted) - len(dotted.lstrip("."))
        for _ in range(level - 1):
            here = os.path.dirname(here)
        return _below(here, dotted.lstrip(".").split("."), 0)
    parts = dotted.split(".")
    first = None
    for root in _search_path(here):
        names = listing(root)
        if parts[0] in names or f"{parts[0]}.py" in names:
            found = _below(root, parts, 1)
            if found is not None and "." not in found[1]:
                return found
            # A file has no modules in it: `kit/kit.py` is not the `kit` of `from kit.optim import Adam`.
            first = first or found
    return first


def _below(base: str, parts: list[str], least: int) -> tuple[str, str] | None:
    """The longest part of a dotted name that is a file below a folder."""
    parts = [part for part in parts if part]
    for taken in range(len(parts), least - 1, -1):
        stem = os.path.join(base, *parts[:taken])
        folder, name = os.path.split(stem)
        rest = ".".join(parts[taken:])
        if taken and f"{name}.py" in listing(folder):
            return f"{stem}.py", rest
        if "__init__.py" in listing(stem):
            return os.path.join(stem, "__init__.py"), rest
    return None


def _search_path(here: str) -> list[str]:
    """A folder, then upwards to the project's root, with `src/` beside.

    A `setup.py` also marks a part of a project: the root is the topmost folder that is marked.
    """
    now = time.monotonic()
    since, roots = _PATHS.get(here) or (-FRESH, [])
    if now - since < FRESH:
        return roots
    roots = []
    marked = 0
    folder = here
    for _ in range(8):
        roots.append(folder)
        names = listing(folder)
        if "src" in names and os.path.isdir(os.path.join(folder, "src")):
            roots.append(os.path.join(folder, "src"))
        if not names.isdisjoint(_ROOT_MARKS):
            marked = len(roots)
        parent = os.path.dirname(folder)
        if ".git" in names or parent == folder:
            break
        folder = parent
    del roots[marked or len(roots) :]
    _PATHS.put(here, (now, roots))
    return roots


def project_folders(path: str) -> list[str]:
    """The folders that may be the project of a file, the most likely one first; each holds the next.

    A project that nothing marks begins at the topmost folder around the file that holds code or says what it is.
    """
    here = os.path.dirname(os.path.abspath(path))
    folders: list[str] = []
    for folder in _search_path(here):
        if here == folder or here.startswith(os.path.join(folder, "")):  # else it is a `src` beside
            folders.append(folder)
            if is_marked(folder):
                return folders[::-1]
    folders = [here]
    for _ in range(8):
        parent = os.path.dirname(here)
        names = listing(parent)
        if not any(name.endswith(".py") or name.startswith(_SAYS) for name in names):
            break
        folders.append(parent)
        here = parent
    return folders[::-1]


def is_marked(folder: str) -> bool:
    """Whether something in a folder says that it is the root of a project."""
    return not listing(folder).isdisjoint(_ROOT_MARKS)


_SAYS = ("README", "LICENSE", "requirements")

MOST_FOLDERS = 1_000
"""How many folders are remembered."""
MOST_NAMES = 10_000
"""How many imported names are remembered."""
_PATHS: Recent[str, tuple[float, list[str]]] = Recent(MOST_FOLDERS)
_LOCATED: Recent[tuple[str, str], tuple[float, tuple[str, str] | None]] = Recent(MOST_NAMES)

_ROOT_MARKS = (".git", "pyproject.toml", "setup.py", "setup.cfg")
OUTSIDE = frozenset(
    {"torch", "numpy", "os", "sys", "math", "time", "random", "json", "argparse", "logging", "typing",
     "collections", "functools", "itertools", "tqdm", "torchvision", "torchaudio", "transformers",
     "accelerate", "lightning", "pytorch_lightning", "datasets", "wandb", "sklearn", "scipy", "pandas",
     "matplotlib", "PIL", "cv2", "einops", "timm", "deepspeed", "apex", "copy", "pathlib", "re"}
)  # fmt: skip
"""Packages that are never part of the project that is read; saves looking for them on disk."""


def listing(folder: str) -> frozenset[str]:
    """What a folder holds; files of one project ask for the same few folders."""
    now = time.monotonic()
    since, changed, names = _LISTINGS.get(folder) or (-FRESH, None, frozenset())
    if now - since >= FRESH:
        try:
            last = os.stat(folder).st_mtime_ns
            if last != changed:
                changed, names = last, frozenset(os.listdir(folder))
        except OSError:
            changed, names = None, frozenset()
        _LISTINGS.put(folder, (now, changed, names))
    return names


_LISTINGS: Recent[str, tuple[float, int | None, frozenset[str]]] = Recent(MOST_FOLDERS)
FRESH = 2.0
"""Seconds for which a folder is taken to hold what it held.

It saves 4 % of the instructions of a check, and system calls besides (40 files of `bench/ecosystem.txt`
that are parsed).
"""

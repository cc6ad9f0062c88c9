"""A notebook as one module: its code cells joined, with blank lines for what is not Python.

Every line of a cell stays a line of the text, so that a line of the text is a line of a cell.
"""

from __future__ import annotations

from collections.abc import Sequence

from zerograd.core.finding import Problem
from zerograd.core.late_pattern import pattern
from zerograd.static.read.source import (
    Cell,
    Source,
    Unreadable,
    parse_text,
    refuse_size,
    why_broken,
)

_PYTHON = ("python", "ipython")
_RUNS_PYTHON = (
    "%%time",
    "%%timeit",
    "%%capture",
    "%%prun",
    "%%python",
    "%%python3",
    "%%memit",
    "%%zerograd",
)
"""Cell magics whose body is Python that runs in the notebook's own process, or as if it did."""
_CELL_MAGIC = pattern(r"^%%\w+")
_LINE_MAGIC = pattern(
    r"^(?P<indent>\s*)"
    r"(?:%{1,2}[A-Za-z_]|!(?!=)|\?|[A-Za-z_][\w.\[\]]*\?{1,2}\s*$"
    # IPython takes these names as magics even without the sign.
    r"|(?:pip|conda|cd|ls|mkdir|rm|cp|mv|cat|pwd)(?:\s+[-\w./~]|\s*$))"
)
_MAGIC_VALUE = pattern(r"^(?P<target>\s*[\w.,\[\]()\s]+=\s*)(?:%[A-Za-z_]|!(?!=))")


def from_notebook(text: str, path: str) -> Source:
    """The Python of a notebook's JSON; a notebook of another language has none."""
    import json

    try:
        notebook = json.loads(text)
        cells = _cells(notebook)
    except json.JSONDecodeError as error:
        message = f"is not a notebook: its JSON breaks ({error.msg}); save it again from Jupyter"
        raise Unreadable(Problem(path, message, error.lineno)) from None
    except (RecursionError, TypeError, AttributeError, KeyError):
        message = "is not a notebook: its JSON has no cells; save it again from Jupyter"
        raise Unreadable(Problem(path, message)) from None
    return from_cells(cells if _is_python(notebook) else [], path)


def from_cells(cells: Sequence[tuple[int, str]], path: str) -> Source:
    """The Python of code cells, given with their numbers in the order in which they run."""
    refuse_size("\n".join(code for _, code in cells), path)
    joined: list[str] = []
    placed: list[Cell] = []
    problems: list[Problem] = []
    for number, code in cells:
        code = code.replace("\r\n", "\n").replace("\r", "\n").replace("\0", " ")
        placed.append(Cell(number, len(joined) + 1, tuple(code.split("\n"))))
        python, problem = _python_of(code)
        if problem:
            problems.append(Problem(path, f"cell {number} {problem}; the other cells are checked"))
        joined.extend(python)
    text = "\n".join(joined) + "\n" if cells else ""
    return Source(path, text, tuple(placed), tuple(problems))


def _cells(notebook: dict[str, object]) -> list[tuple[int, str]]:
    """The code cells with their numbers, whatever the notebook format."""
    if not isinstance(notebook, dict):
        raise TypeError
    raw: object = notebook.get("cells")
    if raw is None:
        # nbformat 3 kept cells in worksheets.
        sheets = notebook["worksheets"]
        raw = [cell for sheet in sheets for cell in sheet["cells"]]  # type: ignore[attr-defined]
    if not isinstance(raw, list):
        raise TypeError
    found = []
    for number, cell in enumerate(raw, start=1):
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        if _foreign_cell(cell):
            continue
        code = cell.get("source", cell.get("input", ""))
        found.append((number, "".join(map(str, code)) if isinstance(code, list) else str(code)))
    return found


def _foreign_cell(cell: dict[str, object]) -> bool:
    metadata = cell.get("metadata")
    editor = metadata.get("vscode") if isinstance(metadata, dict) else None
    language = editor.get("languageId") if isinstance(editor, dict) else None
    return isinstance(language, str) and language not in _PYTHON


def _is_python(notebook: dict[str, object]) -> bool:
    metadata = notebook.get("metadata")
    if not isinstance(metadata, dict):
        return True
    for group, key in (("language_info", "name"), ("kernelspec", "language")):
        entry = metadata.get(group)
        language = entry.get(key) if isinstance(entry, dict) else None
        if isinstance(language, str) and language:
            return language.lower() in _PYTHON
    return True


def _python_of(code: str) -> tuple[list[str], str]:
    """The cell's lines as Python, and what is wrong with the cell if they had to be left out."""
    lines = code.split("\n")
    if _broken(code) is None:
        return lines, ""
    lines = _without_magics(lines)
    error = _broken("\n".join(lines))
    if error is None:
        return lines, ""
    return [""] * len(lines), error


def _broken(code: str) -> str | None:
    try:
        parse_text(code + "\n")
    except SyntaxError as error:
        where = f"line {error.lineno} " if error.lineno else ""
        return where + why_broken(error, code)
    except (RecursionError, MemoryError, ValueError):
        return "is nested too deeply to be parsed"
    return None


def _without_magics(lines: list[str]) -> list[str]:
    """As many lines, without IPython's own syntax."""
    first = next((number for number, line in enumerate(lines) if line.strip()), 0)
    if _CELL_MAGIC.match(lines[first]):
        if not lines[first].startswith(_RUNS_PYTHON):
            return [""] * len(lines)
        lines = [*lines[:first], "", *lines[first + 1 :]]
    python = []
    continued = False
    for line in lines:
        if continued:
            python.append("")
            continued = line.rstrip().endswith("\\")
        elif match := _LINE_MAGIC.match(line):
            # A block may have no other statement.
            python.append(f"{match['indent']}pass")
            continued = line.rstrip().endswith("\\")
        elif match := _MAGIC_VALUE.match(line):
            python.append(f"{match['target']}None")
            continued = line.rstrip().endswith("\\")
        else:
            python.append(line)
    return python

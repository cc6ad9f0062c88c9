"""`# zerograd: allow[name]`: the comments by which an author silences rules, and what they cover.

A comment behind code covers that statement; on a line of its own it covers the statement
below (a whole function, if that is one); before the first statement it covers the file.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator

from zerograd.core.events import Site
from zerograd.core.finding import Finding
from zerograd.core.late_pattern import pattern
from zerograd.core.records import dataclass, field

_COMMENT = pattern(r"#\s*zerograd:\s*allow(?:\[(?P<names>[^\]]*)\])?")


@dataclass
class Allow:
    """One name in one comment, the lines it covers, and whether it was needed."""

    name: str
    site: Site
    first: int
    last: float
    known: bool
    used: bool = field(default=False)

    def covers(self, finding: Finding) -> bool:
        """Whether this is the rule and the place that it was written for."""
        begin = finding.site.line
        end = max(begin, finding.site.end_line)
        named = self.name in (finding.code, finding.name)
        here = self.site.path == finding.site.path
        return named and here and begin <= self.last and end >= self.first


def find_allows(text: str, path: str, tree: ast.Module, known: Collection[str]) -> list[Allow]:
    """The allow comments of a file, each with the lines it covers."""
    found = []
    spans = _Spans(tree)
    lines = text.split("\n")
    for line, column, comment in _comments(text):
        for match in _COMMENT.finditer(comment):
            alone = not lines[line - 1][:column].strip()
            first, last = spans.below(line) if alone else spans.around(line)
            start = column + match.start() + 1
            site = Site(path, line, start, line, start + len(match[0]))
            names = [name.strip() for name in (match["names"] or "").split(",")]
            found += [Allow(name, site, first, last, name in known) for name in names]
    return found


def allows(text: str, finding: Finding) -> bool:
    """Whether a comment in the text allows a finding that points into it."""
    if "zerograd:" not in text:
        return False
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    path = finding.site.path
    known = (finding.code, finding.name)
    return any(one.covers(finding) for one in find_allows(text, path, tree, known))


def _comments(text: str) -> Iterator[tuple[int, int, str]]:
    import tokenize

    lines = (line + "\n" for line in text.split("\n"))
    try:
        for token in tokenize.generate_tokens(lambda: next(lines, "")):
            if token.type == tokenize.COMMENT and "zerograd" in token.string:
                yield token.start[0], token.start[1], token.string
    except (tokenize.TokenError, SyntaxError):
        return


class _Spans:
    """Which lines belong to the statement around or below a line."""

    def __init__(self, tree: ast.Module) -> None:
        self._statements = _statements(tree)
        body = tree.body[1:] if _is_docstring(tree.body) else tree.body
        self._top = first_line(body[0]) if body else 0

    def around(self, line: int) -> tuple[int, float]:
        """The simple statement, or the header of the compound one, on this line."""
        best = (line, line)
        for first, header, last, whole in self._statements:
            if first <= line <= header:
                best = (first, last if whole else header)
        return best

    def below(self, line: int) -> tuple[int, float]:
        """The statement that begins after this line; the whole file before the first one."""
        if line < self._top or not self._statements:
            return 1, float("inf")
        after = [entry for entry in self._statements if entry[0] > line]
        if not after:
            return line, line
        first, _, last, _ = min(after, key=lambda entry: (entry[0], -entry[2]))
        return first, last


def _statements(tree: ast.Module) -> list[tuple[int, int, int, bool]]:
    """First line, last of the header, last line, and whether a comment in the header covers the whole statement."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.stmt):
            continue
        last = node.end_lineno or node.lineno
        body = getattr(node, "body", None) or getattr(node, "cases", None)
        header = last
        if body:
            inner = body[0]
            start = inner.pattern.lineno if isinstance(inner, ast.match_case) else first_line(inner)
            header = max(node.lineno, start - 1)
        whole = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        found.append((first_line(node), header, last, whole))
    return found


def first_line(node: ast.stmt) -> int:
    """Where a statement begins, decorators included."""
    decorators: Iterable[ast.expr] = getattr(node, "decorator_list", ())
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _is_docstring(body: list[ast.stmt]) -> bool:
    if not body or not isinstance(body[0], ast.Expr):
        return False
    value = body[0].value
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def apply(findings: Iterable[Finding], allows: list[Allow]) -> list[Finding]:
    """The findings that nothing allows; the allows that were needed are marked so."""
    kept = []
    for finding in findings:
        covering = [allow for allow in allows if allow.covers(finding)]
        for allow in covering:
            allow.used = True
        if not covering:
            kept.append(finding)
    return kept

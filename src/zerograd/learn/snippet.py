"""A piece of code that is shown, checked, run and watched: the same text each time.

The code before it (imports, a model, data) is kept apart, so that line 1 is the snippet's first line.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from zerograd.core.events import Site
from zerograd.core.finding import Finding, Report
from zerograd.static.check_file import check_text

Names = dict[str, Any]


@dataclass(frozen=True)
class Snippet:
    """Code with the name of a file, and the code that runs before it."""

    code: str
    given: str = ""
    name: str = "train.py"

    def check(self) -> Report:
        """Check it without running it."""
        above = self.given.count("\n")
        report = check_text(self.given + self.code, self.name)
        findings = [_moved(finding, above) for finding in report.findings]
        report = replace(report, findings=findings, sources={})
        if findings:
            report.sources[self.name] = self.code.splitlines()
        return report

    def watch(self, raises: tuple[type[Exception], ...] = ()) -> Report:
        """Run and watch it; exceptions of the types `raises` belong to the example."""
        from zerograd.runtime.watch import Watch

        with Watch(on="collect") as report:
            self.run(raises=raises)
        return report

    def run(
        self,
        before: Callable[[Names], object] | None = None,
        after: Callable[[str, Names], object] | None = None,
        raises: tuple[type[Exception], ...] = (),
    ) -> Names:
        """Run it; its variables. `before` is called with the given ones, `after` after each statement."""
        lines = self.code.splitlines(keepends=True)
        # Excerpts of a watched run come from here, because there is no such file.
        linecache.cache[self.name] = (len(self.code), None, lines, self.name)
        names: Names = {"__name__": "snippet"}
        exec(compile(self.given, f"above {self.name}", "exec"), names)
        if before is not None:
            before(names)
        if after is None:
            statements = [ast.parse(self.code)]
        else:
            body = ast.parse(self.code).body
            statements = [ast.Module([statement], []) for statement in body]
        for tree in statements:
            try:
                exec(compile(tree, self.name, "exec"), names)
            except raises as error:
                names["error"] = error
                return names
            if after is not None:
                after(ast.unparse(tree), names)
        return names


def _moved(finding: Finding, above: int) -> Finding:
    notes = tuple(replace(note, site=_up(note.site, above)) for note in finding.notes)
    return replace(finding, site=_up(finding.site, above), notes=notes)


def _up(site: Site, above: int) -> Site:
    return replace(site, line=site.line - above, end_line=max(0, site.end_line - above))

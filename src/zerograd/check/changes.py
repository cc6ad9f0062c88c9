"""What has changed since a revision: the functions that differ from the merge base with it.

The work tree is compared, so changes that are not committed count, and files that git does not track are new.
"""

from __future__ import annotations

import os
from functools import cached_property

from zerograd.check.function_texts import Files, Function, enclosing, functions
from zerograd.check.settings import relative_to
from zerograd.core.events import Site
from zerograd.core.finding import Finding
from zerograd.core.usage_error import UsageError
from zerograd.static.check_file import lines_of
from zerograd.static.read.load import from_bytes
from zerograd.static.read.source import Unreadable


class ChangedFunctions:
    """The functions that differ from the merge base of a revision and HEAD."""

    def __init__(self, revision: str, folder: str) -> None:
        self._folder = folder
        try:
            top = self._git("rev-parse", "--show-toplevel")
        except FileNotFoundError:
            raise UsageError("--diff-base needs git, which was not found") from None
        if top is None:
            raise UsageError(f"--diff-base needs a git repository, but {folder} is not in one")
        self._top = os.path.realpath(os.fsdecode(top.rstrip(b"\n")))
        self._base = self._merge_base(revision)
        self._functions: dict[str, frozenset[Function]] = {}

    def touch(self, finding: Finding, files: Files) -> bool:
        """Whether an end of a finding is in a function that differs."""
        sites = (finding.site, *(note.site for note in finding.notes))
        return any(self._differs(site, files) for site in sites)

    def touch_file(self, path: str) -> bool:
        """Whether a file is new, or differs anywhere."""
        path = self._from_top(path)
        return path in self._changed or path not in self._tracked

    def _differs(self, site: Site, files: Files) -> bool:
        path = self._from_top(site.path)
        if path not in self._tracked:
            return True
        if path not in self._changed:
            return False
        if path not in self._functions:
            self._functions[path] = self._before(self._changed[path])
        return enclosing(files.lines(site), site.line) not in self._functions[path]

    def _from_top(self, path: str) -> str:
        return relative_to(os.path.realpath(path), self._top)

    def _merge_base(self, revision: str) -> str:
        commit = self._git(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"
        )
        if commit is None:
            hint = "fetch it, or name another one"
            raise UsageError(f"--diff-base: there is no revision {revision!r} here; {hint}")
        base = self._git("merge-base", commit.decode().strip(), "HEAD")
        if base is None:
            hint = "a shallow clone needs more history: git fetch --unshallow"
            raise UsageError(f"--diff-base: {revision!r} and HEAD have no common commit; {hint}")
        return base.decode().strip()

    @cached_property
    def _tracked(self) -> frozenset[str]:
        listed = self._git("ls-files", "-z", "--full-name", "--", ":/") or b""
        return frozenset(map(os.fsdecode, listed.split(b"\0")))

    @cached_property
    def _changed(self) -> dict[str, str]:
        """The changed files, each with its name at the merge base; none for a new file."""
        output = self._git("diff", "--name-status", "-z", "--find-renames", self._base, "--", ":/")
        fields = iter(map(os.fsdecode, (output or b"").split(b"\0")))
        found = {}
        for status in fields:
            if not status:
                break
            old = next(fields)
            found[next(fields) if status[0] in "RC" else old] = "" if status[0] == "A" else old
        return found

    def _before(self, path: str) -> frozenset[Function]:
        data = self._git("show", f"{self._base}:{path}") if path else None
        if data is None:
            return frozenset()
        try:
            cells = lines_of(from_bytes(data, path)).values()
        except Unreadable:
            return frozenset()
        return frozenset().union(*map(functions, cells))

    def _git(self, *arguments: str) -> bytes | None:
        """The output of git; None if it failed."""
        import subprocess

        command = ["git", "-C", self._folder, *arguments]
        done = subprocess.run(command, capture_output=True, check=False)
        return done.stdout if done.returncode == 0 else None

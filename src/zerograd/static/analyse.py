"""The findings of one file: its roots interpreted, and each subject's gradients followed through them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from zerograd.core.finding import Finding
from zerograd.core.records import dataclass, field
from zerograd.core.training_loop import Found, TrainingLoop, joined
from zerograd.static.interp.interpreter import Program
from zerograd.static.never_stepped import never_stepped
from zerograd.static.outcomes import Outcomes
from zerograd.static.read.budget import PATHS, Cut
from zerograd.static.read.module import Module
from zerograd.static.read.project import Project
from zerograd.static.read.source import Source
from zerograd.static.read.vocabulary import RIVALS
from zerograd.static.reuse import FileMemory, Recalled, Reuse
from zerograd.static.roots import Roots
from zerograd.static.untrained_modules import untrained_modules
from zerograd.static.written_loops import not_read

if TYPE_CHECKING:
    from zerograd.static.training_loops import LoopsOfRoot


@dataclass
class Analysis:
    """All that was found in one file."""

    tree: ast.Module
    findings: list[Finding] = field(default_factory=list)
    """All of them, also those that are only possible."""
    depends: list[str] = field(default_factory=list)
    """The paths of the other files and folders that were read."""
    cut: str | None = None
    """What was left out, and why."""
    loops: list[TrainingLoop] = field(default_factory=list)
    """Where gradients are used again and again."""


def analyse(source: Source, *, explain: bool = False, memory: FileMemory | None = None) -> Analysis:
    """Everything in a file that breaks a rule, and its training loops; `explain` accounts for each.

    With a memory of the file's earlier texts, only the findings are given, and the roots that a change does not
    concern are not interpreted again.
    """
    project = Project()
    module = project.add(source, memory.parsed if memory is not None else None)
    if module.packages & RIVALS and not module.imports_torch:
        return Analysis(module.tree)
    program = Program(project, module)
    cut: dict[str, None] = {}
    reuse = Reuse(memory, source, program) if memory is not None else None
    roots = Roots(program, cut, reuse)
    outcomes = Outcomes(reuse.found if reuse is not None else [])
    loops = []
    asked_callers = False
    try:
        for root in roots:
            if isinstance(root, Recalled):
                outcomes.recall(root)
                project.budget.file -= root.spent
                continue
            from zerograd.static.explore_root import (
                RootSearch,  # most files have no root to explore
            )

            search = RootSearch(root, module, project.budget, outcomes, cut, explain)
            loops.append(search.loops)
            search.explore_root()
            asked_callers |= search.asked_callers
    except (Cut, RecursionError) as end:
        why = "there is too much to follow" if isinstance(end, Cut) else "it is nested too deeply"
        cut[f"{why}, from {roots.current} on"] = None
        roots.unread += roots.left_out()
    finally:
        for interpreter in program.interpreters:
            interpreter.forget()
    if memory is not None and reuse is not None:
        if reuse.recalled and (project.budget.file < PATHS or project.is_full):
            # Near its end the budget decides what is found, and it is counted for the whole file.
            memory.forget()
            return analyse(source, memory=memory)
        reuse.end()
    if asked_callers:
        from zerograd.static.read.callers import searched

        project.read.update(searched(module.path))
    if not module.facts[module.tree].mentions:
        # The file does nothing to gradients itself: that it leads to a step was only a guess.
        cut.clear()
    for event in (*untrained_modules(module), *never_stepped(module, project)):
        from zerograd.static.rule_groups import broken_by

        for outcome in broken_by(event):
            outcomes.add(outcome, "")
    findings = outcomes.findings() if outcomes.found else []
    return Analysis(
        module.tree,
        findings,
        sorted(project.read - {module.path}),
        ", ".join(cut) or None,
        _training_loops(module, roots, loops, findings) if memory is None else [],
    )


def _training_loops(
    module: Module, roots: Roots, loops: list[LoopsOfRoot], findings: list[Finding]
) -> list[TrainingLoop]:
    """The training loops of a file, each with those of its findings that are in it."""
    made = [*roots.plain]
    if roots.unread:
        made += not_read(module, roots.unread)
    if loops:
        kept = {
            (one.code, one.site): Found(one.code, one.level, one.certain, one.site)
            for one in findings
        }
        for of_root in loops:
            made += of_root.finished(kept)
    return joined(made)

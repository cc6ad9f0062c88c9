"""A violation with its place, its count and its texts: what reports are made of. Renderers print it."""

from __future__ import annotations

from os import PathLike
from typing import Any, Literal, NamedTuple

from zerograd.core.events import Measured, Site
from zerograd.core.records import Record, dataclass, field
from zerograd.core.training_loop import LoopVerdict

Level = Literal["error", "advice"]
Place = tuple[str, str, int, int | None]
"""A code, a path, a line and, in notebooks, a cell: findings there are the same finding."""
_PRESENTATION = "zerograd.launch.presentation"
"""The module that shows findings and reports. This package must not import it, so it is loaded by its name."""


class Note(Record):
    """The other end of a finding: an earlier (or later) event that belongs to it."""

    site: Site
    message: str


class Edit(Record):
    """Replace the text between two places (lines and columns from 1, end exclusive) by `text`."""

    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    text: str
    cell: int | None = None


class Fix(Record):
    """The edits that repair one finding; safe when they change nothing but what the rule demands."""

    message: str
    safe: bool
    edits: tuple[Edit, ...]


class Finding(Record):
    """One broken rule at one place."""

    code: str
    name: str
    level: Level
    message: str
    site: Site
    label: str = ""
    """A few words under the marked call: `adds to .grad`."""
    notes: tuple[Note, ...] = ()
    certain: bool = True
    when: tuple[str, ...] = ()
    """The branch decisions that lead here, as source text."""
    seen: int | None = None
    ranks: tuple[int, ...] = ()
    """The ranks that have shown it, where there are several."""
    help: str = ""
    step: Site | None = None
    """The step at which it shows, where that is not the site itself."""
    fix: Fix | None = None
    refused: str = ""
    """Why there is no fix, where one was looked for."""
    measured: Measured | None = None
    """The gradient norms in the message, where a run has measured them."""
    optimizer: str = ""
    """Whose gradients: the optimizer as the program names it, where it is about one."""
    subject: str = ""
    """The same in a recording: the subject of the event that shows it."""
    url: str = ""
    """The address of the rule's page, where one is configured."""

    @property
    def place(self) -> Place:
        """Its code and place: another finding with the same ones is the same finding, seen again."""
        return (self.code, self.site.path, self.site.line, self.site.cell)

    @property
    def rank(self) -> int | None:
        """The rank that has shown it, if it is one alone."""
        return self.ranks[0] if len(self.ranks) == 1 else None

    def __str__(self) -> str:
        return str(_presentation().finding_text(self))

    def _repr_html_(self) -> str:
        """What notebooks show."""
        return str(_presentation().finding_fragment(self))

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """What IPython shows on a terminal."""
        printer.text(str(self))


def _presentation() -> Any:
    from importlib import import_module

    return import_module(_PRESENTATION)


class Problem(Record):
    """Something that kept a file from being checked, wholly or in part, and the way out."""

    path: str
    message: str
    line: int | None = None
    names_rank: bool = False
    """The message itself says which rank it is about."""
    skippable: bool = False
    """A file of a directory that has it is left out; only a file that the user names fails for it."""


@dataclass(frozen=True)
class Watched:
    """What was watched in a run, and what could not be watched."""

    optimizers: tuple[str, ...] = ()
    parameters: int = 0
    steps: int = 0
    windows: dict[int, int] = field(default_factory=dict)
    """How many windows there were of each length."""
    ran: tuple[str, ...] = ()
    """The codes of the rules that had something to judge."""
    could_not: dict[str, str] = field(default_factory=dict)
    """The codes of the rules that had nothing to judge, and why."""
    remarks: tuple[str, ...] = ()
    """What was seen and breaks no rule: `3 steps used gradients that are inf or nan`."""
    unwatched: tuple[str, ...] = ()
    """Objects that look like optimizers and are not `torch.optim.Optimizer`s."""
    compiled: tuple[str, ...] = ()
    """The optimizers that stepped in code that torch.compile has compiled, which is not watched."""
    ranks: tuple[int, ...] = ()
    """The ranks that were watched, where there are several."""
    lost: dict[int, int] = field(default_factory=dict)
    """The ranks that did not end, and how many steps each had taken. Their findings until then count."""


class CellKey(NamedTuple):
    """A cell of a notebook."""

    path: str
    number: int


SourceKey = str | CellKey
"""What lines of source are known by: the path of a file, or a cell."""


def source_key(place: Site | Edit) -> SourceKey:
    """What the lines of a place are known by in a report."""
    return place.path if place.cell is None else CellKey(place.path, place.cell)


@dataclass
class Report:
    """All findings of one check or one run."""

    findings: list[Finding] = field(default_factory=list)
    errors: list[Problem] = field(default_factory=list)
    files: int = 0
    sources: dict[SourceKey, list[str]] = field(default_factory=dict)
    """Lines of the files and cells that findings point into."""
    watched: Watched | None = None
    """What a run was watched for; None for a check."""
    fixed: int | None = None
    """How many findings were repaired; None if no repair was asked for."""
    skipped: list[Problem] = field(default_factory=list)
    """The files of directories that were left out, and why."""
    loops: list[LoopVerdict] | None = None
    """The training loops that were checked; None for a run."""
    known: int = 0
    """How many findings are not shown because a baseline knows them."""
    unchanged: int = 0
    """How many findings and problems are not shown because their function, or their file, has not changed."""
    lists_loops: bool = False
    """The loops are listed one by one, not only counted."""

    @property
    def exit_code(self) -> int:
        """0 clean, 1 findings of level error, 2 something could not be checked."""
        if self.errors:
            return 2
        return int(any(f.level == "error" for f in self.findings))

    def __str__(self) -> str:
        return str(_presentation().report_text(self))

    def _repr_html_(self) -> str:
        """What notebooks show."""
        return str(_presentation().report_fragment(self))

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """What IPython shows on a terminal."""
        printer.text(str(self))

    def html(self, path: str | PathLike[str]) -> str:
        """Write the report as a web page that needs no network; returns its path."""
        return str(_presentation().page(self, path))

    def show(self) -> None:
        """Show that page: below the cell in a notebook, otherwise in a browser."""
        _presentation().show(self)

"""What the server answers: diagnostics as you type, hover, quick fixes.

Diagnostics are for the newest text only. A text that does not parse keeps the diagnostics it has.
"""

from __future__ import annotations

import asyncio
import gc
import os
import re
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import unquote

from lsprotocol import types
from pygls import uris
from pygls.lsp.server import LanguageServer
from pygls.workspace import TextDocument, Workspace

from zerograd import __version__
from zerograd.check.check_session import CheckOptions
from zerograd.core.finding import Edit, Finding
from zerograd.rules.catalogue import PAGES
from zerograd.server.client_positions import Positions
from zerograd.server.editor_checks import (
    Checked,
    Checker,
    Text,
    allowing,
    lines_of_text,
    with_repair,
)
from zerograd.server.job_queue import JobQueue, Stale
from zerograd.static.read.project import forget_modules

DEBOUNCE = 0.05
"""Seconds without a change after which a text is checked."""

T = TypeVar("T")
_ALLOW = re.compile(r"zerograd:\s*allow\[(?P<names>[^\]]*)\]")
_NOTEBOOKS = types.NotebookDocumentSyncOptions(
    notebook_selector=[
        types.NotebookDocumentFilterWithCells(
            cells=[types.NotebookCellLanguage(language="python")], notebook="jupyter-notebook"
        )
    ],
    save=True,
)


class _Document(TextDocument):
    """A text whose lines end where the protocol says: pygls ends them at form feeds, too."""

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z", self.source))


class _Workspace(Workspace):
    def _create_text_document(
        self,
        doc_uri: str,
        source: str | None = None,
        version: int | None = None,
        language_id: str | None = None,
    ) -> TextDocument:
        return _Document(
            doc_uri,
            source=source,
            version=version,
            language_id=language_id,
            sync_kind=self._sync_kind,
            position_codec=self._position_codec,
        )


@dataclass
class _Shown:
    """A finding, and what the client shows of it."""

    finding: Finding
    diagnostic: types.Diagnostic


@dataclass
class _Open:
    """An open file or notebook."""

    checked: Checked
    positions: Positions
    versions: dict[str, int | None]
    """The version of each document when it was checked."""
    shown: dict[str, list[_Shown]] = field(default_factory=dict)
    """By document."""


class _Server(LanguageServer):
    """The open texts, and what is known about them. All but the jobs runs in the protocol's thread."""

    def __init__(self, options: CheckOptions) -> None:
        super().__init__(
            "zerograd",
            __version__,
            types.TextDocumentSyncKind.Incremental,
            notebook_document_sync=_NOTEBOOKS,
        )
        self.checker = Checker(options)
        self.jobs = JobQueue(self.checker.tidy)
        self.open: dict[str, _Open] = {}
        self.timers: dict[str, asyncio.TimerHandle] = {}
        self.logged: set[str] = set()

    def key_of(self, uri: str) -> str:
        """The address of the notebook that a cell is in, or of the document itself."""
        notebook = self.workspace.get_notebook_document(cell_uri=uri)
        return uri if notebook is None else notebook.uri

    def is_open(self, key: str) -> bool:
        """Whether the client has opened a file or notebook, and has not closed it."""
        held = self.workspace
        return (
            unquote(key) in held.text_documents
            or held.get_notebook_document(notebook_uri=key) is not None
        )

    def check_soon(self, key: str, delay: float = DEBOUNCE) -> None:
        """Check a text after a while without changes."""
        self.forget_requests()
        self.stop_timer(key)
        self.timers[key] = asyncio.get_running_loop().call_later(delay, self.check, key)

    def stop_timer(self, key: str) -> None:
        """Do not check a text after all."""
        if (timer := self.timers.pop(key, None)) is not None:
            timer.cancel()

    def forget_requests(self) -> None:
        """Let go of finished notifications, which pygls keeps for ever."""
        held = self.protocol._request_futures  # noqa: SLF001 (there is no public way)
        for ident in [ident for ident, future in held.items() if future.done()]:
            del held[ident]

    def check(self, key: str) -> None:
        """Check the newest text now."""
        self.timers.pop(key, None)
        if not self.is_open(key):
            return
        text, documents = self.text_of(key)
        versions = {uri: self.workspace.get_text_document(uri).version for uri in documents}
        loop = asyncio.get_running_loop()
        top = self.folder_of(text.path)

        def job() -> None:
            checked = self.checker.check(text, top)
            loop.call_soon_threadsafe(self.publish, key, checked, versions)

        self.jobs.put(("check", key), job)

    def text_of(self, key: str) -> tuple[Text, list[str]]:
        """The text of a file or notebook, and the addresses of its documents."""
        notebook = self.workspace.get_notebook_document(notebook_uri=key)
        if notebook is None:
            source = self.workspace.get_text_document(key).source
            return Text(_path_of(key, ".py"), source), [key]
        cells: list[str | None] = []
        for cell in notebook.cells:
            shown = self.workspace.get_text_document(cell.document)
            is_code = cell.kind == types.NotebookCellKind.Code and shown.language_id == "python"
            cells.append(shown.source if is_code else None)
        documents = [cell.document for cell in notebook.cells]
        return Text(_path_of(key, ".ipynb"), cells=tuple(cells)), documents

    def folder_of(self, path: str) -> str:
        """The folder that the user has opened around a file."""
        folders = [uris.to_fs_path(uri) for uri in self.workspace.folders]
        folders.append(self.workspace.root_path)
        around = [one for one in folders if one and path.startswith(os.path.join(one, ""))]
        return max(around, key=len, default=os.path.dirname(path))

    def publish(self, key: str, checked: Checked, versions: dict[str, int | None]) -> None:
        """Tell the client what was found, unless it has changed the text meanwhile."""
        if not self.is_open(key) or not self.is_newest(versions):
            return
        for problem in checked.problems:
            self.log_once(f"{problem.path} {problem.message}")
        before = self.open.get(key)
        if checked.broken and before is not None:
            return
        codec = self.workspace.position_codec
        positions = Positions(checked.text, list(versions), codec)
        now = _Open(checked, positions, versions, {uri: [] for uri in versions})
        for finding in checked.findings:
            site = positions.shown_at(finding)
            if site is not None:
                shown = _Shown(finding, positions.diagnostic(finding, site))
                now.shown[positions.uri(site.path, site.cell)].append(shown)
        self.open[key] = now
        remarks = [
            positions.remark(one) for one in checked.problems if one.path == checked.text.path
        ]
        if checked.text.cells is not None:
            remarks = []
        for uri, version in versions.items():
            found = [one.diagnostic for one in now.shown[uri]]
            self.show(uri, version, [*found, *remarks])

    def show(self, uri: str, version: int | None, found: list[types.Diagnostic]) -> None:
        """Send the client the diagnostics of a document."""
        self.text_document_publish_diagnostics(
            types.PublishDiagnosticsParams(uri, found, version=version)
        )

    def log_once(self, message: str) -> None:
        """Write a message into the client's log, once."""
        if message not in self.logged:
            self.logged.add(message)
            kind = types.MessageType.Warning
            self.window_log_message(types.LogMessageParams(type=kind, message=message))

    def is_newest(self, versions: dict[str, int | None]) -> bool:
        """Whether the client's documents are still those that were checked."""
        held = self.workspace.text_documents
        return all(
            (shown := held.get(unquote(uri))) is not None and shown.version == version
            for uri, version in versions.items()
        )

    def close(self, key: str, documents: list[str]) -> None:
        """Forget a file or notebook, and take its diagnostics back."""
        self.stop_timer(key)
        self.jobs.drop(("check", key))
        if (entry := self.open.pop(key, None)) is not None:
            self.checker.forget(entry.checked.text.path)
        for uri in documents:
            self.show(uri, None, [])

    def known(self, uri: str) -> _Open | None:
        """What is known about the text that a document shows, if the document has not changed."""
        entry = self.open.get(self.key_of(uri))
        if entry is None or uri not in entry.versions:
            return None
        return entry if self.is_newest({uri: entry.versions[uri]}) else None

    def actions(self, entry: _Open, uri: str, wanted: types.Range) -> list[types.CodeAction]:
        """The quick fixes for the findings in a range. It takes long: a job does it."""
        found: list[types.CodeAction] = []
        for shown in entry.shown[uri]:
            if not _overlap(shown.diagnostic.range, wanted):
                continue
            if shown.finding.site.path != entry.checked.text.path:
                continue
            fix = with_repair(entry.checked, shown.finding).fix
            if fix is not None:
                note = "" if fix.safe else " (unsafe: review the result)"
                title = f"{shown.finding.name}: {fix.message}{note}"
                found.append(self.action(entry, shown, title, fix.edits, preferred=fix.safe))
            allow = allowing(entry.checked.text, shown.finding)
            if allow is not None:
                title = f"Allow {shown.finding.name} here"
                found.append(self.action(entry, shown, title, (allow,), preferred=False))
        return found

    def action(
        self, entry: _Open, shown: _Shown, title: str, edits: tuple[Edit, ...], *, preferred: bool
    ) -> types.CodeAction:
        """A quick fix that makes these edits."""
        places = entry.positions
        changed: dict[str, list[types.TextEdit]] = {}
        for edit in edits:
            changed.setdefault(places.uri(edit.path, edit.cell), []).append(places.edit(edit))
        versioned = [
            types.TextDocumentEdit(
                types.OptionalVersionedTextDocumentIdentifier(uri, entry.versions.get(uri)), made
            )
            for uri, made in changed.items()
        ]
        capabilities = self.client_capabilities.workspace
        supported = capabilities and capabilities.workspace_edit
        if supported and supported.document_changes:
            whole = types.WorkspaceEdit(document_changes=versioned)
        else:
            whole = types.WorkspaceEdit(changes=changed)
        return types.CodeAction(
            title,
            kind=types.CodeActionKind.QuickFix,
            diagnostics=[shown.diagnostic],
            is_preferred=preferred or None,
            edit=whole,
        )

    async def done(self, work: Callable[[], T], instead: T) -> T:
        """The result of a job, or `instead` if the job did not come to its end."""
        promise: Future[T] = Future()

        def job() -> None:
            if not promise.set_running_or_notify_cancel():
                return
            try:
                promise.set_result(work())
            except Stale:
                promise.set_result(instead)
                raise
            except Exception as error:  # noqa: BLE001 (the client gets it as the answer)
                promise.set_exception(error)

        self.jobs.put(job, job)
        return await asyncio.wrap_future(promise)

    def pages_at(self, uri: str, at: types.Position) -> tuple[list[str], types.Range | None]:
        """The pages of the rules that a place breaks, or that a comment on its line allows."""
        here = types.Range(at, at)
        entry = self.known(uri)
        shown = entry.shown[uri] if entry is not None else []
        found = [one for one in shown if _overlap(one.diagnostic.range, here)]
        if found:
            return [_page(one.finding.code) for one in found], found[0].diagnostic.range
        held = self.workspace.text_documents.get(unquote(uri))
        lines = lines_of_text(held.source) if held is not None else []
        comment = _ALLOW.search(lines[at.line]) if at.line < len(lines) else None
        names = comment["names"].split(",") if comment is not None else []
        return [page for name in names if (page := _page(name.strip()))], None


def _path_of(uri: str, suffix: str) -> str:
    """The path of a document; one that was never saved gets a name in the current directory."""
    path = uris.to_fs_path(uri) if uri.startswith("file:") else None
    if path is None:
        path = os.path.join(os.getcwd(), re.sub(r"\W+", "-", uri))
    return path if path.endswith((".py", ".ipynb")) else path + suffix


def _overlap(one: types.Range, other: types.Range) -> bool:
    return not (_after(one.start, other.end) or _after(other.start, one.end))


def _after(one: types.Position, other: types.Position) -> bool:
    return (one.line, one.character) > (other.line, other.character)


def _page(name: str) -> str:
    """The page of a rule, in Markdown."""
    for page in PAGES:
        if name in (page.code, page.name):
            return f"**{page.code} {page.name}** ({page.level})\n\n{page.doc.strip()}\n"
    return ""


def create(options: CheckOptions) -> _Server:
    """A server that answers; it is not started yet."""
    server = _Server(options)

    @server.feature(types.INITIALIZE)
    def initialize(params: types.InitializeParams) -> None:
        made = server.workspace
        server.protocol._workspace = _Workspace(  # noqa: SLF001 (pygls has no way to choose one)
            made.root_uri,
            types.TextDocumentSyncKind.Incremental,
            params.workspace_folders or [],
            made.position_encoding,
        )

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def opened(params: types.DidOpenTextDocumentParams) -> None:
        server.check_soon(params.text_document.uri, 0)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def changed(params: types.DidChangeTextDocumentParams) -> None:
        server.check_soon(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    def saved(params: types.DidSaveTextDocumentParams) -> None:
        # What another file imports may have changed.
        server.checker.forget()
        for key in list(server.open):
            server.check_soon(key, 0)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def closed(params: types.DidCloseTextDocumentParams) -> None:
        server.close(params.text_document.uri, [params.text_document.uri])

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_OPEN)
    def notebook_opened(params: types.DidOpenNotebookDocumentParams) -> None:
        server.check_soon(params.notebook_document.uri, 0)

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_CHANGE)
    def notebook_changed(params: types.DidChangeNotebookDocumentParams) -> None:
        cells = params.change.cells
        structure = cells.structure if cells is not None else None
        for removed in (structure.did_close or ()) if structure is not None else ():
            server.show(removed.uri, None, [])
        server.check_soon(params.notebook_document.uri)

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_CLOSE)
    def notebook_closed(params: types.DidCloseNotebookDocumentParams) -> None:
        cells = [cell.uri for cell in params.cell_text_documents]
        server.close(params.notebook_document.uri, cells)

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    def hover(params: types.HoverParams) -> types.Hover | None:
        pages, place = server.pages_at(params.text_document.uri, params.position)
        if not pages:
            return None
        content = types.MarkupContent(types.MarkupKind.Markdown, "\n---\n".join(pages))
        return types.Hover(content, range=place)

    @server.feature(
        types.TEXT_DOCUMENT_CODE_ACTION,
        types.CodeActionOptions(code_action_kinds=[types.CodeActionKind.QuickFix]),
    )
    async def actions(params: types.CodeActionParams) -> list[types.CodeAction]:
        uri = params.text_document.uri
        entry = server.known(uri)
        only = params.context.only
        asked = only is None or any(one in ("", types.CodeActionKind.QuickFix) for one in only)
        if entry is None or not asked:
            return []
        return await server.done(lambda: server.actions(entry, uri, params.range), [])

    return server


def serve(options: CheckOptions) -> int:
    """Serve one client on standard input and output, until it ends or goes away; the exit code."""
    server = create(options)
    # What anybody prints goes to standard error: standard output belongs to the protocol.
    channel = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def speak() -> None:
        try:
            server.start_io(stdout=channel)
        finally:
            server.jobs.end()

    thread = threading.Thread(target=speak, name="protocol", daemon=True)
    # Garbage is collected while no client waits: it takes longer than many a check.
    gc.freeze()
    gc.disable()
    thread.start()
    server.jobs.run(forget_modules)
    thread.join(timeout=2)
    return 0

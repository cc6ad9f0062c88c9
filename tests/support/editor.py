"""An editor in the tests: a real client that speaks to a real `zerograd server` in a process of its own."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from lsprotocol import types
from pygls.lsp.client import LanguageClient

from support.command import environment

T = TypeVar("T")
PATIENCE = 30.0
"""Seconds that an answer may take on a busy machine."""


class Editor:
    """Opens, changes and closes documents, and keeps what the server says about them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.client = LanguageClient("test editor", "1")
        self.published: list[types.PublishDiagnosticsParams] = []
        self.logged: list[str] = []
        self.versions: dict[str, int] = {}
        self._news = asyncio.Event()

        def published(params: types.PublishDiagnosticsParams) -> None:
            self.published.append(params)
            self._news.set()

        def logged(params: types.LogMessageParams) -> None:
            self.logged.append(params.message)
            self._news.set()

        listen: Any = self.client.feature
        listen(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(published)
        listen(types.WINDOW_LOG_MESSAGE)(logged)

    async def start(self, *words: str) -> types.InitializeResult:
        """Start the server, and shake hands."""
        environment_of_user = environment(self.folder.with_name(f"{self.folder.name}.cache"))
        await self.client.start_io(
            sys.executable,
            "-m",
            "zerograd",
            "server",
            *words,
            cwd=self.folder,
            env=environment_of_user,
        )
        folder = types.WorkspaceFolder(self.folder.as_uri(), self.folder.name)
        edits = types.WorkspaceEditClientCapabilities(document_changes=True)
        cells = types.NotebookDocumentClientCapabilities(
            types.NotebookDocumentSyncClientCapabilities()
        )
        result = await self.client.initialize_async(
            types.InitializeParams(
                types.ClientCapabilities(
                    workspace=types.WorkspaceClientCapabilities(workspace_edit=edits),
                    notebook_document=cells,
                ),
                workspace_folders=[folder],
                root_uri=folder.uri,
            )
        )
        self.client.initialized(types.InitializedParams())
        return result

    async def stop(self) -> None:
        """End the server as an editor does."""
        await self.client.shutdown_async(None)
        self.client.exit(None)
        stop: Any = self.client.stop
        await stop()

    def uri(self, name: str) -> str:
        """The address of a file of the folder."""
        return (self.folder / name).as_uri()

    def open(self, name: str, text: str) -> str:
        """Open a document; its address."""
        uri = self.uri(name)
        self.versions[uri] = 1
        self.client.text_document_did_open(
            types.DidOpenTextDocumentParams(types.TextDocumentItem(uri, "python", 1, text))
        )
        return uri

    def change(self, uri: str, *changes: types.TextDocumentContentChangeEvent) -> int:
        """Change a document; its new version."""
        self.versions[uri] += 1
        version = self.versions[uri]
        self.client.text_document_did_change(
            types.DidChangeTextDocumentParams(
                types.VersionedTextDocumentIdentifier(uri=uri, version=version), list(changes)
            )
        )
        return version

    def rewrite(self, uri: str, text: str) -> int:
        """Replace the whole text of a document; its new version."""
        return self.change(uri, types.TextDocumentContentChangeWholeDocument(text))

    async def until(self, seen: Callable[[], T | None]) -> T:
        """What a test waits for, as soon as it is there."""

        async def wait() -> T:
            while (found := seen()) is None:
                self._news.clear()
                await self._news.wait()
            return found

        return await asyncio.wait_for(wait(), PATIENCE)

    async def diagnostics(self, uri: str, version: int | None = 1) -> list[types.Diagnostic]:
        """The diagnostics of a document in a version."""
        return list(
            await self.until(
                lambda: next(
                    (
                        one.diagnostics
                        for one in reversed(self.published)
                        if one.uri == uri and one.version == version
                    ),
                    None,
                )
            )
        )

    async def actions(self, uri: str, place: types.Range) -> list[types.CodeAction]:
        """The quick fixes at a place."""
        found = await self.client.text_document_code_action_async(
            types.CodeActionParams(
                types.TextDocumentIdentifier(uri), place, types.CodeActionContext([])
            )
        )
        return [one for one in found or () if isinstance(one, types.CodeAction)]

    async def hover(self, uri: str, line: int, character: int) -> str:
        """The text that is shown at a place."""
        found = await self.client.text_document_hover_async(
            types.HoverParams(types.TextDocumentIdentifier(uri), types.Position(line, character))
        )
        if found is None:
            return ""
        assert isinstance(found.contents, types.MarkupContent)
        return found.contents.value


def applied(text: str, action: types.CodeAction, uri: str) -> str:
    """The text of a document after a quick fix; columns are those of ASCII."""
    assert action.edit is not None
    edits: list[types.TextEdit] = []
    for change in action.edit.document_changes or ():
        assert isinstance(change, types.TextDocumentEdit)
        if change.text_document.uri == uri:
            edits += [one for one in change.edits if isinstance(one, types.TextEdit)]
    lines: Sequence[str] = text.splitlines(keepends=True)
    starts = [sum(map(len, lines[:number])) for number in range(len(lines) + 1)]

    def offset(place: types.Position) -> int:
        return min(starts[min(place.line, len(lines))] + place.character, len(text))

    for edit in sorted(edits, key=lambda one: -offset(one.range.start)):
        text = text[: offset(edit.range.start)] + edit.new_text + text[offset(edit.range.end) :]
    return text


class Desk:
    """An editor and the loop that it lives in, for tests that are not asynchronous."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.loop = asyncio.new_event_loop()
        self.editor = self.run(_opened(folder))
        self.capabilities = self.run(self.editor.start(*words)).capabilities

    def run(self, story: Coroutine[Any, Any, T]) -> T:
        """Wait for the editor."""
        return self.loop.run_until_complete(asyncio.wait_for(story, 2 * PATIENCE))

    def close(self) -> None:
        """End the server and the loop."""
        self.run(self.editor.stop())
        self.loop.close()

    def diagnostics(self, uri: str, version: int | None = 1) -> list[types.Diagnostic]:
        """The diagnostics of a document in a version."""
        return self.run(self.editor.diagnostics(uri, version))

    def actions(self, uri: str, place: types.Range) -> list[types.CodeAction]:
        """The quick fixes at a place."""
        return self.run(self.editor.actions(uri, place))


async def _opened(folder: Path) -> Editor:
    return Editor(folder)

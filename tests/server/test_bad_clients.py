"""A client that sends garbage, goes away, or types faster than we check: no crash, no leak."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types

from support import tiers
from support.command import FORGOTTEN_ZERO, environment, zerograd
from support.editor import Desk
from support.terminal import Terminal


def framed(*messages: object) -> bytes:
    """Messages as they go over the wire."""
    bodies = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in messages]
    return b"".join(b"Content-Length: %d\r\n\r\n%s" % (len(body), body) for body in bodies)


def call(method: str, ident: int | None = None, **params: Any) -> dict[str, Any]:
    message = {"jsonrpc": "2.0", "method": method, "params": params}
    return message if ident is None else {**message, "id": ident}


def opened(text: str) -> dict[str, Any]:
    document = {
        "uri": "file:///nowhere/train.py",
        "languageId": "python",
        "version": 1,
        "text": text,
    }
    return call("textDocument/didOpen", textDocument=document)


HELLO = call("initialize", 1, capabilities={}, processId=None, rootUri=None)
READY = call("initialized")
BYE = (call("shutdown", 9), call("exit"))


SERVER = (sys.executable, "-m", "zerograd", "server")


def started(folder: Path, complaints: int) -> subprocess.Popen[bytes]:
    """A server that waits for messages."""
    variables = environment(folder.with_name("cache"))
    pipe = subprocess.PIPE
    return subprocess.Popen(
        SERVER, stdin=pipe, stdout=pipe, stderr=complaints, cwd=folder, env=variables
    )


@pytest.mark.parametrize("command", ["server", "mcp"])
def test_on_a_terminal_a_server_says_what_it_waits_for_and_ends_with_ctrl_c(
    command: str, tmp_path: Path
) -> None:
    terminal = Terminal(command, cwd=tmp_path)
    terminal.until(lambda lines: "speaks to it on standard input; Ctrl-C ends it" in lines[0])
    os.kill(terminal.pid, signal.SIGINT)
    terminal.until(lambda lines: "interrupted" in " ".join(lines))
    assert terminal.close() == 130


@pytest.mark.parametrize("command", ["server", "mcp"])
def test_a_server_without_standard_input_says_so(command: str, tmp_path: Path) -> None:
    words = f"{sys.executable} -m zerograd {command} <&-"
    done = subprocess.run(words, shell=True, cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 2
    assert done.stderr.endswith(b"speaks to this command on standard input, which is closed\n")


def answers(sent: bytes, folder: Path) -> tuple[list[dict[str, Any]], str, int]:
    """What the server says to bytes, after which the client closes its end; what it complains; its exit code."""
    done = subprocess.run(
        SERVER,
        input=sent,
        capture_output=True,
        cwd=folder,
        env=environment(folder.with_name("cache")),
        timeout=60,
        check=False,
    )
    said, rest = [], done.stdout
    while rest:
        head, _, rest = rest.partition(b"\r\n\r\n")
        length = int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0])
        said.append(json.loads(rest[:length]))
        rest = rest[length:]
    return said, done.stderr.decode(), done.returncode


GARBAGE = {
    "no protocol at all": b"GET / HTTP/1.1\r\nHost: me\r\n\r\n\x00\xff\xfe garbage\n",
    "no JSON": framed(HELLO, READY, b"{ this is no JSON", b"\xff\xfe\x00", b"[]", b"17", b"null"),
    "unknown methods": framed(HELLO, READY, call("no/such", 5), call("$/no/such"), {"a": 1}),
    "wrong parameters": framed(
        HELLO,
        READY,
        call("textDocument/didOpen", textDocument=3),
        call("textDocument/didChange", textDocument={"uri": "file:///unknown.py", "version": 2}),
        call("textDocument/hover", 6, textDocument={"uri": "file:///unknown.py"}, position=None),
        call("textDocument/codeAction", 7, textDocument={"uri": "bad uri"}),
    ),
    "documents that nobody opened": framed(
        HELLO,
        READY,
        call("textDocument/didClose", textDocument={"uri": "file:///unknown.py"}),
        call(
            "textDocument/hover",
            6,
            textDocument={"uri": "file:///unknown.py"},
            position={"line": 3, "character": 1},
        ),
    ),
    "half a message": framed(HELLO, READY) + b"Content-Length: 5000\r\n\r\n{",
    "nothing": b"",
}


@pytest.mark.parametrize("what", tiers.sample(GARBAGE, 2))
def test_garbage_ends_in_no_crash(what: str, tmp_path: Path) -> None:
    _, complaint, code = answers(GARBAGE[what], tmp_path)
    assert code == 0
    assert "zerograd/" not in complaint, "nothing of ours failed"


def test_after_garbage_the_server_still_answers(tmp_path: Path) -> None:
    sent = framed(HELLO, READY, b"{ no JSON", call("no/such", 5), opened(FORGOTTEN_ZERO))
    process = started(tmp_path, subprocess.DEVNULL)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(sent)
    process.stdin.flush()
    said = b""
    while b"ZG101" not in said:
        part = os.read(process.stdout.fileno(), 65536)
        assert part, said
        said += part
    process.stdin.write(framed(*BYE))
    process.stdin.close()
    assert process.wait(30) == 0
    process.stdout.close()


def test_a_client_that_closes_early_leaves_no_process(tmp_path: Path) -> None:
    changes = [
        call(
            "textDocument/didChange",
            textDocument={"uri": "file:///nowhere/train.py", "version": version},
            contentChanges=[{"text": FORGOTTEN_ZERO * version}],
        )
        for version in range(2, 20)
    ]
    _, complaint, code = answers(framed(HELLO, READY, opened(FORGOTTEN_ZERO), *changes), tmp_path)
    assert (code, complaint) == (0, "")


def test_a_client_that_stops_reading_leaves_no_process(tmp_path: Path) -> None:
    process = started(tmp_path, subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    _, complaint = process.communicate(framed(HELLO, READY, opened(FORGOTTEN_ZERO)), timeout=30)
    # It is chance which write finds the pipe closed: one of the server's, or the last one of the command line.
    assert process.returncode in (0, 1, 2)
    assert b"zerograd/" not in complaint


def test_without_pygls_the_message_has_the_line_that_installs_it(tmp_path: Path) -> None:
    (tmp_path / "pygls.py").write_text("raise ImportError('No module named pygls')\n")
    done = zerograd("server", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert done.returncode == 2
    assert "pip install 'zerograd[lsp]'" in done.stderr
    assert done.stdout == ""


def test_an_unknown_rule_is_refused_with_a_message(tmp_path: Path) -> None:
    done = zerograd("server", "--select", "ZG9999", cwd=tmp_path)
    assert done.returncode == 2
    assert "ZG9999" in done.stderr


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    desk.close()


LARGE = FORGOTTEN_ZERO * 40
"""One top level with forty loops: checking it takes a second or two."""


@tiers.long
def test_a_check_that_has_become_stale_is_given_up(desk: Desk) -> None:
    uri = desk.editor.open("train.py", LARGE)
    desk.run(_moment(0.3))
    newest = desk.editor.rewrite(uri, FORGOTTEN_ZERO)
    assert len(desk.diagnostics(uri, newest)) == 1
    assert [one.version for one in desk.editor.published if one.uri == uri] == [newest]


async def _moment(seconds: float) -> None:
    await asyncio.sleep(seconds)


@tiers.long
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_a_thousand_changes_and_closed_documents_leave_nothing_behind(desk: Desk) -> None:
    client = desk.editor.client
    server = client._server
    assert server is not None

    def resident() -> int:
        lines = Path(f"/proc/{server.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))

    def work(rounds: int) -> None:
        for number in range(rounds):
            uri = desk.editor.open(f"train{number}.py", FORGOTTEN_ZERO * 3)
            for extra in range(10):
                last = desk.editor.rewrite(uri, FORGOTTEN_ZERO * 3 + f"x = {extra}\n")
            desk.diagnostics(uri, last)
            client.text_document_did_close(
                types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(uri))
            )
            desk.diagnostics(uri, None)
            desk.editor.published.clear()

    work(20)
    desk.run(_moment(1.5))
    before = resident()
    work(60)
    desk.run(_moment(1.5))
    assert resident() - before < 6_000, "kB"

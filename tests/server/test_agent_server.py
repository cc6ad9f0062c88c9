"""`zerograd mcp`, with the client of the SDK in another process, and `check --format agent`."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from support.command import FORGOTTEN_ZERO, RIGHT, environment, write, zerograd

mcp = pytest.importorskip("mcp")

EDIT = """\
edit (safe):
--- train.py
+++ train.py
@@ -5,2 +5,3 @@
 for x, y in [(torch.ones(1), torch.ones(1))] * 3:
+    optimizer.zero_grad()
     loss = (model(x) - y).square().mean()
"""

Talk = Callable[[Any], Awaitable[Any]]


def session(folder: Path, talk: Talk) -> Any:
    """What a client gets that talks to a real server in a folder."""

    async def run() -> Any:
        server = mcp.StdioServerParameters(
            command=sys.executable,
            args=["-m", "zerograd", "mcp"],
            cwd=str(folder),
            env=environment(folder.with_name("cache")),
        )
        async with (
            mcp.stdio_client(server) as (reader, writer),
            mcp.ClientSession(reader, writer) as client,
        ):
            await client.initialize()
            return await talk(client)

    return asyncio.run(asyncio.wait_for(run(), 50))


def text(result: Any) -> str:
    return "".join(part.text for part in result.content)


def test_an_agent_checks_explains_fixes_and_checks_again(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": FORGOTTEN_ZERO})

    async def talk(client: Any) -> list[Any]:
        asked = [
            await client.call_tool("check", {"paths": ["train.py"]}),
            await client.call_tool("explain", {"rule": "stale-gradient"}),
            await client.call_tool("fix", {"paths": ["train.py"], "preview": True}),
            await client.call_tool("fix", {"paths": ["train.py"]}),
            await client.call_tool("check", {"paths": ["train.py"]}),
            await client.call_tool("check", {"paths": ["nowhere.py"]}),
            await client.call_tool("explain", {"rule": "ZG999"}),
            await client.call_tool("check", {"paths": [], "select": ["ZG1"]}),
        ]
        tools = {tool.name for tool in (await client.list_tools()).tools}
        assert tools == {"check", "explain", "fix"}
        return asked

    checked, page, preview, fixed, again, missing, unknown, nothing = session(tmp_path, talk)
    assert EDIT in text(checked)
    assert text(page).startswith("ZG101 stale-gradient (error)")
    assert "+    optimizer.zero_grad()" in text(preview)
    assert text(fixed) == "fixed 1, 0 remaining\n"
    assert text(again) == "1 file checked: nothing to report.\n"
    assert (tmp_path / "train.py").read_text(encoding="utf-8").count("zero_grad") == 1
    assert missing.is_error
    assert "there is no nowhere.py" in text(missing)
    assert unknown.is_error
    assert "ZG999" in text(unknown)
    assert nothing.is_error


def test_a_client_that_sends_garbage_or_closes_early_leaves_no_server(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "zerograd", "mcp"],
        input=b'garbage\n{"jsonrpc": 3}\n',
        capture_output=True,
        cwd=tmp_path,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0
    assert b"Traceback" not in done.stdout


@pytest.mark.parametrize("has", ["nothing", "an old one"])
def test_without_the_sdk_the_message_says_what_to_install(tmp_path: Path, has: str) -> None:
    body = (
        "raise ModuleNotFoundError(\"No module named 'mcp'\", name='mcp')"
        if has == "nothing"
        else ""
    )
    write(
        tmp_path,
        {"fake/mcp/__init__.py": body, "fake/mcp/server/__init__.py": "class FastMCP: ..."},
    )
    done = zerograd("mcp", cwd=tmp_path, PYTHONPATH=os.fspath(tmp_path / "fake"))
    assert done.returncode == 2
    assert "pip install 'zerograd[mcp]'" in done.stderr


def test_the_format_for_agents_has_the_exact_edit(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": FORGOTTEN_ZERO, "right.py": RIGHT})
    done = zerograd("check", "--format", "agent", "train.py", cwd=tmp_path)
    assert done.returncode == 1
    first, *_ = done.stdout.split("\n\n")
    assert first + "\n" == (
        "train.py:7:5: ZG101 stale-gradient (error): backward() adds to gradients that step() already used\n"
        "optimizer: optimizer\n"
        "see train.py:8:5: used here, in the previous iteration\n"
        "do: clear the gradients between the step and the next backward: optimizer.zero_grad()\n"
        + EDIT
    )
    done = zerograd("check", "--format", "agent", "right.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "1 file checked: nothing to report.\n")

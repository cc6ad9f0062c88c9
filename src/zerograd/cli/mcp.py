"""`zerograd mcp`: check, explain and fix as tools of coding agents, by the Model Context Protocol."""

from __future__ import annotations

import argparse

from zerograd.cli.output import COULD_NOT, await_client, say

_EXAMPLES = """\
examples:
  zerograd mcp                            an agent starts it, and speaks to it on standard input

most agents read their servers from a JSON file:
  {"mcpServers": {"zerograd": {"command": "zerograd", "args": ["mcp"]}}}

tools: check (files, with the exact edits), explain (a rule), fix (repair files, or preview the diff).
an agent without this protocol can call `zerograd check --format agent FILE`.
docs/howto/agents.md has instructions to paste into the rules of an agent.

exit: 0 when the agent has ended, or 2 if the server cannot start
"""


def add(parser: argparse.ArgumentParser) -> None:
    """The options of `mcp`: there are none of its own."""
    parser.description = "Serves coding agents: check, explain and fix as tools."
    parser.epilog = _EXAMPLES


def run(arguments: argparse.Namespace) -> int:
    """Serve one agent; the exit code."""
    try:
        from zerograd.server.agent_server import serve
    except ImportError as error:
        if (error.name or "").startswith("zerograd"):
            raise
        say(f"the server for agents needs the MCP SDK 2 ({error}): pip install 'zerograd[mcp]'")
        return COULD_NOT
    await_client("an agent")
    return serve()

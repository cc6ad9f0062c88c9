"""The benchmarks on packages, run on one of our own with a checker whose findings are given."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from support.paths import ROOT

BENCH = ROOT / "bench"
SCRIPT = BENCH / "ecosystem.py"
TRAIN = b"""class Trainer:
    def fit(self):
        for x in self.data:
            loss.backward()
            self.opt.step()
"""
CHECKER = """#!{python}
import json, pathlib, sys
folder = pathlib.Path(sys.argv[-1])
found = json.loads(pathlib.Path({findings!r}).read_text())
for finding in found:
    finding["path"] = str(folder / finding["path"])
print(json.dumps(dict(version=1, findings=found, errors=[], files=1)))
"""


class Bench:
    """A corpus of one package, and the answers of its checker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.archives = folder / "corpus" / "archives"
        self.archives.mkdir(parents=True)
        self.findings = folder / "findings.json"
        self.checker = folder / "checker"
        self.checker.write_text(
            CHECKER.format(python=sys.executable, findings=str(self.findings)), encoding="utf-8"
        )
        self.checker.chmod(0o755)
        self.verdicts = folder / "adjudicated.jsonl"
        self.pin(self.sdist({"loops-1.0/loops/train.py": TRAIN}))
        self.say()
        self.read()

    def sdist(self, members: dict[str, bytes]) -> Path:
        path = self.archives / "loops-1.0.tar.gz"
        with tarfile.open(path, "w:gz") as tar:
            for name, content in members.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
        return path

    def pin(self, archive: Path) -> None:
        digest = hashlib.sha256(archive.read_bytes()).hexdigest()
        (self.folder / "list.txt").write_text(f"loops==1.0  {archive.name}  sha256:{digest}\n")

    def say(self, *lines: int, **fields: Any) -> None:
        finding = {
            "code": "ZG101",
            "name": "stale-gradient",
            "level": "error",
            "certain": True,
            "message": "backward() adds to gradients that step() already used",
            "path": "loops/train.py",
            "cell": None,
        }
        found = [{**finding, "line": line, **fields} for line in lines]
        self.findings.write_text(json.dumps(found), encoding="utf-8")

    def read(self, *verdicts: tuple[int, bool | None]) -> None:
        place = {
            "package": "loops",
            "path": "loops/train.py",
            "code": "ZG101",
            "function": "Trainer.fit",
        }
        rows = ({**place, "line": n, "verdict": v, "reason": "no zero"} for n, v in verdicts)
        self.verdicts.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def run(self, *extra: str) -> subprocess.CompletedProcess[str]:
        return self.start(SCRIPT, "--adjudicated", str(self.verdicts), *extra)

    def time(self) -> subprocess.CompletedProcess[str]:
        return self.start(BENCH / "check_speed.py", "--rounds", "1")

    def start(self, script: Path, *extra: str) -> subprocess.CompletedProcess[str]:
        options = {
            "--corpus": self.folder / "corpus",
            "--list": self.folder / "list.txt",
            "--zerograd": self.checker,
        }
        words = [str(word) for pair in options.items() for word in pair]
        return subprocess.run(
            [sys.executable, str(script), *words, *extra],
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def unpacked(self) -> set[str]:
        folder = self.folder / "corpus" / "src" / "loops-1.0"
        return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_no_findings_pass(bench: Bench) -> None:
    done = bench.run()
    assert done.returncode == 0, done.stderr
    assert "true 0 · false 0 · not read 0" in done.stdout
    assert "in 1 files" in done.stdout


def test_a_finding_that_nobody_read_fails_and_is_listed(bench: Bench) -> None:
    bench.say(4)
    done = bench.run()
    assert done.returncode == 1
    assert "not read      loops: loops/train.py:4 in Trainer.fit  ZG101" in done.stdout


def test_a_true_finding_passes_though_its_line_moved(bench: Bench) -> None:
    bench.say(4)
    bench.read((3, True))
    done = bench.run()
    assert done.returncode == 0
    assert "true 1 · false 0 · not read 0" in done.stdout


def test_one_verdict_covers_one_finding(bench: Bench) -> None:
    bench.say(4, 5)
    bench.read((5, True))
    done = bench.run()
    assert done.returncode == 1
    assert "true 1 · false 0 · not read 1" in done.stdout
    assert "train.py:4 in" in done.stdout


def test_too_many_false_alarms_fail(bench: Bench) -> None:
    bench.say(4)
    bench.read((4, False))
    done = bench.run()
    assert done.returncode == 1
    assert "500.00 false alarms per 500" in done.stdout


def test_a_null_verdict_is_no_verdict(bench: Bench) -> None:
    bench.say(4)
    bench.read((4, None))
    assert "true 0 · false 0 · not read 1" in bench.run().stdout


def test_a_verdict_on_nothing_is_reported(bench: Bench) -> None:
    bench.read((4, True))
    done = bench.run()
    assert done.returncode == 0
    assert "no longer     loops: loops/train.py:4  ZG101, a bug" in done.stdout


@pytest.mark.parametrize("fields", [{"certain": False}, {"level": "advice"}])
def test_advice_and_what_is_only_possible_need_no_verdict(
    bench: Bench, fields: dict[str, Any]
) -> None:
    bench.say(4, **fields)
    done = bench.run()
    assert done.returncode == 0
    assert "stale-gradient" in done.stdout


def test_the_draft_holds_what_was_not_read(bench: Bench) -> None:
    bench.say(4)
    draft = bench.folder / "draft.jsonl"
    bench.run("--draft", str(draft))
    row = json.loads(draft.read_text(encoding="utf-8"))
    assert row["function"] == "Trainer.fit"
    assert row["verdict"] is None


def test_only_sources_inside_the_package_are_unpacked(bench: Bench) -> None:
    members = {
        "loops-1.0/loops/train.py": TRAIN,
        "loops-1.0/examples/demo.ipynb": b"{}",
        "loops-1.0/setup.cfg": b"",
        "loops-1.0/../../../outside.py": b"",
        "/absolute.py": b"",
        "loops-1.0/c:\\windows.py": b"",
    }
    bench.pin(bench.sdist(members))
    assert bench.run().returncode == 0
    assert bench.unpacked == {"loops/train.py", "examples/demo.ipynb"}
    assert not list(bench.folder.rglob("outside.py"))


def test_links_are_not_unpacked(bench: Bench) -> None:
    path = bench.sdist({})
    with tarfile.open(path, "w:gz") as tar:
        link = tarfile.TarInfo("loops-1.0/link.py")
        link.type, link.linkname = tarfile.SYMTYPE, str(SCRIPT)
        tar.addfile(link)
    bench.pin(path)
    assert bench.run().returncode == 0
    assert bench.unpacked == set()


def test_a_wheel_has_no_folder_around_it(bench: Bench) -> None:
    path = bench.archives / "loops-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("loops/train.py", TRAIN)
        wheel.writestr("loops-1.0.dist-info/METADATA", "")
    bench.pin(path)
    assert bench.run().returncode == 0
    assert bench.unpacked == {"loops/train.py"}


def test_a_checker_that_breaks_is_reported(bench: Bench) -> None:
    bench.findings.write_text("not JSON")
    done = bench.run()
    assert done.returncode == 2
    assert "loops-1.0: " in done.stderr
    assert "printed no report" in done.stderr


def test_a_broken_list_is_reported(bench: Bench) -> None:
    (bench.folder / "list.txt").write_text("loops>=1.0\n")
    done = bench.run()
    assert done.returncode == 2
    assert "list.txt:1: not `name==version" in done.stderr


def test_speed_is_measured_and_judged(bench: Bench) -> None:
    done = bench.time()
    assert done.returncode in (0, 1), done.stderr
    assert "1 files, 0 MB, 1 interleaved rounds" in done.stdout
    assert "zerograd, warm cache" in done.stdout
    assert "peak memory, no cache" in done.stdout


def test_a_checker_that_fails_is_not_timed(bench: Bench) -> None:
    bench.findings.unlink()
    done = bench.time()
    assert done.returncode == 2
    assert "ended with 1" in done.stderr

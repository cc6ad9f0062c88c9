"""An output format is one file and one line."""

from __future__ import annotations

from pathlib import Path

from support.command import FORGOTTEN_ZERO, write, zerograd
from support.copies import extended

CSV = '''"""Comma-separated values."""

from zerograd.core.finding import Report


def render(report: Report, *, color: bool = False) -> str:
    lines = [f"{one.code},{one.site.path},{one.site.line}" for one in report.findings]
    return "".join(f"{line}\\n" for line in lines)
'''


def test_a_new_format_is_one_file_and_one_line(tmp_path: Path) -> None:
    package = extended(
        tmp_path / "copy",
        {"report/csv.py": CSV},
        {"report/formats.py": ('    "github": Format(),', '    "csv": Format(),')},
    )
    work = write(tmp_path / "work", {"train.py": FORGOTTEN_ZERO})
    done = zerograd("check", "train.py", "--format", "csv", cwd=work, PYTHONPATH=str(package))
    assert (done.stdout, done.returncode) == ("ZG101,train.py,7\n", 1)
    shown = zerograd("run", "--help", cwd=work, PYTHONPATH=str(package)).stdout
    assert "csv" in shown

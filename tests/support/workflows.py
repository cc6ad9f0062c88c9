"""Runs the `run:` steps of actions and workflows as GitHub does, and reads a Dockerfile."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.paths import ROOT

PACKAGE = (
    "pyproject.toml",
    "README.md",
    "LICENSE",
    ".pre-commit-hooks.yaml",
    "action.yml",
    "requirements",
    "examples",
    "src",
)
"""What a clone has, and an installation or one of our files needs."""

_EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
_NAME = re.compile(r"\b(?:inputs|github|steps|matrix)(?:\.[\w-]+)+")


def clone(folder: Path) -> Path:
    """A copy of the repository without what is not under version control."""
    folder.mkdir(parents=True)
    left_out = shutil.ignore_patterns("__pycache__", "*.pyc")
    for name in PACKAGE:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=left_out)
        else:
            shutil.copy(ROOT / name, folder / name)
    return folder


@dataclass
class Job:
    """A machine on which steps run one after the other."""

    here: Path
    """The checked out repository."""
    temporary: Path
    values: dict[str, str] = field(default_factory=dict)
    """What expressions see: `inputs.paths`, `github.action_path`."""
    env: dict[str, str] = field(default_factory=dict)
    failed: bool = False
    printed: str = ""
    used: list[dict[str, Any]] = field(default_factory=list)
    """The actions of others that would have run, with their inputs."""

    def run(self, steps: list[dict[str, Any]]) -> None:
        """Run the steps; after a failure only those that always run."""
        for step in steps:
            if self.wanted(step.get("if")):
                if "uses" in step:
                    given = {k: self.filled(v) for k, v in step.get("with", {}).items()}
                    self.used.append({"uses": step["uses"], **given})
                else:
                    self.run_one(step)

    def wanted(self, condition: str | None) -> bool:
        if condition is None:
            return not self.failed
        inner = _EXPRESSION.fullmatch(condition)
        text = (inner[1] if inner else condition).replace("&&", " and ").replace("||", " or ")
        text = text.replace("always()", "True")
        text = _NAME.sub(lambda name: repr(self.values.get(name[0], "")), text)
        return bool(eval(text, {"__builtins__": {}}))

    def filled(self, text: str) -> str:
        """The text with its expressions replaced."""
        return _EXPRESSION.sub(lambda one: self.values.get(one[1], ""), text)

    def run_one(self, step: dict[str, Any]) -> None:
        assert step.get("shell", "bash") == "bash"
        files = {name: self.temporary / name.lower() for name in ("GITHUB_OUTPUT", "GITHUB_PATH")}
        for file in files.values():
            file.write_text("")
        env = {
            **self.env,
            **{name: str(path) for name, path in files.items()},
            "RUNNER_TEMP": str(self.temporary),
            **{name: self.filled(str(value)) for name, value in step.get("env", {}).items()},
        }
        command = [
            "bash",
            "--noprofile",
            "--norc",
            "-eo",
            "pipefail",
            "-c",
            self.filled(step["run"]),
        ]
        done = subprocess.run(
            command,
            cwd=self.here,
            env=env,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        self.printed += done.stdout + done.stderr
        self.failed = self.failed or done.returncode != 0
        for line in files["GITHUB_OUTPUT"].read_text().splitlines():
            name, _, value = line.partition("=")
            self.values[f"steps.{step['id']}.outputs.{name}"] = value
        for line in files["GITHUB_PATH"].read_text().splitlines():
            self.env["PATH"] = line + os.pathsep + self.env["PATH"]


def plain_environment(home: Path) -> dict[str, str]:
    """The environment of a machine that knows nothing of our virtual environment."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "GIT_DIR", "GIT_INDEX_FILE")
    }
    return {**kept, "HOME": str(home), "ZEROGRAD_CACHE_DIR": str(home / "cache")}


def instructions(dockerfile: str) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile, in order: `("RUN", "pip install …")`."""
    lines = [line for line in dockerfile.splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [(one.split(None, 1)[0], one.split(None, 1)[1]) for one in joined.splitlines() if one]

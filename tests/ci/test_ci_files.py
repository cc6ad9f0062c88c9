"""The action, the hooks, the image and the workflows do what docs/howto/ci.md says, and are executed."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import zerograd
from support import tiers
from support.command import FORGOTTEN_ZERO, RIGHT, write
from support.paths import ROOT
from support.workflows import Job, clone, instructions, plain_environment

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
BIN = Path(sys.executable).parent
PAGE = (ROOT / "docs" / "howto" / "ci.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def loaded(path: Path) -> dict[str, Any]:
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def tool(name: str) -> Path:
    """A command of our environment."""
    if not (BIN / name).exists():
        pytest.skip(f"{name} needs Python 3.11")
    return BIN / name


def valid(schema: str, *paths: Path) -> None:
    """Check files against a published schema, which comes with the tool."""
    command: list[str | Path] = [
        tool("check-jsonschema"),
        "--builtin-schema",
        f"vendor.{schema}",
        *paths,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


ACTION = loaded(ROOT / "action.yml")


@tiers.long
def test_the_action_and_the_workflows_have_the_published_form() -> None:
    valid("github-actions", ROOT / "action.yml")
    valid("github-workflows", *WORKFLOWS)


@tiers.long
def test_the_workflows_on_the_page_have_the_published_form(tmp_path: Path) -> None:
    github = [block for block in BLOCKS if "runs-on:" in block]
    (gitlab,) = [block for block in BLOCKS if "codequality:" in block]
    files = [tmp_path / f"{number}.yml" for number in range(len(github))]
    for file, block in zip(files, github, strict=True):
        file.write_text(block)
    assert len(files) == 2
    valid("github-workflows", *files)
    (tmp_path / "gitlab.yml").write_text(gitlab)
    valid("gitlab-ci", tmp_path / "gitlab.yml")


def test_the_page_names_every_input_of_the_action_and_no_other() -> None:
    table = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
    assert table == set(ACTION["inputs"])
    for block in BLOCKS:
        if "runs-on:" in block:
            (job,) = yaml.safe_load(block)["jobs"].values()
            *_, step = job["steps"]
            assert set(step["with"]) <= set(ACTION["inputs"])


def test_the_version_on_the_page_is_this_one() -> None:
    named = set(re.findall(r"zerograd@v([\d.]+)|rev: v([\d.]+)", PAGE))
    assert {version for pair in named for version in pair if version} == {zerograd.__version__}


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with nothing but pip: copied, since making one takes long."""
    folder = tmp_path_factory.mktemp("fresh") / "python"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=120)
    return folder


def machine(fresh: Path, folder: Path) -> dict[str, str]:
    """The environment of a machine whose `python` is a fresh one."""
    shutil.copytree(fresh, folder / "python", symlinks=True)
    env = plain_environment(folder)
    return {**env, "PATH": f"{folder / 'python' / 'bin'}{os.pathsep}{env['PATH']}"}


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A machine on which the action has installed zerograd."""
    folder = tmp_path_factory.mktemp("machine")
    temporary = folder / "temp"
    temporary.mkdir()
    job = Job(folder / "repository", temporary, env=plain_environment(folder))
    job.values["github.action_path"] = str(clone(folder / "action"))
    job.here.mkdir()
    install, *_ = ACTION["runs"]["steps"]
    job.run([install])
    assert not job.failed, job.printed
    return job


def acted(job: Job, files: dict[str, str], **inputs: str) -> Job:
    """The action's steps after the installation, on a repository with these files."""
    shutil.rmtree(job.here)
    job.here.mkdir()
    write(job.here, files)
    given = {name: one["default"] for name, one in ACTION["inputs"].items()} | inputs
    done = Job(job.here, job.temporary, env=dict(job.env))
    done.values = {f"inputs.{name}": value for name, value in given.items()}
    _, *steps = ACTION["runs"]["steps"]
    done.run(steps)
    return done


@tiers.long
def test_the_action_annotates_what_it_finds_and_fails(job: Job) -> None:
    done = acted(job, {"train.py": FORGOTTEN_ZERO})
    assert done.failed
    assert "::error file=train.py,line=7" in done.printed
    assert done.used == []


@tiers.long
def test_the_action_is_green_on_right_code(job: Job) -> None:
    assert not acted(job, {"train.py": RIGHT}).failed


@tiers.long
def test_the_action_checks_the_paths_with_the_arguments(job: Job) -> None:
    files = {
        "src/a.py": FORGOTTEN_ZERO,
        "other/b.py": FORGOTTEN_ZERO,
        "more/c.py": FORGOTTEN_ZERO,
        "more/d.py": RIGHT,
    }
    done = acted(job, files, paths="src more", args="--exclude c.py --exit-zero", format="concise")
    assert not done.failed
    assert "a.py:7:5: ZG101" in done.printed
    assert "b.py" not in done.printed
    assert "c.py" not in done.printed


@tiers.long
def test_the_action_runs_nothing_that_an_input_holds(job: Job) -> None:
    done = acted(job, {"train.py": RIGHT}, paths="$(touch hacked) `touch hacked` ;touch hacked *")
    assert done.failed
    assert not (job.here / "hacked").exists()


@tiers.long
def test_the_action_uploads_sarif_also_when_it_fails(job: Job) -> None:
    done = acted(job, {"train.py": FORGOTTEN_ZERO}, format="sarif")
    assert done.failed
    (upload,) = done.used
    assert upload["uses"].startswith("github/codeql-action/upload-sarif@")
    results = json.loads(Path(upload["sarif_file"]).read_text())["runs"][0]["results"]
    assert [one["ruleId"] for one in results] == ["ZG101"]


# pre-commit


@tiers.long
def test_pre_commit_runs_the_hooks_as_the_page_shows(tmp_path: Path) -> None:
    pre_commit = tool("pre-commit")
    source = clone(tmp_path / "zerograd")
    env = plain_environment(tmp_path) | {"PRE_COMMIT_HOME": str(tmp_path / "hooks")}

    def run(folder: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
        command = list(map(str, words))
        return subprocess.run(
            command, cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False
        )

    def git(folder: Path, *words: str) -> None:
        me = ("-c", "user.name=me", "-c", "user.email=me@example.com")
        done = run(folder, "git", *me, *words)
        assert done.returncode == 0, done.stderr

    (block,) = [block for block in BLOCKS if "hooks:" in block]
    for folder in (source, write(tmp_path / "project", {"train.py": FORGOTTEN_ZERO, "n.txt": ""})):
        git(folder, "init", "--quiet")
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "--message", "begin")
    git(source, "tag", f"v{zerograd.__version__}")
    project = tmp_path / "project"
    config = block.replace("https://example.com/zerograd", str(source))
    assert config != block
    (project / ".pre-commit-config.yaml").write_text(config)
    done = run(project, pre_commit, "run", "--all-files")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "ZG101 stale-gradient" in done.stdout
    (project / ".pre-commit-config.yaml").write_text(
        config.replace("id: zerograd", "id: zerograd-fix")
    )
    done = run(project, pre_commit, "run", "--all-files")
    assert "1 fixed" in done.stdout, done.stdout
    done = run(project, pre_commit, "run", "--all-files")
    assert done.returncode == 0, done.stdout


# Docker


DOCKERFILE = ROOT / "Dockerfile"


def test_the_dockerfile_has_nothing_to_complain_about() -> None:
    command: list[str | Path] = [tool("hadolint"), "--no-color", DOCKERFILE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_gets_what_is_not_ignored() -> None:
    kept = {
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"
    }
    copied = {
        word
        for name, rest in instructions(DOCKERFILE.read_text())
        if name == "COPY" and "--from" not in rest
        for word in rest.split()[:-1]
    }
    assert copied == kept


@tiers.long
def test_the_lines_of_the_dockerfile_make_a_command_that_checks(
    fresh: Path, tmp_path: Path
) -> None:
    """What docker does, in a folder for each stage: the paths of the image become paths below it."""
    root = tmp_path / "root"
    root.mkdir()
    env = machine(fresh, tmp_path)
    here, entry, command = root, [], []

    def inside(text: str) -> str:
        return re.sub(r"(?<![\w.])/(?=wheels|source|code|tmp/zerograd)", f"{root}/", text)

    for name, rest in instructions(DOCKERFILE.read_text()):
        if name == "WORKDIR":
            here = Path(inside(rest))
            here.mkdir(parents=True, exist_ok=True)
        elif name == "COPY" and "--from" not in rest:
            *sources, target = rest.split()
            for source in sources:
                goal = here / target / (source if target == "./" else "")
                if (ROOT / source).is_dir():
                    shutil.copytree(
                        ROOT / source, goal, ignore=shutil.ignore_patterns("__pycache__")
                    )
                else:
                    shutil.copy(ROOT / source, goal)
        elif name == "RUN":
            done = subprocess.run(
                ["sh", "-ec", inside(rest)], cwd=here, env=env, capture_output=True, text=True,
                timeout=300, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stdout + done.stderr
        elif name == "ENV":
            env |= dict([inside(rest).split("=", 1)])
        elif name == "ENTRYPOINT":
            entry = json.loads(rest)
        elif name == "CMD":
            command = json.loads(rest)
        else:
            assert name in ("FROM", "USER") or "--from" in rest, name
    assert not (root / "wheels").exists()
    write(here, {"train.py": FORGOTTEN_ZERO})
    found = subprocess.run(
        [*entry, *command],
        cwd=here,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert found.returncode == 1, found.stderr
    assert "train.py:7:5  ZG101" in found.stdout


def test_the_docker_commands_of_the_page_use_what_the_image_has() -> None:
    lines = [shlex.split(line) for line in PAGE.splitlines() if line.startswith("docker run")]
    kept = dict(instructions(DOCKERFILE.read_text()))
    assert len(lines) == 2
    for words in lines:
        volume = words[words.index("--volume") + 1]
        assert volume.split(":")[1] == kept["WORKDIR"]


# Releases


@tiers.long
def test_the_release_builds_a_wheel_and_a_source_archive(fresh: Path, tmp_path: Path) -> None:
    temporary = tmp_path / "temp"
    temporary.mkdir()
    env = machine(fresh, tmp_path) | {"GITHUB_REF_NAME": f"v{zerograd.__version__}"}
    job = Job(clone(tmp_path / "repository"), temporary, env=env)
    workflow = loaded(ROOT / ".github" / "workflows" / "release.yml")
    job.run(workflow["jobs"]["build"]["steps"])
    assert not job.failed, job.printed
    made = sorted(path.suffix for path in (job.here / "dist").iterdir())
    assert made == [".gz", ".whl"]
    assert any(one["uses"].startswith("actions/upload-artifact@") for one in job.used)
    assert workflow["jobs"]["publish"]["needs"] == ["build", "audit"]


def test_known_weaknesses_are_looked_for_before_a_release_and_nowhere_else() -> None:
    # It asks a server: without one it could only pass.
    folder = ROOT / ".github" / "workflows"
    audited = [path.name for path in folder.iterdir() if "pip-audit" in path.read_text()]
    assert audited == ["release.yml"]
    steps = loaded(folder / "release.yml")["jobs"]["audit"]["steps"]
    assert "pip-audit --strict --require-hashes" in steps[-1]["run"]
    assert "pip-audit" not in (ROOT / "Makefile").read_text()
    assert "pip-audit" not in (ROOT / ".ci" / "run").read_text()


def test_a_release_is_made_by_a_tag_only() -> None:
    workflow = loaded(ROOT / ".github" / "workflows" / "release.yml")
    # YAML 1.1 reads `on` as true.
    assert workflow.get("on", workflow.get(True)) == {"push": {"tags": ["v*"]}}  # type: ignore[call-overload]


def test_the_commands_of_the_workflows_exist() -> None:
    targets = set(re.findall(r"^(\w[\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    lines = [
        step["run"]
        for job in loaded(ROOT / ".github" / "workflows" / "tests.yml")["jobs"].values()
        for step in job["steps"]
        if "run" in step
    ]
    assert lines
    for line in lines:
        words = line.split()
        assert words[0] == "make" or os.access(ROOT / words[0], os.X_OK), line
        assert words[0] != "make" or words[1] in targets

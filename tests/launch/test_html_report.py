"""The report page without a browser: what it holds, what it refuses, and how much memory it takes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from support import tiers
from support.command import FORGOTTEN_ZERO, RIGHT, environment, write, zerograd
from support.pages import NASTY, SCRIPT, event, pair_run, shared_run, stale_run
from zerograd import __version__
from zerograd.core.events import Backward, Measured, Site, Step, Zero
from zerograd.recording.writer import Recorder

HEADER = {"zerograd": __version__, "format": 2}


class Parsed(HTMLParser):
    """The elements of a page, its texts, and the data at its end."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.text = path.read_text(encoding="utf-8")
        self.tags: list[str] = []
        self.words: list[str] = []
        self._inside = ""
        self._raw = ""
        self.feed(self.text)
        self.close()
        self.data: dict[str, Any] = json.loads(self._raw)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._inside = tag
        assert not [name for name, _ in attrs if name.startswith("on") or name in ("src", "srcset")]

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script" and not self._raw:
            self._raw = data
        elif self._inside not in ("script", "style"):
            self.words.append(data)

    @property
    def shown(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return write(tmp_path / "project", {"train.py": SCRIPT})


def test_a_page_shows_the_whole_run(here: Path) -> None:
    stale_run(here / "run.jsonl", 20, [5, 9])
    done = zerograd("report", "run.jsonl", "-o", "page.html", cwd=here)
    assert (done.returncode, done.stdout) == (1, "")
    assert "page.html is written" in done.stderr
    page = Parsed(here / "page.html")
    for words in (
        "1 error",
        "ZG101 stale-gradient",
        "seen 2 times",
        "first at step 6",
        "loss.backward()",
        "optimizer.step()",
        "2 backwards 20",
        "SGD, 2 parameters",
        "clear the gradients",
    ):
        assert words in page.shown, words
    (rank,) = page.data["ranks"]
    assert (rank["ticks"], rank["each"], len(rank["lanes"])) == (20, 1, 1)
    found = [moment for moment in rank["moments"] if moment[4]]
    assert [moment[1:2] for moment in found] == [["step"]], "marked where the mix is used"


def test_the_recording_is_enough(here: Path) -> None:
    """Neither the program nor torch need be there."""
    stale_run(here / "run.jsonl", 20, [5])
    (here / "train.py").unlink()
    write(here, {"torch.py": "raise SystemExit('torch was imported')"})
    assert zerograd("report", "run.jsonl", "-o", "page.html", cwd=here).returncode == 1
    assert "loss = loss_fn(model(x), y)" in Parsed(here / "page.html").shown


def test_an_allow_comment_in_the_recorded_source_holds(here: Path) -> None:
    stale_run(here / "run.jsonl", 20, [5])
    text = (here / "run.jsonl").read_text()
    allowed = text.replace(r"loss.backward()\n", r"loss.backward()  # zerograd: allow[ZG101]\n")
    assert allowed != text
    write(here, {"run.jsonl": allowed})
    assert zerograd("report", "run.jsonl", cwd=here).returncode == 0
    page = Parsed(here / "report.html")
    assert "Nothing wrong" in page.shown
    assert not any(moment[4] for moment in page.data["ranks"][0]["moments"])
    assert zerograd("replay", "run.jsonl", cwd=here).returncode == 0


def test_errors_come_before_advice_and_are_counted_as_in_the_terminal(here: Path) -> None:
    (here / "ranks").mkdir()
    for rank in range(2):
        shared_run(here / "ranks" / f"{rank}.jsonl", 50, 26, rank=rank)
    assert zerograd("report", "ranks", cwd=here).returncode == 1
    page = Parsed(here / "report.html")
    assert [one["level"] for one in page.data["findings"]] == ["error", "advice"]
    assert page.shown.index("ZG101") < page.shown.index("ZG403")
    assert "1 error, 1 advice" in page.shown
    assert "50 steps on 2 ranks watched" in page.shown
    assert "seen 50 times · first at step 1 · on rank 0, rank 1" in page.shown
    for rank in page.data["ranks"]:
        levels = {
            page.data["findings"][one]["level"] for mark in rank["moments"] for one in mark[4]
        }
        assert levels == {"error", "advice"}, "the marks have the numbers of the cards"


def test_a_card_counts_the_steps_of_its_optimizer(here: Path) -> None:
    pair_run(here / "run.jsonl", 40, 20)
    assert zerograd("report", "run.jsonl", cwd=here).returncode == 1
    assert "at step 21 of opt_d" in Parsed(here / "report.html").shown


def test_gradients_that_were_not_finite_show_in_the_verdict(here: Path) -> None:
    for few in (True, False):
        recorder = Recorder(str(here / "run.jsonl"), program="train.py")
        recorder.title("SGD#1", "SGD, 2 parameters", 2)
        for at in range(40):
            recorder.write("SGD#1", event(Zero))
            recorder.write("SGD#1", event(Backward))
            recorder.write(
                "SGD#1", Step(Site("train.py", 8), finite=not (at == 7 if few else at > 7))
            )
        recorder.close(clean=True)
        assert zerograd("report", "run.jsonl", cwd=here).returncode == (0 if few else 1)
        text = (here / "report.html").read_text(encoding="utf-8")
        assert ("hero advice" if few else "hero bad") in text
        said = "1 step used gradients that are inf or nan" if few else "ZG110"
        page = Parsed(here / "report.html")
        assert said in page.shown
        marks = [mark for mark in page.data["ranks"][0]["moments"] if mark[4]]
        assert len(marks) == (0 if few else 1), "the steps of the finding are marked"


def test_rules_can_be_chosen(here: Path) -> None:
    stale_run(here / "run.jsonl", 20, [5])
    assert zerograd("report", "run.jsonl", "--ignore", "ZG101", cwd=here).returncode == 0
    assert zerograd("report", "run.jsonl", "--exit-zero", cwd=here).returncode == 0
    assert zerograd("report", "run.jsonl", "--select", "ZG1", cwd=here).returncode == 1


def test_several_recordings_are_ranks(here: Path) -> None:
    (here / "ranks").mkdir()
    for rank in (1, 0, 2):
        stale_run(here / "ranks" / f"{9 - rank}.jsonl", 20, [5] if rank else [], rank=rank)
    write(here, {"ranks/notes.txt": "no recording"})
    assert zerograd("report", "ranks", cwd=here).returncode == 1
    page = Parsed(here / "report.html")
    assert [rank["name"] for rank in page.data["ranks"]] == ["rank 0", "rank 1", "rank 2"]
    assert "seen once" in page.shown, "a step of two ranks is one step"
    assert "20 steps on 3 ranks watched" in page.shown
    assert "on rank 1, rank 2" in page.shown
    assert len(page.data["findings"]) == 1


def test_numbers_are_beside_the_finding_that_mentions_them(here: Path) -> None:
    recorder = Recorder(str(here / "run.jsonl"))
    measured = Measured(5.0, 8.0, ("weight",), 1)
    for one in (event(Backward), event(Step)):
        recorder.write("SGD", one)
    recorder.write("SGD", event(Backward, measured=measured))
    recorder.write("SGD", event(Step))
    recorder.close(clean=True)
    zerograd("report", "run.jsonl", cwd=here)
    assert "should have been 5" in Parsed(here / "report.html").shown


def test_nothing_of_a_name_becomes_markup(here: Path) -> None:
    clean = Parsed(_nasty(here, "SGD"))
    nasty = Parsed(_nasty(here, NASTY))
    assert nasty.tags == clean.tags
    assert "</script><script>window.hacked=1" in nasty.shown
    assert nasty.data["ranks"][0]["lanes"][0]["title"].startswith("</script><script>")
    assert "\u2028" not in nasty.text.partition("application/json")[2]
    assert "\u202e" not in nasty.text, "no name turns the direction of what follows"


def _nasty(here: Path, name: str) -> Path:
    recorder = Recorder(str(here / "run.jsonl"), program=name)
    recorder.title("SGD#1", name, 1)
    measured = Measured(1.0, 2.0, (name,), 1)
    for kind in (Backward, Step, Backward, Step):
        extra = measured if kind is Backward else None
        recorder.write("SGD#1", event(kind, "train.py", extra))
    recorder.close(clean=True)
    zerograd("report", "run.jsonl", cwd=here)
    return here / "report.html"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is empty"),
        ("import torch\n", "this is not a recording"),
        (b"\x89PNG\r\n\x1a\n\0\0", "this is not a recording"),
        ("[]\n", "this is not a recording"),
        ('{"zerograd": "9.0", "format": 4}\n0\n', "format 4, written by zerograd 9.0"),
        ('{"zerograd": "9.0", "format": "2"}\n', "format '2'"),
        ('{"format": 2, "program": 7}\n', "'program' is missing, or is not of type str"),
        ('{"format": 2, "rank": "a"}\n', "'rank' is missing, or is not of type int"),
    ],
)
def test_what_is_no_recording_makes_no_page(here: Path, content: str | bytes, said: str) -> None:
    write(here, {"run.jsonl": content})
    done = zerograd("report", "run.jsonl", cwd=here)
    assert done.returncode == 2
    assert said in done.stderr
    assert not (here / "report.html").exists()


@pytest.mark.parametrize(
    "line",
    [
        "{nonsense",
        '{"norms": "SGD#1"}',
        '{"norms": "SGD#1", "first": 1, "each": 0, "used": [1]}',
        '{"norms": "SGD#1", "first": 1, "each": 1, "used": ["x"]}',
        '{"norms": "SGD#1", "first": 1, "each": 1, "used": [1], "right": []}',
        '{"subject": "SGD#2"}',
        '{"source": "a.py", "text": 3}',
        '{"watched": {"steps": "many"}}',
        '{"watched": {"windows": {"a": 1}}}',
        '{"define": 99999, "subject": "a", "event": {"kind": "step", "site": {"path": "a", "line": 1}}}',
    ],
)
def test_what_comes_before_damage_is_shown(here: Path, line: str) -> None:
    lines = stale_run(here / "run.jsonl", 20, [5]).read_text().splitlines()
    write(here, {"run.jsonl": "\n".join([*lines[:-1], line, *lines[-1:]]) + "\n"})
    done = zerograd("report", "run.jsonl", cwd=here)
    assert done.returncode == 2
    assert f"run.jsonl:{len(lines)}" in done.stderr
    page = Parsed(here / "report.html")
    assert "the rest of the recording is not judged" in page.shown
    assert page.data["ranks"][0]["ticks"] == 20


def test_a_recording_cut_by_a_crash_is_a_page(here: Path) -> None:
    whole = stale_run(here / "run.jsonl", 20, [5]).read_bytes()
    write(here, {"run.jsonl": whole[: len(whole) // 2]})
    done = zerograd("report", "run.jsonl", cwd=here)
    assert done.returncode in (0, 1)
    assert "The run stopped after" in Parsed(here / "report.html").shown


def test_a_run_that_stopped_before_its_first_step_says_so(here: Path) -> None:
    write(here, {"run.jsonl": json.dumps(HEADER) + "\n"})
    zerograd("report", "run.jsonl", cwd=here)
    shown = Parsed(here / "report.html").shown
    assert "The run stopped before its first optimizer step." in shown


def test_a_recording_without_norms_titles_and_sources_is_a_page(here: Path) -> None:
    lines = stale_run(here / "run.jsonl", 20, [5]).read_text().splitlines()
    old = [line for line in lines[1:] if not line.startswith(('{"norms', '{"subject', '{"source'))]
    write(here, {"run.jsonl": "\n".join([lines[0], *old]) + "\n"})
    assert zerograd("replay", "run.jsonl", cwd=here).returncode == 1
    assert zerograd("report", "run.jsonl", cwd=here).returncode == 1
    assert "loss.backward()" in Parsed(here / "report.html").shown, "the source is still there"


def test_a_run_without_a_step_is_a_page(here: Path) -> None:
    write(here, {"run.jsonl": json.dumps(HEADER) + '\n{"end": true}\n'})
    assert zerograd("report", "run.jsonl", cwd=here).returncode == 0
    assert "No optimizer step" in Parsed(here / "report.html").shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["gone.jsonl"], "gone.jsonl cannot be read"),
        (["empty"], "empty contains no recording"),
        (["run.jsonl", "--select", "nonsense"], "unknown rule 'nonsense'"),
        (["run.jsonl", "--select", ","], "names no rule"),
        (["run.jsonl", "-o", "no/such/file"], "cannot be written"),
        (["run.jsonl", "-o", "empty"], "cannot be written"),
        ([], "arguments are required: RECORDING"),
    ],
)
def test_what_cannot_be_shown_is_said(here: Path, words: list[str], said: str) -> None:
    stale_run(here / "run.jsonl", 3)
    (here / "empty").mkdir()
    done = zerograd("report", *words, cwd=here)
    assert done.returncode == 2
    assert said in done.stderr
    assert [path.name for path in here.iterdir() if path.suffix in (".html", ".tmp")] == []


MEASURING = """\
import resource, sys
from zerograd.cli.main import main
main(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


@tiers.long
def test_memory_does_not_grow_with_the_recording(here: Path) -> None:
    """A recording of 50 MB beside one of 5 MB: steps, norms of steps, and new places all the time."""
    peaks = []
    for size in (5, 50):
        path = stale_run(here / "run.jsonl", 2000 * size)
        norms = {"norms": "SGD#1", "first": 1, "each": 1, "used": [1.234567] * 1000}
        with path.open("a", encoding="ascii") as stream:
            for number in range(90 * size):
                norms["first"] = 1 + 1000 * number
                stream.write(f"{json.dumps(norms)}\n")
            for number in range(200 * size):
                place = {"path": f"{number}.py", "line": number + 1}
                step = {"kind": "step", "site": place}
                made = {"define": number % 4096, "subject": f"SGD#{number}", "event": step}
                stream.write(f"{json.dumps(made)}\n{number % 4096}\n")
        assert path.stat().st_size > 0.9e6 * size
        done = subprocess.run(
            [sys.executable, "-c", MEASURING, "report", path.name],
            cwd=here,
            env=environment(here.with_name("cache")),
            capture_output=True,
            text=True,
            check=True,
        )
        peaks.append(int(done.stdout))
    assert peaks[1] - peaks[0] < 15e6, peaks
    assert (here / "report.html").stat().st_size < 5e6


def test_run_makes_the_page(here: Path) -> None:
    write(here, {"train.py": FORGOTTEN_ZERO, "page.html": "what stood there before"})
    done = zerograd("run", "--html", "page.html", "train.py", cwd=here)
    assert done.returncode == 1
    assert "page.html shows the run" in done.stderr
    page = Parsed(here / "page.html")
    assert "1 error" in page.shown
    assert page.data["ranks"][0]["lanes"][0]["norms"]["right"]
    assert sorted(path.name for path in here.iterdir()) == ["page.html", "train.py"]


@tiers.long
def test_run_keeps_a_recording_that_was_asked_for(here: Path) -> None:
    write(here, {"train.py": RIGHT})
    words = ["--html", "page.html", "--record", "run.jsonl", "train.py"]
    assert zerograd("run", *words, cwd=here).returncode == 0
    assert zerograd("report", "run.jsonl", "-o", "again.html", cwd=here).returncode == 0
    assert (here / "page.html").read_bytes() == (here / "again.html").read_bytes()
    assert "Nothing wrong" in Parsed(here / "page.html").shown


@tiers.long
def test_a_program_that_moves_fails_or_never_trains_has_its_page_too(here: Path) -> None:
    write(
        here,
        {
            "moves.py": f"{FORGOTTEN_ZERO}import os\nos.makedirs('x')\nos.chdir('x')\nraise SystemExit(3)\n"
        },
    )
    done = zerograd("run", "--html", "page.html", "moves.py", cwd=here)
    assert done.returncode == 3
    assert "The run stopped after" in Parsed(here / "page.html").shown
    write(here, {"idle.py": "print('no torch')"})
    assert zerograd("run", "--html", "page.html", "idle.py", cwd=here).returncode == 0
    assert "No optimizer step" in Parsed(here / "page.html").shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--html", "no/such/file.html"], "cannot be written"),
        (["--html", "."], "is a directory"),
    ],
)
def test_a_page_that_cannot_be_is_refused_before_the_run(
    here: Path, words: list[str], said: str
) -> None:
    write(here, {"train.py": "print('it ran')"})
    done = zerograd("run", *words, "train.py", cwd=here)
    assert done.returncode == 2
    assert said in done.stderr
    assert "it ran" not in done.stdout


@tiers.long
def test_a_killed_run_leaves_a_recording_that_a_page_can_be_made_of(here: Path) -> None:
    endless = FORGOTTEN_ZERO.replace("[(torch.ones(1), torch.ones(1))] * 3", "iter(batch, 0)")
    endless = endless.replace("for ", "batch = lambda: (torch.ones(1), torch.ones(1))\nfor ", 1)
    write(here, {"train.py": endless})
    running = subprocess.Popen(
        [sys.executable, "-m", "zerograd", "run", "--html", "page.html", "train.py"],
        cwd=here,
        env=environment(here.with_name("cache")),
        stderr=subprocess.PIPE,
    )
    assert running.stderr is not None
    assert b"ZG101" in running.stderr.readline()
    time.sleep(0.5)
    os.kill(running.pid, signal.SIGKILL)
    running.communicate()
    assert zerograd("report", "page.html.jsonl", "-o", "page.html", cwd=here).returncode == 1
    assert "ZG101" in Parsed(here / "page.html").shown

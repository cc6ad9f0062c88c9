"""`zerograd learn`: every number is right, on a terminal, in a pipe and on a page."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from support import tiers
from support.command import environment, zerograd
from support.warm_python import with_torch
from zerograd.cli.main import main
from zerograd.core.events import Site
from zerograd.core.finding import Finding, Note, Report
from zerograd.learn import content, web_pages
from zerograd.learn.content import CommandReport, Part, Question, Table
from zerograd.learn.contents import LESSONS, Lesson, find
from zerograd.learn.presenter import Terminal as Shown
from zerograd.learn.snippet import Snippet

torch = pytest.importorskip("torch")

from zerograd.learn import ddp_demo  # noqa: E402, the lessons need torch
from zerograd.learn.lessons import (  # noqa: E402
    accumulate,
    bucket,
    clearing,
    design,
    devices,
    myths,
    on_purpose,
    place,
    set_to_none,
    shared,
    skipped,
)

by_lesson = pytest.mark.parametrize(
    "lesson",
    tiers.sample(LESSONS, [one for one in LESSONS if one.name not in ("devices", "set_to_none")]),
    ids=lambda lesson: lesson.name,
)
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]\d+)?(?![\w.]|\.\d)")


@dataclass(frozen=True)
class Given(Lesson):
    """A lesson with given parts."""

    there: tuple[Part, ...] = ()

    def parts(self) -> Iterator[Part]:
        return iter(self.there)


@cache
def computed(lesson: Lesson) -> Given:
    """A lesson, computed once."""
    found = tuple(
        replace(part, because=tuple(part.because)) if isinstance(part, Question) else part
        for part in lesson.parts()
    )
    return Given(lesson.number, lesson.name, lesson.title, lesson.about, found)


def flatten(lesson: Lesson) -> Iterator[Part]:
    for part in lesson.parts():
        yield part
        if isinstance(part, Question):
            yield from part.because


def tables(lesson: Lesson) -> list[Table]:
    return [part for part in flatten(computed(lesson)) if isinstance(part, Table)]


# The numbers are compared with independent computations


def close(one: float, other: float) -> bool:
    return one == pytest.approx(other, rel=1e-4, abs=1e-7)


class Descent:
    """The regression of the lessons, computed by hand in double precision: y ≈ x·w + b."""

    def __init__(self) -> None:
        names: dict[str, Any] = {}
        exec(shared.REGRESSION, names)
        ones = torch.ones(len(names["x"]), 1)
        self.x = torch.cat([names["x"], ones], dim=1).double()
        self.y = names["y"].double().flatten()
        self.w = shared.flat(names).double()
        self.batches = [range(i, i + 8) for i in range(0, 64, 8)]

    def gradient(self, rows: Any) -> Any:
        x, y = self.x[list(rows)], self.y[list(rows)]
        return 2 * x.T @ (x @ self.w - y) / len(y)

    def loss(self, rows: Any = range(64)) -> float:
        x, y = self.x[list(rows)], self.y[list(rows)]
        return float(((x @ self.w - y) ** 2).mean())

    def train(self, epochs: int = 1, *, cleared: bool, rate: float = 0.1) -> list[float]:
        held = torch.zeros_like(self.w)
        losses = []
        for rows in self.batches * epochs:
            losses.append(self.loss(rows))
            held = self.gradient(rows) + (0 if cleared else held)
            self.w = self.w - rate * held
        return losses


def test_lesson_1_three_then_five_then_eight() -> None:
    wrong, used = bucket.moments(bucket.FORGOTTEN)
    right, clean = bucket.moments(bucket.CLEARED)
    assert (used, clean) == ([3.0, 8.0], [3.0, 5.0])
    assert wrong[-1].weight == pytest.approx(2 - 0.1 * 3 - 0.1 * 8)
    assert right[-1].weight == pytest.approx(2 - 0.1 * 3 - 0.1 * 5)
    assert [one.state for one in wrong] == ["empty", "live", "spent", "stale", "spent"]


def test_lesson_1_the_buttons_do_what_torch_does() -> None:
    lab = bucket.Bucket(2.0, 0.1, (3.0, 5.0))
    seen = [lab.press(call) for call in ("step", "backward", "step", "backward", "zero", "step")]
    assert [one.gradient for one in seen] == [None, 3.0, 3.0, 8.0, None, None]
    assert [one.state for one in seen] == ["empty", "live", "spent", "stale", "empty", "empty"]
    assert seen[-1].weight == pytest.approx(2 - 0.1 * 3)


def test_lesson_2_a_gradient_is_the_slope_and_a_sum() -> None:
    for weight, loss, slope, tried, after in accumulate.slopes():
        assert loss == (2 * weight - 6) ** 2
        assert slope == 4 * (2 * weight - 6)
        assert tried == pytest.approx(slope, abs=1e-6)
        assert after <= loss
    found, _ = shared.steps(accumulate.PILING_UP)
    total = torch.zeros_like(found[0].own)
    for step in found:
        total = total + step.own
        assert torch.allclose(step.held, total)
    assert len(found) == 3


def test_lesson_3_every_way_clears_and_moves_no_weight() -> None:
    rows = [clearing.way(*one) for one in clearing.WAYS]
    assert {float(row[1]) > 0 for row in rows} == {True}
    assert [row[2] for row in rows] == ["None", "zeros, 0", "None", "None", "zeros, 0"]
    assert {row[3] for row in rows} == {"0"}
    found, _ = shared.steps(clearing.CLEARED)
    assert all(torch.equal(step.own, step.held) for step in found)


def test_lesson_4_none_holds_nothing_and_zeros_hold_a_number_for_each_parameter() -> None:
    held, *_ = [part for part in set_to_none.measured() if isinstance(part, content.Bars)]
    count = 4 * (set_to_none.SIZE**2 + set_to_none.SIZE)
    assert [amount for _, amount, _ in held.rows] == [0.0, count * 4 / 1e6]


def test_lesson_4_zeros_still_move_a_parameter_that_is_not_used() -> None:
    for _, momentum, decay in set_to_none.IDLE:
        # After one step of slope 3: the momentum of that step, and the decay of the weight.
        weight = 1 - 0.1 * (3 + decay)
        expected = 0.1 * (momentum * 3 + decay * weight)
        assert set_to_none.idle(False, momentum, decay) == pytest.approx(expected, abs=1e-6)
        assert set_to_none.idle(True, momentum, decay) == 0


def test_lesson_4_both_train_alike() -> None:
    one, other = (
        Snippet(set_to_none.LOOP.format(flag), shared.LAYER).run() for flag in (True, False)
    )
    assert torch.equal(shared.flat(one), shared.flat(other))


def test_lesson_5_three_places_are_right_and_one_learns_nothing() -> None:
    by_hand = Descent()
    start = by_hand.loss()
    by_hand.train(cleared=True)
    weights = [shared.flat(snippet.run()) for _, snippet in place.PLACES]
    assert torch.equal(weights[0], weights[1])
    assert torch.equal(weights[0], weights[2])
    assert torch.allclose(weights[0].double(), by_hand.w, atol=1e-5)
    assert close(shared.whole_loss(place.TOO_LATE.run()), start)


def test_lesson_5_a_clear_after_the_step_trusts_what_was_there_before() -> None:
    by_hand = Descent()
    first, before = by_hand.gradient(by_hand.batches[0]), by_hand.gradient(range(64))
    assert close(float(place.first_step("", 0)[2]), float(f"{first.norm():.4g}"))
    assert close(float(place.first_step("", 3)[2]), float(f"{(first + before).norm():.4g}"))


@pytest.mark.parametrize("cleared", [True, False])
def test_lesson_6_the_losses_are_those_of_descent_by_hand(cleared: bool) -> None:
    names = skipped.training(cleared=cleared).run()
    losses = Descent().train(5, cleared=cleared)
    assert names["losses"] == pytest.approx(losses, rel=1e-2, abs=1e-5)


def test_lesson_6_not_clearing_is_momentum_that_never_fades() -> None:
    wrong = skipped.training(cleared=False).run()
    forever = skipped.training(skipped.FOREVER, cleared=True).run()
    assert torch.allclose(shared.flat(wrong), shared.flat(forever))


def test_lesson_6_every_optimizer_does_worse() -> None:
    (table,) = tables(LESSONS[5])
    assert len(table.rows) == 7
    for name, cleared, not_cleared in table.rows:
        assert float(not_cleared) > 2 * float(cleared), name


def test_lesson_7_a_window_is_one_big_batch() -> None:
    by_hand = Descent()
    big = by_hand.gradient(range(32))
    expected = {
        on_purpose.WINDOWS: big,
        on_purpose.UNDIVIDED: 4 * big,
        on_purpose.EVERY_TIME: by_hand.gradient(by_hand.batches[3]) / 4,
        on_purpose.STEPPER: big,
    }
    for snippet, gradient in expected.items():
        used = shared.steps(snippet)[0][0].held
        assert torch.allclose(used.double(), gradient, atol=1e-4), snippet


def test_lesson_7_small_pieces_keep_less_at_a_time() -> None:
    whole, pieces = map(on_purpose.kept_for_backward, (on_purpose.BIG, on_purpose.WINDOWS))
    assert whole == 4 * pieces > 0


def test_lesson_8_says_so_where_no_second_process_can_be_had(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    (said,) = devices.several_devices()
    assert isinstance(said, content.Say)
    assert "numbers are missing: exit code 1" in said.text


def test_lesson_8_small_slopes_need_a_scale_and_infinities_a_clear() -> None:
    true, lost, kept = devices.small_slope()
    assert true == pytest.approx(1e-8)
    assert lost == 0
    assert kept == pytest.approx(true, rel=1e-2)
    scales = [devices.SCALE] + [devices.SCALE / 2] * 3
    one = [(1.0, "yes")] * 3
    assert devices.rounds(devices.SCALED) == [
        (scale, held, stepped)
        for scale, (held, stepped) in zip(scales, [(float("inf"), "no"), *one], strict=True)
    ]
    assert {row[1:] for row in devices.rounds(devices.NOT_CLEARED)} == {(float("inf"), "no")}


def test_lesson_9_sums_are_what_several_uses_give() -> None:
    first, second, both = design.twice()
    assert (first, second, both) == (3, 2 * 2, 7)
    assert design.by_request() == (2 * 2, "None")
    assert design.hooked() == (3, 6, 12)
    two, one = (shared.flat(one.run()) for one in (design.TWO_LOSSES, design.ONE_LOSS))
    assert torch.allclose(two, one)


def test_lesson_10_no_optimizer_clears() -> None:
    rows = myths.optimizers()
    assert {"SGD", "Adam", "AdamW", "RMSprop", "Adagrad"} <= {name for name, _, _ in rows}
    assert all(before == after > 0 for _, before, after in rows)
    assert myths.by_itself() == (3, 3, 6)


def test_lesson_10_a_clear_takes_no_knowledge() -> None:
    by_hand = Descent()
    by_hand.train(cleared=True)
    before, after, moved = myths.knowledge()
    assert before == after
    assert close(before, by_hand.loss())
    assert moved == 0


# The verdicts


SAYS = {
    "bucket": ["ZG101", "ZG101", ""],
    "accumulate": ["ZG101", "ZG101"],
    "clearing": ["", "", "ZG107 ZG101"],
    "set_to_none": ["ZG107"],
    "place": ["ZG102", "ZG102"],
    "skipped": ["ZG101"],
    "on_purpose": ["", "ZG103"],
    "devices": ["ZG101", "ZG201"],
    "design": [""],
    "myths": ["ZG101"],
    "pitfalls": ["ZG101", "ZG102", "ZG107", "", ""],
}


@by_lesson
def test_a_lesson_is_the_same_in_a_terminal_and_on_its_page_and_ends_with_a_verdict(
    lesson: Lesson,
) -> None:
    # One test, because a lesson takes long to compute.
    given = computed(lesson)
    shown = [part for part in flatten(given) if not isinstance(part, content.Pause)]
    assert isinstance(shown[-1], CommandReport)
    verdicts = [part.report for part in shown if isinstance(part, CommandReport)]
    found = [" ".join(one.code for one in report.findings) for report in verdicts]
    assert found == SAYS[lesson.name]
    assert not any(report.errors for report in verdicts)

    stream = io.StringIO()
    Shown(stream, None, color=False).lesson(given)
    out = stream.getvalue()
    assert out.startswith(f"── {lesson.number}  {lesson.title} ─")
    assert "\x1b" not in out
    assert "Enter" not in out
    assert out.count("The answer is") == sum(isinstance(part, Question) for part in shown)
    own = re.sub(r"(?ms)^\$ zerograd.*?^(?:checked|watched) [^\n]+", "", out)
    assert max(map(len, own.splitlines())) <= 88

    on_page = NUMBER.findall(Seen(web_pages.page(given)).text)
    on_terminal = NUMBER.findall(out)
    assert len(on_terminal) > 5
    assert set(on_terminal) <= set(on_page)
    if lesson.name == "devices":
        a_rank_that_does_not_clear_spoils_all(given)


def a_rank_that_does_not_clear_spoils_all(lesson: Given) -> None:
    table = next(part for part in flatten(lesson) if isinstance(part, Table))
    slopes = ddp_demo.SLOPES
    means = [sum(own) / 2 for own in zip(*slopes, strict=True)]
    spoilt = (slopes[0][1] + means[0] + slopes[1][1]) / 2
    assert spoilt != means[1]
    expected = [
        (slopes[rank][batch], means[batch], (means[0], spoilt)[batch])
        for batch in (0, 1)
        for rank in (0, 1)
    ]
    assert [tuple(map(float, row[1:])) for row in table.rows] == expected
    said = " ".join(part.text for part in flatten(lesson) if isinstance(part, content.Say))
    window = ddp_demo.WINDOW
    assert f"a window of {window} micro-batches synchronised {window} times" in said
    assert "the number of synchronisations is 1." in said


def test_the_four_myths_are_asked_and_not_all_have_the_same_answer() -> None:
    asked = [part.truth for part in computed(LESSONS[9]).there if isinstance(part, Question)]
    assert asked == [False, True, False, False]


# Without a terminal


def test_an_answer_is_given_to_every_question(capsys: pytest.CaptureFixture[str]) -> None:
    for word, right in (("yes", 1), ("no", 3)):
        assert main(["learn", "--lesson", "10", "--answer", word]) == 0
        out = capsys.readouterr().out
        assert out.count(f"yes or no? {word}") == 4
        assert (out.count("Right:"), out.count("Wrong:")) == (right, 4 - right)
        assert out.endswith(f"{right} of your 4 answers were right.\n")


@tiers.long
def test_the_whole_course_in_a_pipe(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "zerograd", "learn"],
        env=environment(tmp_path),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    at = [done.stdout.index(f"── {lesson.number}  {lesson.title} ─") for lesson in LESSONS]
    assert at == sorted(at)


@tiers.long
def test_a_reader_who_has_read_enough_is_not_shown_an_error() -> None:
    command = f"{sys.executable} -m zerograd learn --lesson 1 | head -1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("── 1")
    assert done.stderr == ""


@tiers.long
def test_signs_that_a_terminal_does_not_know_are_drawn_in_ascii(tmp_path: Path) -> None:
    done = zerograd(
        "learn", "--lesson", "6", cwd=tmp_path, PYTHONUTF8="0", PYTHONIOENCODING="ascii"
    )
    assert done.returncode == 0
    assert "\\u" not in done.stdout
    assert "-- 6  A forgotten clear --" in done.stdout


# Without torch, and other bad input


@pytest.fixture
def no_torch(tmp_path: Path) -> dict[str, str]:
    module = tmp_path / "shadow" / "torch" / "__init__.py"
    module.parent.mkdir(parents=True)
    module.write_text("raise ImportError('No module named torch')\n")
    return {"PYTHONPATH": str(module.parents[1])}


def test_without_torch_the_way_out_is_named(tmp_path: Path, no_torch: dict[str, str]) -> None:
    done = zerograd("learn", cwd=tmp_path, **no_torch)
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install torch" in done.stderr
    assert "zerograd learn --list" in done.stderr


def test_the_list_needs_no_torch(tmp_path: Path, no_torch: dict[str, str]) -> None:
    done = zerograd("learn", "--list", cwd=tmp_path, **no_torch)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) == len(LESSONS) == 11
    for line, lesson in zip(lines, LESSONS, strict=True):
        assert re.match(rf" *{lesson.number}  {lesson.title} ", line)
    assert "accumulation" in done.stdout.lower()


@pytest.mark.parametrize("word", ["0", "12", "-1", "buckets", ""])
def test_a_lesson_that_is_not_there_is_refused(
    word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["learn", f"--lesson={word}"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"unknown lesson {word!r}" in captured.err
    assert "--list" in captured.err


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("bukcet", "1 (bucket)"),
        ("forgoten-clear", "6 (skipped)"),
        ("set-to-nome", "4 (set_to_none)"),
    ],
)
def test_a_mistyped_lesson_gets_a_suggestion(
    word: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["learn", f"--lesson={word}"]) == 2
    assert f"did you mean {meant}" in capsys.readouterr().err


def test_a_lesson_has_a_name_too() -> None:
    assert find("set-to-none") is find("set_to_none") is find("4") is LESSONS[3]


def test_pages_are_not_written_into_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "taken").write_text("mine")
    assert main(["learn", "--lesson", "1", "--html", str(tmp_path / "taken")]) == 2
    assert "cannot be written" in capsys.readouterr().err
    assert (tmp_path / "taken").read_text() == "mine"


# On a terminal


class Terminal:
    """`zerograd learn` in a pseudo-terminal, with typed input."""

    def __init__(self, *words: str, cache: Path, **env: str) -> None:
        ours, theirs = pty.openpty()
        self._ours = ours
        self.seen = ""
        self.process = with_torch().start(
            ["-m", "zerograd", "learn", *words],
            cwd=cache,
            env=environment(cache, TERM="xterm", COLUMNS="90", **env),
            streams=(theirs, theirs, theirs),
            terminal=True,
        )
        os.close(theirs)

    def until(self, prompt: str, patience: float = 60) -> str:
        """The output up to a prompt, which is included."""
        ends = time.monotonic() + patience
        while prompt not in self.seen:
            assert time.monotonic() < ends, f"no {prompt!r} in {self.seen!r}"
            if select.select([self._ours], [], [], 0.1)[0]:
                try:
                    self.seen += os.read(self._ours, 65536).decode("utf-8", "replace")
                except OSError:
                    break
        assert prompt in self.seen, self.seen
        said, _, self.seen = self.seen.partition(prompt)
        return said + prompt

    def type(self, words: str) -> None:
        os.write(self._ours, words.encode())

    def interrupt(self) -> None:
        """Ctrl-C, once the command waits for input: Python misses a signal that comes just before a read."""
        status = Path(f"/proc/{self.process.pid}/stat")
        while status.is_file() and status.read_text().rpartition(")")[2].split()[0] == "R":
            time.sleep(0.01)
        self.type("\x03")

    def end(self) -> tuple[int, str]:
        """The exit code and the last output."""
        with contextlib.suppress(OSError):  # a pseudo-terminal ends with this error
            while more := os.read(self._ours, 65536):
                self.seen += more.decode("utf-8", "replace")
        code = self.process.wait(60)
        os.close(self._ours)
        return code, self.seen


def test_a_question_is_answered_only_after_one_commits(tmp_path: Path) -> None:
    terminal = Terminal("--lesson", "10", cache=tmp_path)
    said = terminal.until("yes or no? ")
    assert "Does PyTorch clear the gradients by itself" in said
    assert "answer is" not in said
    terminal.type("perhaps\n")
    assert "answer is" not in terminal.until("yes or no? ")
    terminal.type("YES\n")
    assert "Wrong: the answer is no." in terminal.until("[Enter, or q] ")
    for word in ("yes", "no", "n"):
        terminal.type("\n")
        assert "answer is" not in terminal.until("yes or no? ")
        terminal.type(f"{word}\n")
        assert "Right: the answer is" in terminal.until("the answer is")
    code, last = terminal.end()
    assert code == 0
    assert "3 of your 4 answers were right." in last


def test_the_buckets_of_your_turn_have_the_scale_of_the_lesson() -> None:
    from zerograd.learn.content import TryOut
    from zerograd.learn.lessons.bucket import Bucket
    from zerograd.learn.presenter import Terminal as Presenter

    shown = io.StringIO()
    presenter = Presenter(shown, io.StringIO("b\nb\n\n"), color=False)
    presenter.show(TryOut(Bucket(2.0, 0.1, (3.0, 5.0))))
    three, eight = shown.getvalue().split("b, z, s or Enter: ")[1:3]
    assert "8" in eight
    assert eight.count("█") == 4 * 5, "8 is full"
    assert 5 <= three.count("█") < 2 * 5, "3 is not"


def test_a_difference_within_the_noise_is_said_to_be_noise() -> None:
    from zerograd.learn.lessons.set_to_none import compared

    assert "noise" in compared([1.0, 2.0, 3.0, 4.0], [1.5, 2.5, 3.5, 9.0])
    assert "0.50 times as long" in compared([1.0, 1.0, 1.01, 1.0], [2.0, 2.01, 2.0, 2.0])


@tiers.long
def test_enter_goes_on_to_the_next_lesson_and_q_leaves(tmp_path: Path) -> None:
    terminal = Terminal(cache=tmp_path)
    said = terminal.until("[Enter, or q] ")
    assert "\x1b[1m" in said
    assert "stale" not in said
    terminal.type("\n")
    assert "stale" in terminal.until("[Enter, or q] ")
    terminal.type("\n")
    terminal.until("b, z, s or Enter: ")
    terminal.type("bsb\n")
    poured = terminal.until("b, z, s or Enter: ")
    assert "8" in NUMBER.findall(re.sub(r"\x1b\[\d+m", "", poured))
    terminal.type("\n")
    terminal.until("[Enter, or q] ")
    terminal.type("\n")
    terminal.until("[Enter: lesson 2, or q] ")
    terminal.type("\n")
    assert "Why gradients add up" in terminal.until("[Enter, or q] ")
    terminal.type("q\n")
    code, last = terminal.end()
    assert code == 0
    assert "zerograd learn --lesson 2" in last


@tiers.long
def test_the_end_of_input_leaves_too(tmp_path: Path) -> None:
    terminal = Terminal("--lesson", "2", cache=tmp_path)
    terminal.until("[Enter, or q] ")
    terminal.type("\x04")
    code, last = terminal.end()
    assert code == 0
    assert "Continue any time" in last


def test_an_interrupt_leaves_cleanly(tmp_path: Path) -> None:
    terminal = Terminal("--lesson", "2", cache=tmp_path)
    terminal.until("[Enter, or q] ")
    terminal.interrupt()
    code, last = terminal.end()
    assert code == 128 + signal.SIGINT
    assert "Traceback" not in last
    assert "Continue any time" in last


@tiers.long
def test_no_color_is_respected(tmp_path: Path) -> None:
    terminal = Terminal("--lesson", "2", cache=tmp_path, NO_COLOR="1")
    assert "\x1b" not in terminal.until("[Enter, or q] ")
    terminal.type("q\n")
    assert terminal.end()[0] == 0


# As pages


class Seen(HTMLParser):
    """The elements of a page and its visible text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self._inside: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag in ("script", "style"):
            self._inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._inside and self._inside[-1] == tag:
            self._inside.pop()
        # A browser separates elements.
        self.text += " " if tag not in ("code", "em", "span") else ""

    def handle_data(self, data: str) -> None:
        if not self._inside:
            self.text += data


HOSTILE = "</script></style><script>alert(1)</script><img src=x onerror='alert(2)'> & \"`*"


def hostile() -> tuple[Part, ...]:
    site = Site(HOSTILE, 1)
    finding = Finding(
        HOSTILE, HOSTILE, "error", HOSTILE, site, HOSTILE, (Note(site, HOSTILE),), help=HOSTILE
    )
    report = Report([finding], files=1, sources={HOSTILE: [HOSTILE]})
    lab = bucket.Bucket(2.0, 0.1, (3.0,))
    lab.table = {"empty": {HOSTILE: HOSTILE}}
    plain: tuple[content.Plain, ...] = (
        content.Say(HOSTILE),
        content.Code(HOSTILE, HOSTILE),
        Table((HOSTILE,), ((HOSTILE,),)),
        content.Bars(((HOSTILE, 1.0, HOSTILE),), HOSTILE),
        content.Curves(((HOSTILE, (1.0, 2.0)),), HOSTILE),
        content.Buckets((content.Moment(HOSTILE, 1.0, 1.0, HOSTILE),)),
        content.TryOut(lab),
        CommandReport(HOSTILE, report),
        content.Pause(),
    )
    return (*plain, Question(HOSTILE, True, plain))


def test_whatever_a_lesson_says_is_escaped() -> None:
    given = hostile()
    assert {type(part) for part in given} == set(web_pages._RENDERERS)
    seen = Seen(web_pages.page(Given(1, "x", HOSTILE, HOSTILE, given)))
    assert seen.tags.count("script") == 3  # the data of the two buckets, and the script of the page
    assert "img" not in seen.tags
    assert not {name for name, _ in seen.attributes if name.startswith("on")}
    assert seen.text.count("alert(1)") > 20


def test_pages_need_nothing_but_themselves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "deep" / "lessons"
    assert main(["learn", "--lesson", "1", "--html", str(folder)]) == 0
    assert capsys.readouterr().out.split() == [
        str(folder / "lesson-1.html"),
        str(folder / "index.html"),
    ]
    for path in folder.iterdir():
        text = re.sub(r'"data:[^"]*"', '""', path.read_text(encoding="utf-8"))
        assert "http" not in re.sub(r"<code>.*?</code>", "", text)
        links = [
            value for name, value in Seen(text).attributes if name in ("src", "href") and value
        ]
        assert links
        assert all((folder / str(link)).exists() for link in links)


def test_every_kind_of_part_can_be_drawn() -> None:
    kinds = {kind for kind in vars(content).values() if isinstance(kind, type)}
    drawn = {kind for kind in kinds if kind.__module__ == content.__name__ and fields_of(kind)}
    assert drawn - {content.Moment} <= set(web_pages._RENDERERS)


def fields_of(kind: type) -> bool:
    return hasattr(kind, "__dataclass_fields__") and fields(kind) is not None

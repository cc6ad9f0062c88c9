"""Recordings: what was written is what is read, however the writing ended."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.command import write, zerograd
from support.event_sequences import EVENTS, sequence
from zerograd import __version__
from zerograd.core.events import (
    KINDS,
    Backward,
    Decided,
    Diverged,
    Event,
    Excuse,
    Measured,
    Observation,
    ReadBy,
    Reads,
    Site,
    Step,
    Untrained,
    Zero,
)
from zerograd.core.finding import Problem, Watched
from zerograd.recording import reader
from zerograd.recording.json_codec import event_data, parsed_event
from zerograd.recording.reader import replay
from zerograd.recording.writer import FORMAT, THIN, Recorder

Posted = list[tuple[str, Event]]
HEADER = json.dumps({"zerograd": __version__, "format": FORMAT})
ZERO, BACKWARD, STEP = (
    Zero(Site("train.py", 6)),
    Backward(Site("train.py", 7)),
    Step(Site("train.py", 8)),
)
FORGOTTEN = [("SGD", BACKWARD), ("SGD", STEP)] * 3
RIGHT = [("SGD", ZERO), ("SGD", BACKWARD), ("SGD", STEP)]


def recordable(events: list[Event]) -> list[Event]:
    """What a run sees by itself in its events is not recorded."""
    return [event for event in events if not isinstance(event, Observation)]


def read(path: Path) -> tuple[Posted, bool, list[Problem]]:
    posted: Posted = []
    played = replay(str(path), lambda subject, event: posted.append((subject, event)))
    return posted, played.clean, played.problems


def recorded(path: Path, events: Sequence[tuple[str, Event]], *, clean: bool = True) -> Path:
    recorder = Recorder(str(path))
    for subject, event in events:
        recorder.write(subject, event)
    recorder.close(clean=clean)
    assert not recorder.problem
    return path


def written_and_read(event: Event) -> Event:
    return parsed_event(json.loads(json.dumps(event_data(event))))


@given(st.sampled_from(recordable(list(EVENTS))))
def test_an_event_survives(event: Event) -> None:
    assert written_and_read(event) == event


def test_every_field_survives() -> None:
    """Whatever fields events come to have: each, with another value than its default."""
    from dataclasses import fields, replace

    others: dict[str, Any] = {
        "bool": True,
        "bool | None": None,
        "int": 7,
        "int | None": None,
        "tuple[str, ...]": ("ZG101",),
        "str": "é\udcff",
        "Site | None": Site("a b.ipynb", 3, 4, 5, 6, 7, 8),
        "Measured | None": Measured(5.0, 8.0, ("weight", "bias"), 2),
        "Diverged | None": Diverged("steps", 3, (1, 2), 0, ("weight",), 2, "4", "5"),
        "Excuse | None": Excuse.WEIGHTS_MOVED,
        "Untrained | None": Untrained("encoder", Site("a.py", 2), backward=Site("a.py", 3)),
        "ReadBy | None": ReadBy.AND_MORE,
        "Reads | None": Reads.ATTACHED,
        "Decided | None": Decided(Site("a.py", 3), 4, chosen=True),
    }
    for kind in KINDS.values():
        plain = kind(Site("train.py", 6))
        for field in fields(kind)[1:]:
            value = others[str(field.type)]
            if value == field.default:
                value = not value
            event = replace(plain, **{field.name: value})
            assert written_and_read(event) == event
            assert event_data(event) != event_data(plain)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.binary(max_size=9).map(sequence).map(recordable),
            st.sampled_from("ab"),
            st.integers(1, 40),
        ),
        max_size=5,
    )
)
def test_what_was_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[list[Event], str, int]]
) -> None:
    path = tmp_path_factory.mktemp("recording") / "run.jsonl"
    sequence = [(who, event) for events, who, times in parts for event in events * times]
    recorder = Recorder(str(path))
    for number, (subject, event) in enumerate(sequence, start=1):
        recorder.write(subject, event)
        if number % 17 == 0:
            # A crash at any moment has lost nothing.
            assert read(path) == (sequence[:number], False, [])
    recorder.close(clean=True)
    assert read(path) == (sequence, True, [])


def test_a_long_run_is_no_longer_than_a_short_one(tmp_path: Path) -> None:
    window = [("SGD", ZERO), *[("SGD", BACKWARD)] * 4, ("SGD", STEP)]
    path = recorded(tmp_path / "long.jsonl", window * 20_000)
    assert path.stat().st_size < 2000
    posted, clean, problems = read(path)
    assert (len(posted), clean, problems) == (120_000, True, [])
    assert posted[-6:] == window


def test_epochs_that_break_the_rhythm_stay_small(tmp_path: Path) -> None:
    epoch = [*RIGHT * 100, ("SGD", BACKWARD), ("SGD", ZERO)]
    path = recorded(tmp_path / "epochs.jsonl", epoch * 300)
    assert path.stat().st_size < 40_000
    assert read(path)[0] == epoch * 300


def test_many_different_events_are_numbered_anew(tmp_path: Path) -> None:
    sequence = [("SGD", Step(Site("a.py", line))) for line in range(1, 9001)]
    path = recorded(tmp_path / "many.jsonl", [*sequence, *sequence[:5] * 9, *sequence])
    assert read(path)[0] == [*sequence, *sequence[:5] * 9, *sequence]


def test_a_recording_is_cut_before_it_is_too_large(tmp_path: Path) -> None:
    path = tmp_path / "cut.jsonl"
    recorder = Recorder(str(path), most_bytes=2000)
    sequence = [("SGD", Step(Site("a.py", line))) for line in range(1, 100)]
    for subject, event in sequence:
        recorder.write(subject, event)
    recorder.close(clean=True)
    assert "2000 bytes" in recorder.problem
    assert path.stat().st_size <= 2000
    posted, clean, problems = read(path)
    assert posted == sequence[: len(posted)]
    assert len(posted) > 5
    assert not clean
    assert "cut" in problems[0].message


def test_a_full_disk_ends_the_recording_and_nothing_else() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full here")
    with pytest.raises(OSError, match="space"):
        Recorder("/dev/full")


def test_a_forked_child_leaves_the_recording_alone(tmp_path: Path) -> None:
    path = tmp_path / "fork.jsonl"
    recorder = Recorder(str(path))
    recorder.write("SGD", ZERO)
    child = os.fork()
    if not child:
        recorder.write("SGD", STEP)
        recorder.close()
        os._exit(0)
    os.waitpid(child, 0)
    recorder.write("SGD", BACKWARD)
    recorder.close()
    assert read(path)[0] == [("SGD", ZERO), ("SGD", BACKWARD)]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def test_a_recording_is_judged_without_torch(here: Path) -> None:
    recorded(here / "bad.jsonl", FORGOTTEN)
    recorded(here / "good.jsonl", RIGHT * 5)
    write(here, {"torch.py": "raise SystemExit('torch was imported')"})
    done = zerograd("replay", "bad.jsonl", cwd=here)
    assert done.returncode == 1
    assert done.stdout.count("ZG101 stale-gradient") == 1
    assert done.stdout.endswith("watched 3 steps: 1 error\n")
    assert zerograd("replay", "good.jsonl", cwd=here).returncode == 0
    assert zerograd("replay", "bad.jsonl", "--ignore", "ZG101", cwd=here).returncode == 0
    assert zerograd("replay", "bad.jsonl", "--exit-zero", cwd=here).returncode == 0


@pytest.mark.parametrize("name", ["text", "concise", "json", "github", "gitlab", "junit", "sarif"])
def test_a_replay_in_every_format(here: Path, name: str) -> None:
    recorded(here / "bad.jsonl", FORGOTTEN)
    words = ["replay", "bad.jsonl", "--format", name]
    done = zerograd(*words, cwd=here)
    assert done.returncode == 1
    assert "ZG101" in done.stdout
    into = zerograd(*words, "--output", "found", cwd=here)
    assert (into.returncode, into.stdout) == (1, "")
    assert (here / "found").read_text(encoding="utf-8") == done.stdout


def test_a_line_cut_by_a_crash_is_tolerated(here: Path) -> None:
    whole = recorded(here / "whole.jsonl", FORGOTTEN, clean=False).read_bytes()
    ends = whole.splitlines(keepends=True)
    for cut in (len(whole) - 3, len(whole) - len(ends[-1]), len(whole) - len(ends[-1]) - 1):
        write(here, {"cut.jsonl": whole[:cut]})
        done = zerograd("replay", "cut.jsonl", cwd=here)
        assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{nonsense", "not JSON"),
        ("\0\0\0", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("99", "event 99 is not defined"),
        ("true", "not a line of a recording"),
        ('"0"', "not a line of a recording"),
        ("{}", "not a line of a recording"),
        ('{"cycle": [], "events": 3}', "a cycle needs"),
        ('{"cycle": [0], "events": "3"}', "a cycle needs"),
        ('{"cycle": [7], "events": 3}', "event 7 is not defined"),
        ('{"define": 5, "subject": 1, "event": {}}', "a number and a subject"),
        ('{"define": 5, "subject": "a"}', "this is not a valid event"),
        ('{"define": 5, "subject": "a", "event": {"kind": "step"}}', "the step has no 'site'"),
        (
            '{"define": 5, "subject": "a", "event": {"kind": "leap", "site": {"path": "a", "line": 1}}}',
            "'leap' is not a kind",
        ),
        (
            '{"define": 5, "subject": "a", "event": {"kind": "step", "site": {"path": "a", "line": "1"}}}',
            "'1' has the wrong type",
        ),
        (
            '{"define": 5, "subject": "a", "event": {"kind": "step", "colour": 1, "site": {"path": "a", "line": 1}}}',
            "a newer zerograd",
        ),
    ],
)
def test_damage_is_placed_and_what_comes_before_it_is_judged(
    here: Path, line: str, said: str
) -> None:
    lines = recorded(here / "whole.jsonl", FORGOTTEN).read_text().splitlines()
    broken = [*lines[:-1], line, "0", lines[-1]]
    write(here, {"broken.jsonl": "".join(f"{one}\n" for one in broken)})
    done = zerograd("replay", "broken.jsonl", cwd=here)
    assert done.returncode == 2
    assert f"broken.jsonl:{len(lines)}  problem" in done.stdout
    assert said in done.stdout
    assert "ZG101" in done.stdout


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is empty"),
        ("import torch\n", "this is not a recording"),
        ("3\n", "this is not a recording"),
        ('{"zerograd": "9.0", "format": 4}\n0\n', "format 4, written by zerograd 9.0"),
        ('{"zerograd": "0.1.0", "format": 1}\n0\n', "format 1, written by zerograd 0.1.0"),
        (HEADER[:-4], "this is not a recording"),
        (b"\x89PNG\r\n\x1a\n\0\0", "this is not a recording"),
    ],
)
def test_what_is_no_recording_is_refused(here: Path, content: str | bytes, said: str) -> None:
    write(here, {"run.jsonl": content})
    done = zerograd("replay", "run.jsonl", cwd=here)
    assert done.returncode == 2
    assert said in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["gone.jsonl"], "gone.jsonl cannot be read"),
        (["."], ". cannot be read"),
        (["run.jsonl", "--select", "nonsense"], "unknown rule 'nonsense'"),
        (["run.jsonl", "--select", ","], "names no rule"),
        (["run.jsonl", "--output", "no/such/file"], "cannot be written"),
        ([], "arguments are required: FILE"),
    ],
)
def test_what_cannot_be_replayed_is_said(here: Path, words: list[str], said: str) -> None:
    recorded(here / "run.jsonl", RIGHT)
    done = zerograd("replay", *words, cwd=here)
    assert done.returncode == 2
    assert said in done.stderr


def test_what_else_was_written_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, {"train.py": "x = 1\n\f\ny = '\u2028'\n"})
    recorder = Recorder("run.jsonl", program="train.py", rank=3)
    recorder.title("SGD", "SGD, 2 parameters", 2)
    for subject, event in RIGHT:
        recorder.write(subject, event)
    watched = Watched(("SGD",), 2, 1, {1: 1}, ("ZG101",), {"ZG106": "no second"}, ("Lion",))
    recorder.watched(watched)
    recorder.close(clean=True)
    played = replay("run.jsonl", lambda *_: None)
    assert (played.program, played.rank, played.watched) == ("train.py", 3, watched)
    assert played.titles == {"SGD": ("SGD, 2 parameters", 2)}
    assert played.sources == {"train.py": ["x = 1", "\f", "y = '\u2028'", ""]}


def test_norms_come_behind_the_cycle_that_goes_on(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path / "run.jsonl"))
    for number in range(1, 301):
        for subject, event in RIGHT:
            recorder.write(subject, event)
        if number % 100 == 0:
            recorder.norms("SGD", number - 99, [float(number)] * 100, [None] * 99 + [0.5])
    recorder.close(clean=True)
    taken: list[tuple[Any, ...]] = []
    posted: Posted = []
    replay(
        str(tmp_path / "run.jsonl"),
        lambda subject, event: posted.append((subject, event)),
        lambda *norms: taken.append(norms),
    )
    assert posted == RIGHT * 300
    assert taken == [
        ("SGD", at + 1, 1, [at + 100.0] * 100, [None] * 99 + [0.5]) for at in (0, 100, 200)
    ]


@given(st.integers(1, 10**9), st.lists(st.floats(0, 1e30), min_size=1, max_size=300))
def test_late_norms_are_fewer_and_the_largest(
    tmp_path_factory: pytest.TempPathFactory, first: int, used: list[float]
) -> None:
    path = tmp_path_factory.mktemp("norms") / "run.jsonl"
    recorder = Recorder(str(path))
    recorder.norms("SGD", first, used, [None] * len(used))
    recorder.close()
    taken: list[tuple[Any, ...]] = []
    replay(str(path), lambda *_: None, lambda *norms: taken.append(norms))
    ((_, begins, each, kept, _),) = taken
    assert begins == first
    assert each & (each - 1) == 0
    assert (each == 1) == (first <= THIN)
    assert first <= THIN * each < 2 * max(first, THIN), "as many as there are in a doubling"
    groups = [used[at : at + each] for at in range(0, len(used), each)]
    assert kept == pytest.approx([max(group) for group in groups], rel=1e-5)


def test_a_file_too_large_for_a_line_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, {"train.py": "x = 1\n" * 200_000})
    path = recorded(tmp_path / "run.jsonl", RIGHT)
    assert path.stat().st_size < 2000


def test_reading_says_how_far_it_is(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = here / "run.jsonl"
    fact = json.dumps({"subject": "a", "title": "A", "parameters": 1})
    write(here, {"run.jsonl": "\n".join([HEADER, *[fact] * 99]) + "\n"})
    monkeypatch.setattr(reader, "LINES", 10)
    printed: list[tuple[int, int]] = []
    replay(str(path), lambda *_: None, None, lambda *far: printed.append(far))
    assert len(printed) == 10
    assert printed == sorted(printed)
    assert printed[-1] == (path.stat().st_size, path.stat().st_size)

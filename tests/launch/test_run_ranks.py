"""`zerograd run` over several processes: whoever starts them, each is watched, and one report comes."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from support import tiers
from support.command import Done, environment, zerograd
from support.paths import ROOT
from zerograd.recording.writer import Recorder

pytest.importorskip("torch")

UNSYNCED = ROOT / "examples" / "ddp_last_microbatch_unsynced.py"
SYNCED = ROOT / "examples" / "ddp_last_microbatch_synced.py"
TRAINING = ROOT / "bench" / "ranks_training.py"
TORCHRUN = ("torch.distributed.run", "--standalone", "--nproc-per-node=2")
SECONDS = 150
"""After so long a run is taken to hang."""

STARTED = """\
import os, sys
import torch, torch.distributed as dist, torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

def work(rank, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    workers = 2 if rank == 0 else 0
    loader = torch.utils.data.DataLoader(torch.randn(24, 3), batch_size=2, num_workers=workers)
    for number, x in enumerate(loader, start=1):
        if (rank, number) != (1, 7):
            optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
    dist.destroy_process_group()

if __name__ == "__main__":
    how, store = sys.argv[1:]
    if how == "spawn":
        mp.spawn(work, (store,), nprocs=2)
    elif how == "fork":
        ranks = [mp.get_context("fork").Process(target=work, args=(r, store)) for r in range(2)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
    else:
        child = os.fork()
        work(int(not child), store)
        if child:
            os.waitpid(child, 0)
"""


def command(*words: str | Path, cwd: Path, **env: str) -> Done:
    """A command of this Python; its own tracebacks are its own."""
    done = subprocess.run(
        [sys.executable, "-m", *map(str, words)],
        cwd=cwd,
        env=environment(cwd.with_name(f"{cwd.name}.cache"), OMP_NUM_THREADS="1", **env),
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    out, err = (stream.decode("utf-8", "replace") for stream in (done.stdout, done.stderr))
    return subprocess.CompletedProcess(done.args, done.returncode, out, err)


def findings(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["findings"]
    return found


def lines(text: str, word: str) -> list[str]:
    return [line for line in text.splitlines() if word in line]


def test_ranks_that_torchrun_starts_have_one_report(tmp_path: Path) -> None:
    done = command(*TORCHRUN, "-m", "zerograd", "run", UNSYNCED, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    at_once, summed_up = lines(done.stderr, "ZG401 unsynced-step")
    assert at_once.endswith("because of no_sync()")
    assert "because" not in summed_up, "each finding is printed in full once"
    assert summed_up.endswith("seen 8 times, first at step 1, on ranks 0–1")
    assert "watched 8 steps on 2 ranks: 1 error" in done.stderr
    verdict, trace = done.stderr.index("zerograd's verdict"), done.stderr.index("Traceback")
    assert done.stderr.index("watched 8 steps") < verdict < trace
    assert "--exit-zero" in done.stderr[verdict:trace]
    assert "Signal 15" not in done.stderr  # the others had ended before the first did
    assert "ZG402" not in done.stderr.replace("ZG401–ZG403", "")


@tiers.long
def test_ranks_that_share_what_they_step_are_silent(tmp_path: Path) -> None:
    done = command("zerograd", "run", "-m", *TORCHRUN, SYNCED, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith("watched 8 steps on 2 ranks: nothing to report\n")


@tiers.long
def test_the_launcher_may_be_what_is_run(tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    page = tmp_path / "page.html"
    earlier, foreign = tmp_path / "page.html.rank2.jsonl", tmp_path / "page.html.rankings.jsonl"
    Recorder(str(earlier), program="earlier.py", rank=2).close()  # of a run with more ranks
    foreign.write_text(earlier.read_text())
    options = ("--format", "json", "--output", found, "--html", page)
    done = command("zerograd", "run", *options, "-m", *TORCHRUN, UNSYNCED, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    (finding,) = findings(found)
    assert (finding["code"], finding["rank"], finding["ranks"]) == ("ZG401", None, [0, 1])
    assert len(lines(done.stderr, "ZG401 unsynced-step")) == 2
    shown = page.read_text(encoding="utf-8")
    assert "rank 0" in shown
    assert "rank 1" in shown
    assert "rank 2" not in shown
    assert sorted(tmp_path.iterdir()) == [found, page, foreign]


@tiers.long
def test_a_recording_of_one_process_leaves_those_of_ranks_alone(tmp_path: Path) -> None:
    """They are of another run, and it is not known which was meant."""
    (tmp_path / "train.py").write_text("import torch\n")
    ranks = tmp_path / "run.rank0.jsonl"
    Recorder(str(ranks), program="earlier.py", rank=0).close()
    before = ranks.read_bytes()
    done = zerograd("run", "--record", "run.jsonl", "--html", "run.html", "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "earlier.py" not in (tmp_path / "run.html").read_text(encoding="utf-8")
    assert ranks.read_bytes() == before


@tiers.long
@pytest.mark.parametrize("how", ["spawn", "fork", "os.fork"])
def test_processes_that_the_program_starts_are_watched(how: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(STARTED)
    found, left = tmp_path / "found.json", tmp_path / "left"
    options = ("--format", "json", "--output", found, "--ranks", left)
    done = command("zerograd", "run", *options, "train.py", how, tmp_path / "store", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    (finding,) = findings(found)
    assert (finding["code"], finding["rank"], finding["seen"]) == ("ZG101", 1, 1)
    assert "watched 12 steps on 2 ranks: 1 error" in done.stderr
    assert "seen once, at step 7, on rank 1" in done.stderr
    headers = [json.loads(path.read_text().splitlines()[0]) for path in left.glob("*.jsonl")]
    assert sorted(header["rank"] for header in headers) == [0, 1]  # and no worker of a loader


@tiers.long
def test_what_a_killed_rank_had_found_is_there(tmp_path: Path) -> None:
    """Rank 1 forgets to clear and is killed later; torchrun stops the other one."""
    script = TRAINING.read_text().replace(
        "here and options.fault", "rank == 1 and step == 9 and options.fault", 1
    )
    (tmp_path / "train.py").write_text(
        script.replace('options.fault == "forget"', 'options.fault == "kill"')
    )
    words = ("train.py", "--steps=40", "--fault=kill", "--rank=1", "--at=20")
    done = command(*TORCHRUN, "-m", "zerograd", "run", "--ranks", "left", *words, cwd=tmp_path)
    assert done.returncode == 1
    assert "exitcode  : -9" in done.stderr
    assert len(lines(done.stderr, "ZG101 stale-gradient")) == 1  # at once, and nobody summed up
    merged = zerograd("merge", "left", cwd=tmp_path)
    assert merged.returncode == 1, merged.stderr
    assert "on rank 1" in merged.stdout
    assert "stopped  rank 1 after step 19; findings until then are included" in merged.stdout
    printed = json.loads(zerograd("merge", "left", "--format", "json", cwd=tmp_path).stdout)
    assert [(one["code"], one["rank"]) for one in printed["findings"]] == [("ZG101", 1)]
    assert zerograd("merge", "left", "--ignore", "ZG101", cwd=tmp_path).returncode == 0


@tiers.long
def test_the_first_of_four_ranks_goes_wrong_and_is_named() -> None:
    """The long version, with more faults, is bench/ranks_soak.py."""
    sys.path.insert(0, str(TRAINING.parent))
    try:
        import ranks_soak
    finally:
        sys.path.pop(0)
    wrong = ranks_soak.Fault("perturb", 0, 131)
    printed = ranks_soak.run(wrong, 300)
    assert ranks_soak.missing(wrong, printed) == ""
    (finding,) = printed.findings
    assert finding["ranks"] == [1, 2, 3]  # it differs from all of them
    assert str(finding["message"]).startswith("rank 0 has different parameters than rank ")


# Bad input


def by_hand(script: str, rank: int, cwd: Path, port: int) -> subprocess.Popen[str]:
    """A rank as a person would start it, with no launcher."""
    env = environment(cwd.with_name(f"{cwd.name}.cache"), OMP_NUM_THREADS="1")
    env |= {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    env |= {"MASTER_PORT": str(port)}
    words = [sys.executable, "-m", "zerograd", "run", "--ranks", "left", script]
    return subprocess.Popen(
        words, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


FEW = TRAINING.read_text().replace("seconds=30", "seconds=2").replace("default=2000", "default=30")


@tiers.long
def test_a_world_that_never_forms(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(FEW)
    rank = by_hand("train.py", 0, tmp_path, free_port())
    _, said = rank.communicate(timeout=SECONDS)
    assert rank.returncode == 1
    assert "DistStoreError" in said  # training's own error
    assert "zerograd: rank 0 of 2 ended before the ranks formed a process group" in said


@tiers.long
def test_ranks_that_run_different_scripts(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(FEW)
    (tmp_path / "other.py").write_text(f"{FEW}\n# one more line\n")
    port = free_port()
    ranks = [
        by_hand(script, n, tmp_path, port) for n, script in enumerate(("train.py", "other.py"))
    ]
    said = [rank.communicate(timeout=SECONDS)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [2, 0], said
    printed = re.compile(r"rank 1 runs other\.py \(\w+\), rank 0 train\.py \(\w+\): start the same")
    assert printed.search(said[1])
    assert printed.search(said[0])  # in the merged report


@tiers.long
def test_a_store_that_goes_away(tmp_path: Path) -> None:
    """The first rank, which holds the store, leaves without a message."""
    leaving = "        if rank == 0 and step == 20:\n            os._exit(0)\n"
    marked = "        here = rank =="
    (tmp_path / "train.py").write_text(FEW.replace(marked, leaving + marked))
    port = free_port()
    ranks = [by_hand("train.py", number, tmp_path, port) for number in range(2)]
    began = time.monotonic()
    said = [rank.communicate(timeout=SECONDS)[1] for rank in ranks]
    assert time.monotonic() - began < SECONDS
    assert ranks[1].returncode == 1
    assert "RuntimeError" in said[1]  # training's own error
    assert "zerograd has failed" not in said[1]


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "train.py").write_text("print(1)\n")
    done = zerograd("run", "--ranks", "file", "train.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "zerograd: file cannot be written: File exists\n"

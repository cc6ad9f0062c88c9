"""Latency of diagnostics in an editor: from the end of the debounce to the diagnostics of that text.

A real `zerograd server` gets edits over its standard input, as an editor sends them: characters typed into a line of
a random loop, new lines, deleted lines. Two files of about 1,000 lines: one with three training loops, and one that is
dense with loops. The goal is 50 ms at the 95th percentile. Each edit is sent when the diagnostics of the one before
have arrived; the debounce of the server is subtracted. On Linux the processor time of the server is measured, too: on
a busy machine only that says anything.

    .venv/bin/python bench/lsp_latency.py [--edits 200]
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.lsp.client import LanguageClient

import outcome
from zerograd.server.language_server import DEBOUNCE

GOAL_MS = 50
METHOD = (
    "A real `zerograd server` gets edits of a file of 1,000 lines, as they are typed. Waited: from the end of the "
    "debounce to the diagnostics. Computed: the processor time of the server for the edit, which other work on the "
    "machine does not change."
)

HEAD = """\
import torch
from torch import nn, optim
from torch.amp import GradScaler, autocast

"""

LOOPS = (
    """
def train_{n}(model, loader, criterion, epochs=10, accumulation=4):
    optimizer = optim.AdamW(model.parameters(), lr=1e-3)
    total = 0.0
    for epoch in range(epochs):
        for i, (x, y) in enumerate(loader):
            loss = criterion(model(x), y) / accumulation
            loss.backward()
            if (i + 1) % accumulation == 0:
                optimizer.step()
                optimizer.zero_grad()
            total += loss.item()
    return total
""",
    """
def fit_{n}(net, loader, device):
    criterion = nn.CrossEntropyLoss()
    optimizer = optim.SGD(net.parameters(), lr=0.1)
    scaler = GradScaler()
    for epoch in range(3):
        for images, labels in loader:
            with autocast("cuda"):
                loss = criterion(net(images.to(device)), labels.to(device))
            scaler.scale(loss).backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            if epoch > 1:
                optimizer.zero_grad()
""",
    """
def gan_{n}(generator, critic, loader, latent):
    opt_g = optim.Adam(generator.parameters(), lr=2e-4)
    opt_d = optim.Adam(critic.parameters(), lr=2e-4)
    bce = nn.BCEWithLogitsLoss()
    for step, real in enumerate(loader):
        fake = generator(torch.randn(real.size(0), latent))
        opt_d.zero_grad()
        d_loss = bce(critic(real), torch.ones(real.size(0), 1)) + bce(critic(fake.detach()), torch.zeros(1))
        d_loss.backward()
        opt_d.step()
        if step % 2 == 0:
            opt_g.zero_grad()
            g_loss = bce(critic(fake), torch.ones(real.size(0), 1))
            g_loss.backward()
            opt_g.step()
""",
    """
class Trainer{n}:
    def __init__(self, model, lr):
        self.model = model
        self.optimizer = optim.Adam(model.parameters(), lr=lr)
        self.criterion = nn.MSELoss()

    def step(self, x, y):
        loss = self.criterion(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def fit(self, loader, epochs):
        for epoch in range(epochs):
            self.optimizer.zero_grad()
            for x, y in loader:
                self.step(x, y)
""",
)

OTHER = '''
def transform_{n}(image, size=32, mean=0.5):
    """Resize and normalise."""
    values = []
    for row in range(size):
        line = [pixel * mean + row for pixel in image[row]]
        if row % 2 == {n}:
            line = list(reversed(line))
        values.append(sum(line) / max(1, len(line)))
    return {{"values": values, "size": size}}
'''


def dense(lines: int = 1000) -> str:
    text, number = HEAD, 0
    while text.count("\n") < lines:
        text += LOOPS[number % len(LOOPS)].format(n=number)
        number += 1
    return text


def sparse(lines: int = 1000) -> str:
    parts = [OTHER.format(n=number) for number in range(lines // OTHER.count("\n") - 4)]
    for number in range(3):
        parts.insert((number + 1) * len(parts) // 4, LOOPS[number].format(n=number))
    return HEAD + "".join(parts)


def typed(text: str, count: int, chance: random.Random) -> Iterator[tuple[types.Range, str]]:
    """Edits as they are typed: a line grows key by key in some loop, and at last goes away."""
    lines = text.split("\n")
    done = 0
    while done < count:
        inside = [at for at, line in enumerate(lines) if "backward()" in line or "loss =" in line]
        at = chance.choice(inside)
        indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
        here = types.Position(at, 0)
        yield types.Range(here, here), f"{indent}n = 1\n"
        for column, key in enumerate("0 + 1 + 2 + len('ab')", len(indent) + 5):
            place = types.Position(at, column)
            yield types.Range(place, place), key
        yield types.Range(here, types.Position(at + 1, 0)), ""
        done += 23


def edited(lines: list[str], place: types.Range, new: str) -> list[str]:
    """The lines of a text after an edit."""
    start, end = place.start, place.end
    whole = lines[start.line][: start.character] + new + lines[end.line][end.character :]
    return [*lines[: start.line], *whole.split("\n"), *lines[end.line + 1 :]]


def computed(pid: int) -> float:
    """Milliseconds that all threads of a process have computed."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e6


async def latencies(text: str, count: int, folder: Path) -> list[tuple[float, float]]:
    """Milliseconds from the end of the debounce to the diagnostics, and of computing.

    For each edit that leaves a valid text.
    """
    client = LanguageClient("bench", "1")
    published: asyncio.Queue[tuple[int | None, float]] = asyncio.Queue()

    def arrived(params: types.PublishDiagnosticsParams) -> None:
        published.put_nowait((params.version, time.perf_counter()))

    listen: Any = client.feature
    listen(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(arrived)
    await client.start_io(sys.executable, "-m", "zerograd", "server", cwd=folder)
    await client.initialize_async(types.InitializeParams(types.ClientCapabilities()))
    client.initialized(types.InitializedParams())
    uri = (folder / "train.py").as_uri()
    document = types.TextDocumentItem(uri, "python", 1, text)
    client.text_document_did_open(types.DidOpenTextDocumentParams(document))
    await published.get()
    server: Any = client._server  # noqa: SLF001 (there is no public name)
    found = []
    lines = text.split("\n")
    for version, (place, new) in enumerate(typed(text, count, random.Random(0)), 2):
        change = types.TextDocumentContentChangePartial(place, new)
        work, begin = computed(server.pid), time.perf_counter()
        client.text_document_did_change(
            types.DidChangeTextDocumentParams(
                types.VersionedTextDocumentIdentifier(uri=uri, version=version), [change]
            )
        )
        lines = edited(lines, place, new)
        try:
            ast.parse("\n".join(lines))
        except SyntaxError:
            # It keeps its diagnostics, and nothing is published; a person types on.
            await asyncio.sleep(2 * DEBOUNCE)
            continue
        said, end = await asyncio.wait_for(published.get(), 60)
        assert said == version
        found.append(((end - begin - DEBOUNCE) * 1e3, computed(server.pid) - work))
    await client.shutdown_async(None)
    client.exit(None)
    stop: Any = client.stop
    await stop()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--edits", type=int, default=200)
    outcome.add_argument(parser)
    arguments = parser.parse_args()
    worst = 0.0
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        # A project of its own: what is around it does not count.
        Path(folder, ".git").mkdir()
        for name, text in (("three loops", sparse()), ("dense", dense())):
            found = asyncio.run(latencies(text, arguments.edits, Path(folder)))
            print(
                f"{name}, {text.count(chr(10))} lines, {len(found)} edits (goal: p95 {GOAL_MS} ms)"
            )
            for what, times in zip(
                ("waited", "computed"), map(sorted, zip(*found, strict=True)), strict=True
            ):
                p95 = times[int(len(times) * 0.95)]
                worst = max(worst, p95) if what == "waited" else worst
                middle = statistics.median(times)
                goal = GOAL_MS if what == "waited" else None
                rows.append(
                    outcome.Row(f"{name}: {what}, median", middle, "ms", times[0], times[-1])
                )
                rows.append(outcome.Row(f"{name}: {what}, 95th percentile", p95, "ms", goal=goal))
                print(
                    f"  {what:<9} median {middle:.0f} ms, p95 {p95:.0f} ms, most {times[-1]:.0f} ms"
                )
    if arguments.result:
        title = "Diagnostics in an editor"
        outcome.write(arguments.result, title=title, method=METHOD, rows=rows)
    return int(worst > GOAL_MS)


if __name__ == "__main__":
    sys.exit(main())

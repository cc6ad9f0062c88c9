"""Repairs a text, as `--fix` and `--unsafe-fixes` do."""

from __future__ import annotations

from zerograd.core.finding import Finding
from zerograd.fix.document import Document
from zerograd.fix.repair import Repaired, repair

HEAD = """\
import torch
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
data = [torch.ones(1)] * 3
N = 4
"""


def everything(finding: Finding) -> bool:
    return True


def repaired(text: str | bytes, *, unsafe: bool = True, path: str = "train.py") -> Repaired:
    data = text.encode() if isinstance(text, str) else text
    return repair(Document(path, data), everything, unsafe=unsafe)

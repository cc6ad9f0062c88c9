"""The set-up of the documentation works in a real Neovim, where there is one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.command import FORGOTTEN_ZERO
from support.paths import ROOT

NEOVIM = shutil.which("nvim")
PAGE = ROOT / "docs" / "howto" / "editors.md"
PRINT_DIAGNOSTICS = """\
local found
vim.wait(60000, function()
  found = vim.diagnostic.get(0)
  return #found > 0
end, 100)
for _, one in ipairs(found) do
  io.stdout:write(one.source .. " " .. one.code .. " in line " .. one.lnum + 1 .. "\\n")
end
"""


@pytest.mark.skipif(NEOVIM is None, reason="there is no Neovim")
def test_neovim_shows_what_the_server_finds(tmp_path: Path) -> None:
    assert NEOVIM is not None
    shown = subprocess.run([NEOVIM, "--version"], capture_output=True, text=True, check=True).stdout
    version = re.match(r"NVIM v(\d+)\.(\d+)", shown)
    assert version is not None
    section = PAGE.read_text(encoding="utf-8").partition("## Neovim")[2].partition("\n## ")[0]
    new, old = re.findall(r"```lua\n(.*?)```", section, re.DOTALL)
    is_new = tuple(map(int, version.groups())) >= (0, 11)
    (tmp_path / "init.lua").write_text(new if is_new else old, encoding="utf-8")
    (tmp_path / "print.lua").write_text(PRINT_DIAGNOSTICS, encoding="utf-8")
    (tmp_path / "train.py").write_text(FORGOTTEN_ZERO, encoding="utf-8")
    (tmp_path / "pyproject.toml").touch()
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    then = ["-c", "luafile print.lua", "-c", "qall!"]
    done = subprocess.run(
        [NEOVIM, "--headless", "-n", "-i", "NONE", "-u", "init.lua", "train.py", *then],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "zerograd ZG101 in line" in done.stdout, done.stderr

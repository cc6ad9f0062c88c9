"""A Python that has imported what programs need. It forks itself for each program, which saves the imports.

With `with_torch()`, a program finds torch not imported yet: its `import torch` goes through
`sys.meta_path`, as always. Only the work of the import is missing. With `with_commands()`, the modules of
zerograd that a check needs are imported. What the start or the end of an interpreter does, its options and
its variables need a process of their own.
"""

from __future__ import annotations

import array
import atexit
import builtins
import contextlib
import fcntl
import functools
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import IO, Any

_COMMANDS = ("cli", "core", "rules", "explore", "static", "check", "fix", "report")
"""The packages of the commands that need no torch."""
SECONDS = 120
"""Seconds after which a program counts as hanging."""


class Process:
    """A program that runs in a fork of the warm Python."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.pid = int(self._line())

    def wait(self, timeout: float = SECONDS) -> int:
        """Wait for its end. The exit code, as `subprocess` has it."""
        self._connection.settimeout(timeout)
        try:
            status = int(self._line())
        except TimeoutError:
            os.kill(self.pid, signal.SIGKILL)
            raise  # wait again for its end
        self._connection.close()
        return os.waitstatus_to_exitcode(status)

    def _line(self) -> str:
        text = b""
        while not text.endswith(b"\n"):
            more = self._connection.recv(1)
            assert more, "the warm Python has ended"
            text += more
        return text.decode()


class WarmPython:
    """Starts programs in forks of one process, which ends with this one."""

    def __init__(self, *imported: str) -> None:
        self._path = str(Path(tempfile.mkdtemp(prefix="warm")) / "socket")
        self._server = subprocess.Popen(
            [sys.executable, __file__, self._path, *imported],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**_without("PYTHONPATH", os.environ), "PYTHONUTF8": "1"},
        )
        assert self._server.stdout is not None
        assert self._server.stdout.readline() == b"ready\n"

    def close(self) -> None:
        """End the process. Programs that run are not ended."""
        self._server.communicate()
        shutil.rmtree(Path(self._path).parent)

    def start(
        self,
        words: Sequence[str | Path],
        *,
        cwd: Path,
        env: Mapping[str, str],
        streams: tuple[int, int, int],
        terminal: bool = False,
    ) -> Process:
        """Start `python WORDS…`, a script or `-m MODULE`. `terminal`: the streams are its controlling terminal."""
        with contextlib.ExitStack() as undo:
            connection = socket.socket(socket.AF_UNIX)
            undo.callback(connection.close)
            connection.settimeout(SECONDS)
            connection.connect(self._path)
            request = {
                "words": [str(word) for word in words],
                "cwd": str(cwd),
                "env": dict(env),
                "terminal": terminal,
            }
            data = json.dumps(request).encode()
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", streams))]
            connection.sendmsg([len(data).to_bytes(8, "big")], rights)
            connection.sendall(data)
            process = Process(connection)
            undo.pop_all()
        return process

    def run(
        self,
        *words: str | Path,
        cwd: Path,
        env: Mapping[str, str],
        stdin: bytes = b"",
        timeout: float = SECONDS,
    ) -> subprocess.CompletedProcess[str]:
        """Run `python WORDS…` to its end; what it has printed."""
        with contextlib.ExitStack() as files:
            given, out, err = (files.enter_context(tempfile.TemporaryFile()) for _ in range(3))
            given.write(stdin)
            given.seek(0)
            streams = given.fileno(), out.fileno(), err.fileno()
            code = self.start(words, cwd=cwd, env=env, streams=streams).wait(timeout)
            return subprocess.CompletedProcess(list(words), code, _text(out), _text(err))


@functools.cache
def with_torch() -> WarmPython:
    """The Python that has imported torch. There is one for all tests of a process."""
    from support import without_torch  # not in the process that is started

    without_torch.skip()
    return _closed_at_exit(WarmPython("torch"))


@functools.cache
def with_commands() -> WarmPython:
    """The Python that has imported the commands that need no torch."""
    return _closed_at_exit(WarmPython(*(f"zerograd.{name}" for name in _COMMANDS)))


def _closed_at_exit(python: WarmPython) -> WarmPython:
    atexit.register(python.close)
    return python


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "backslashreplace")


def _without(name: str, variables: Mapping[str, str]) -> dict[str, str]:
    return {one: value for one, value in variables.items() if one != name}


class _Kept:
    """Finds torch among the modules that were imported before, and puts them back."""

    def __init__(self) -> None:
        self._modules = {
            name: module for name, module in sys.modules.items() if f"{name}.".startswith("torch.")
        }
        self._spec = self._modules["torch"].__spec__
        for name in self._modules:
            del sys.modules[name]

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "torch" or not self._modules:
            return None
        assert self._spec is not None
        spec = ModuleSpec("torch", self, origin=self._spec.origin, is_package=True)  # type: ignore[arg-type]
        spec.submodule_search_locations = self._spec.submodule_search_locations
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._modules["torch"]

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec
        sys.modules.update(self._modules)
        self._modules = {}
        sys.meta_path.remove(self)


def _serve(path: str) -> dict[str, Any]:
    """Fork for each request, and send back the process id and the exit status. Returns only in a fork."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    ended, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    running: dict[int, socket.socket] = {}
    os.write(1, b"ready\n")
    while True:
        ready, _, _ = select.select([listener.fileno(), ended, 0], [], [])
        if 0 in ready:
            os._exit(0)
        if ended in ready:
            os.read(ended, 4096)
            _report_ended(running)
        if listener.fileno() in ready:
            connection, _ = listener.accept()
            request, streams = _request(connection)
            pid = os.fork()
            if not pid:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for server in (listener, connection, *running.values()):
                    server.close()
                os.close(ended)
                os.close(wake)
                unbuffered = bool(request["env"].get("PYTHONUNBUFFERED"))
                _attach(streams, terminal=request["terminal"], unbuffered=unbuffered)
                return request
            for stream in streams:
                os.close(stream)
            running[pid] = connection
            connection.sendall(b"%d\n" % pid)


def _report_ended(running: dict[int, socket.socket]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        with running.pop(pid) as connection, contextlib.suppress(BrokenPipeError):
            connection.sendall(b"%d\n" % status)


def _request(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    head, rights, _, _ = connection.recvmsg(8, socket.CMSG_SPACE(3 * 4))
    streams = array.array("i")
    streams.frombytes(rights[0][2])
    left = int.from_bytes(head, "big")
    data = b""
    while len(data) < left:
        data += connection.recv(left - len(data))
    return json.loads(data), list(streams)


def _attach(streams: Sequence[int], *, terminal: bool, unbuffered: bool) -> None:
    """Make these the standard streams."""
    if terminal:
        os.setsid()
        fcntl.ioctl(streams[0], termios.TIOCSCTTY, 0)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    for stream in set(streams):
        os.close(stream)
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        errors = "backslashreplace" if name == "stderr" else "surrogateescape"
        lines = name == "stderr" or os.isatty(number)
        at_once = unbuffered and name != "stdin"
        raw = open(number, f"{mode}b", 0 if at_once else -1, closefd=False)  # noqa: SIM115, it stays open
        made = io.TextIOWrapper(raw, "utf-8", errors, line_buffering=lines, write_through=at_once)
        setattr(sys, name, made)
        setattr(sys, f"__{name}__", made)


def _become(request: dict[str, Any]) -> list[str]:
    """Take over the directory, the environment, the path and the arguments of a program; its words."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    words: list[str] = request["words"]
    module = words[0] == "-m"
    first = str(Path.cwd() if module else Path(words[0]).resolve().parent)
    added = filter(None, request["env"].get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:1] = [first, *map(os.path.abspath, added)]
    sys.argv[:] = ["-m", *words[2:]] if module else words
    if "torch" in sys.modules:
        sys.meta_path.insert(0, _Kept())
    return words


def _run(words: Sequence[str]) -> None:
    """Run a program as python does, and end without taking apart the modules: that takes a second."""
    code = 0
    try:
        if words[0] == "-m":
            runpy._run_module_as_main(words[1], True)  # type: ignore[attr-defined]
        else:
            path = Path(words[0]).absolute()
            main = sys.modules["__main__"] = ModuleType("__main__")
            main.__dict__.update(__file__=str(path), __builtins__=builtins)
            exec(compile(path.read_bytes(), str(path), "exec", dont_inherit=True), main.__dict__)
    except SystemExit as error:
        if not isinstance(error.code, int | None):
            raise
        code = error.code or 0
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # the program has closed it
            stream.flush()
    os._exit(code & 0xFF)


def _import(names: Sequence[str]) -> None:
    """Import modules, and of our packages all modules."""
    for name in names:
        package = importlib.import_module(name)
        if name.startswith("zerograd."):
            for one in pkgutil.walk_packages(package.__path__, f"{name}."):
                importlib.import_module(one.name)
    if "torch" in names:
        import torch

        # torch imports much more when an optimizer is first used.
        torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1).zero_grad()
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    _import(sys.argv[2:])
    _run(_become(_serve(sys.argv[1])))

"""Runs a script as `python` would, with a watch that starts when the script imports torch.

The script has its own arguments, its own `__main__` and its own `sys.path`. It ends as under
`python`, and no traceback contains a frame of zerograd.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import pkgutil
import runpy
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType, ModuleType
from typing import Protocol

from zerograd.core.usage_error import UsageError
from zerograd.runtime.tracebacks import tidy

TORCH = "torch"


@dataclass(frozen=True)
class LaunchTarget:
    """The program to run: a script, a directory or zip file with a `__main__.py`, or a module."""

    name: str
    arguments: tuple[str, ...] = ()
    module: bool = False


@dataclass(frozen=True)
class Ended:
    """How a program ended."""

    code: int
    """The exit code, as under `python`."""
    clean: bool = True
    """Whether it ended without an exception or interrupt."""
    interrupted: bool = False
    """Whether it ended by Ctrl-C: `python` then dies of that signal."""


class Watching(Protocol):
    """Is notified of the import of torch."""

    def torch_imported(self) -> None:
        """The import of torch has ended. Must not raise."""
        ...

    def torch_missing(self) -> None:
        """The program tried to import torch, which is not installed."""
        ...


def run(program: LaunchTarget, watching: Watching) -> Ended:
    """Run a program to its end: join its threads, and call its exit handlers."""
    start = _prepare(program)
    with _at_torch(watching), _clean_threads():
        ended = _run(start)
        _finish()
    return ended


def _prepare(program: LaunchTarget) -> Callable[[], object]:
    """Prepare `__main__`, arguments and path for a program. Returns the function that starts it."""
    if program.module:
        return _prepare_module(program)
    path = os.path.join(os.getcwd(), program.name)
    if program.name == "-":
        raise UsageError("a script on standard input cannot be run: write it to a file")
    if not os.path.exists(path):
        raise UsageError(
            f"no such file: {program.name} (zerograd run SCRIPT, or zerograd run -m MODULE)"
        )
    importer = pkgutil.get_importer(path)
    if importer is None:
        return _prepare_script(program, path)
    with contextlib.suppress(SyntaxError):  # the finder of a zip file compiles the module
        if importer.find_spec("__main__") is None:
            raise UsageError(f"{program.name} has no __main__.py: name a script in it")
    _own(program.name, program.arguments)
    _first_path(path, always=True)
    return lambda: _run_module("__main__", alter_argv=False)


def _prepare_module(program: LaunchTarget) -> Callable[[], object]:
    _first_path(os.getcwd())
    top = program.name.partition(".")[0]
    try:
        found = bool(top) and importlib.util.find_spec(top) is not None
    except ValueError:
        found = True  # the module is already loaded in an unusual way
    if not found:
        raise UsageError(
            f"no module {program.name!r} in {os.getcwd()} or among the installed packages"
        )
    _own("-m", program.arguments)
    return lambda: _run_module(program.name, alter_argv=True)


def _prepare_script(program: LaunchTarget, path: str) -> Callable[[], object]:
    try:
        with open(path, "rb") as stream:
            source = stream.read()
    except OSError as error:
        raise UsageError(f"{program.name} cannot be read: {error.strerror}") from None
    main = _own(program.name, program.arguments)
    _first_path(os.path.dirname(os.path.realpath(path)))
    if path.endswith(".ipynb"):
        return _prepare_notebook(program, path, main)
    main.__dict__.update(
        __file__=path, __cached__=None, __loader__=SourceFileLoader("__main__", path)
    )
    return lambda: exec(_compiled(source, path), main.__dict__)  # noqa: S102  # the user asked for it


def _prepare_notebook(program: LaunchTarget, path: str, main: ModuleType) -> Callable[[], object]:
    from zerograd.launch.notebook_program import prepare
    from zerograd.static.read.source import Unreadable

    try:
        start = prepare(path, program.name, main)
    except Unreadable as error:
        raise UsageError(f"{program.name} {error}") from None
    os.chdir(os.path.dirname(path))  # as Jupyter does: its files are beside a notebook
    return start


def _compiled(source: bytes, path: str) -> CodeType:
    if source[:4] == importlib.util.MAGIC_NUMBER:
        import marshal

        code = marshal.loads(source[16:])  # noqa: S302  # as python does with a .pyc file
        assert isinstance(code, CodeType)
        return code
    return compile(source, path, "exec", dont_inherit=True)


def _run_module(name: str, *, alter_argv: bool) -> object:
    # `python -m` calls this too; runpy's public functions remove the module at the end.
    as_main: Callable[[str, bool], object] = runpy._run_module_as_main  # type: ignore[attr-defined]
    return as_main(name, alter_argv)


def _own(name: str, arguments: Sequence[str]) -> ModuleType:
    """Make a new `__main__`, and set the arguments."""
    main = ModuleType("__main__")
    main.__dict__.update(__builtins__=__import__("builtins"))
    if sys.version_info < (3, 14):
        main.__dict__.update(__annotations__={})
    sys.modules["__main__"] = main
    sys.argv[:] = [name, *arguments]
    return main


def _first_path(path: str, *, always: bool = False) -> None:
    """Replace the first entry of the search path by the one that `python` would use."""
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = path
    elif always:
        sys.path.insert(0, path)


def _run(start: Callable[[], object]) -> Ended:
    """Run the program, and show an uncaught exception as `python` does."""
    error = _outcome(start)
    if error is None:
        return Ended(0)
    if isinstance(error, SystemExit):
        code = _exit_code(error)
        return Ended(code, clean=code == 0)
    code = _show(error)
    if isinstance(error, KeyboardInterrupt):
        return Ended(128 + signal.SIGINT, clean=False, interrupted=True)
    return Ended(code, clean=False)


def _outcome(start: Callable[[], object]) -> BaseException | None:
    """The uncaught exception. After the return it does not count as being handled any more."""
    try:
        start()
    except BaseException as error:  # every exception that would end python
        return error
    return None


def _exit_code(error: SystemExit) -> int:
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return int(error.code)
    _say(str(error.code))
    return 1


def _say(message: str, error: BaseException | None = None) -> None:
    """Print a message and an exception on the program's standard error, if it is open."""
    with contextlib.suppress(Exception):
        print(message, file=sys.stderr or sys.__stderr__)
        if error is not None:
            tidy(error)
            traceback.print_exception(error)


def _show(error: BaseException) -> int:
    """Pass the exception to `sys.excepthook`. Returns the exit code."""
    tidy(error)
    kind, trace = type(error), error.__traceback__
    sys.last_type, sys.last_value, sys.last_traceback = kind, error, trace
    if sys.version_info >= (3, 12):
        sys.last_exc = error
    try:
        sys.excepthook(kind, error, trace)
    except SystemExit as left:
        return _exit_code(left)
    except BaseException as broken:  # python also survives a broken hook
        _say("Error in sys.excepthook:", broken)
        _say("\nOriginal exception was:", error)
    return 1


def _finish() -> None:
    """Do what python does at the end of a program: join threads and call exit handlers.

    Python does both again afterwards, without effect.
    """
    try:
        threading._shutdown()  # type: ignore[attr-defined]
    except BaseException as error:  # Ctrl-C while a thread is joined
        _say(f"Exception ignored in: {threading!r}", error)
    atexit._run_exitfuncs()


@contextlib.contextmanager
def _clean_threads() -> Iterator[None]:
    """Remove zerograd's frames from tracebacks of threads too."""
    before = threading.excepthook

    def hook(args: threading.ExceptHookArgs, /) -> object:
        if args.exc_value is None:
            return before(args)
        tidy(args.exc_value)
        trace = args.exc_value.__traceback__
        return before(threading.ExceptHookArgs((args.exc_type, args.exc_value, trace, args.thread)))

    threading.excepthook = hook
    try:
        yield
    finally:
        if threading.excepthook is hook:
            threading.excepthook = before


@contextlib.contextmanager
def _at_torch(watching: Watching) -> Iterator[None]:
    """Notify the listener now if torch is imported, otherwise when the program imports it."""
    if TORCH in sys.modules:
        watching.torch_imported()
        yield
        return
    finder = Finder(watching)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        finder.leave()


class Finder:
    """Finds torch as the other finders do, and notices the end of its import."""

    def __init__(self, watching: Watching) -> None:
        self._watching = watching

    def leave(self) -> None:
        """Stop watching imports."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find torch. A search without an import changes nothing."""
        if name != TORCH:
            return None
        # Those before this one have been asked; another watch may have a finder behind it.
        own = sys.meta_path.index(self) if self in sys.meta_path else -1
        for finder in sys.meta_path[own + 1 :]:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                self._listen(spec)
                return spec
        self._watching.torch_missing()
        return None

    def _listen(self, spec: ModuleSpec) -> None:
        loader = spec.loader
        if loader is None:
            return
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            # Restore torch's own loader, even if the import fails.
            vars(loader).pop("exec_module", None)
            execute(module)
            self.leave()
            self._watching.torch_imported()

        loader.exec_module = exec_module  # type: ignore[method-assign]

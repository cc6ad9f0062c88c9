"""Calls our code from inside the program's calls of torch, so that the program does not notice.

A fault of ours ends the watching and nothing else. An exception that is not ours reaches the program at
once. The modes of the program (TorchDispatchMode, TorchFunctionMode) do not see what our code does, and
torch.compile does not compile it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from zerograd.core.interruptions import interrupts

_OURS = ("builtins", "torch", "zerograd")


def is_ours(error: BaseException) -> bool:
    """Whether an exception that was raised in our code is a fault of ours."""
    home = type(error).__module__.partition(".")[0]
    return home in _OURS and not interrupts(error)


def unnoticed(torch: Any, fault: Callable[[BaseException], bool]) -> Callable[..., Any]:
    """The function that calls our code; `fault` gets its errors, and is false if they have to be raised."""
    dispatch_modes = torch._C._len_torch_dispatch_stack
    function_modes = torch._C._len_torch_function_stack
    compiler = torch._C._dynamo.eval_frame
    compile_by = compiler.set_eval_frame
    # torch 2.4 says what compiles only in exchange for another.
    compiling = getattr(compiler, "get_eval_frame_callback", None) or _asked_by(compile_by)

    def heard(call: Callable[..., Any], *args: Any) -> Any:
        try:
            if dispatch_modes() or function_modes() or compiling() is not None:
                before = compile_by(None)
                try:
                    with _without_modes(torch) as real:
                        return call(*args) if real else None
                finally:
                    compile_by(before)
            return call(*args)
        except BaseException as error:
            if not fault(error):
                raise

    return heard


def _asked_by(compile_by: Callable[[Any], Any]) -> Callable[[], Any]:
    def compiling() -> Any:
        before = compile_by(None)
        if before is not None:
            compile_by(before)
        return before

    return compiling


@contextmanager
def _without_modes(torch: Any) -> Iterator[bool]:
    """No mode of the program is active inside.

    False if one of them computes with fake tensors: there is nothing to see.
    """
    modes = torch.utils._python_dispatch._disable_current_modes
    real = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is None
    with modes(), torch._C.DisableTorchFunction():
        yield real

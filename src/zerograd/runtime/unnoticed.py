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
    # `get_eval_frame_callback` would say what compiles. But torch 2.4 has none, and that of 2.6 takes a reference
    # away from what it returns: after some ten thousand calls the process dies.
    compile_by = torch._C._dynamo.eval_frame.set_eval_frame

    def heard(call: Callable[..., Any], *args: Any) -> Any:
        try:
            before = compile_by(None)
            if before is None and not dispatch_modes() and not function_modes():
                return call(*args)
            try:
                with _without_modes(torch) as real:
                    return call(*args) if real else None
            finally:
                compile_by(before)
        except BaseException as error:
            if not fault(error):
                raise

    return heard


@contextmanager
def _without_modes(torch: Any) -> Iterator[bool]:
    """No mode of the program is active inside.

    False if one of them computes with fake tensors: there is nothing to see.
    """
    modes = torch.utils._python_dispatch._disable_current_modes
    real = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is None
    with modes(), torch._C.DisableTorchFunction():
        yield real

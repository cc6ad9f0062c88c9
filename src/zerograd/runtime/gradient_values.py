"""Reads gradients: which of them hold anything, their norms, their versions.

It never writes, draws no random numbers and changes nothing that a program computes.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import compress, repeat
from operator import attrgetter, is_not
from typing import TYPE_CHECKING, Any

from zerograd.core.interruptions import Tolerating

if TYPE_CHECKING:
    from torch import Tensor

MOST_BYTES = 256 * 1024 * 1024
"""Gradients larger than this are not copied: a run must not run out of memory for us."""


def _memory_comparison() -> Callable[[int, int, int], int] | None:
    """The function `memcmp` of C; None where it cannot be loaded."""
    with Tolerating(Exception):
        compare = ctypes.CDLL(None).memcmp
        compare.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
        compare.restype = ctypes.c_int
        found: Callable[[int, int, int], int] = compare
        return found
    return None


_compare = _memory_comparison()
GRAD, VERSION = attrgetter("grad"), attrgetter("_version")


def holding(params: Iterable[Tensor]) -> list[Tensor]:
    """The parameters whose gradient is not None."""
    params = list(params)
    # No loop in Python: for 1,000 parameters this takes a third of the time.
    return list(compress(params, map(is_not, map(GRAD, params), repeat(None))))


def nonzero(params: Sequence[Tensor]) -> list[Tensor]:
    """The parameters whose gradient is not zero everywhere, among parameters that have one."""
    params = [param for param in params if not has_only_zero_bytes(param.grad)]
    if not params:
        return []
    return [param for param, norm in zip(params, norms(params), strict=True) if norm != 0.0]


def has_only_zero_bytes(grad: Any) -> bool:
    """Whether the memory of a gradient is zero: then no norm has to be computed. False where it cannot be read."""
    import torch

    if _compare is None or type(grad) is not torch.Tensor or not grad.is_cpu:
        return False
    if grad.layout is not torch.strided or not grad.is_contiguous() or not grad.numel():
        return False
    begin = grad.data_ptr()
    # It is zero if the first byte is, and each byte is like the one before it.
    return (
        begin != 0
        and ctypes.c_ubyte.from_address(begin).value == 0
        and _compare(begin, begin + 1, grad.nbytes - 1) == 0
    )


def begins_with_a_number(grad: Any) -> bool:
    """Whether the first number in the memory of a gradient is not zero. False where it cannot be read."""
    import torch

    if type(grad) is not torch.Tensor or not grad.is_cpu or not grad.is_floating_point():
        return False
    if grad.layout is not torch.strided or not grad.numel() or not grad.data_ptr():
        return False
    size = grad.element_size()
    bits = int.from_bytes(ctypes.string_at(grad.data_ptr(), size), sys.byteorder)
    return bool(bits & (1 << 8 * size - 1) - 1)  # all but the sign


def has_finite_bytes(tensor: Any, most: int) -> bool | None:
    """Whether the first numbers in the memory of a tensor are finite, at most so many; None where it cannot be read.

    No operation of torch is needed: after a training step each of them would take ten times as long.
    """
    types, strided, formats = _readable()
    number_format = formats.get(tensor.dtype)
    if number_format is None or type(tensor) not in types or not tensor.is_cpu:
        return None
    if tensor.layout is not strided or not tensor.is_contiguous():
        return None
    begin, count = tensor.data_ptr(), min(tensor.numel(), most)
    if not begin or not count:
        return None
    # The exponent of inf and nan has only ones: one more, and it overflows into the bit above it.
    memory, exponents, ones, above = _bits(*number_format, count)
    bits = int.from_bytes(memory.from_address(begin), sys.byteorder)
    return not (bits & exponents) + ones & above


@functools.cache
def _readable() -> tuple[tuple[type, ...], object, dict[Any, tuple[int, int]]]:
    """The tensors that can be read: their types, their layout, and by number how many bytes it has and which bits are its exponent."""
    import torch

    formats = {
        torch.float16: (2, 0x7C00),
        torch.bfloat16: (2, 0x7F80),
        torch.float32: (4, 0x7F80_0000),
        torch.float64: (8, 0x7FF0_0000_0000_0000),
    }
    return (torch.nn.Parameter, torch.Tensor), torch.strided, formats


def _bits(size: int, exponent: int, count: int) -> tuple[Any, int, int, int]:
    """For so many numbers in a row: the type of their memory, their exponents, the lowest bit of each, and the bit above it."""
    every = int.from_bytes((1).to_bytes(size, sys.byteorder) * count, sys.byteorder)
    lowest = exponent & -exponent
    memory = ctypes.c_ubyte * (size * count)
    return memory, every * exponent, every * lowest, every * (exponent + lowest)


def imprint(param: Tensor) -> object:
    """What would be different if anybody had written to a parameter."""
    first = None
    begin = param.data_ptr()
    if begin and param.is_cpu and is_plain(param):
        first = ctypes.string_at(begin, param.element_size())
    return (param._version, begin, first)


def holds(param: Tensor) -> bool:
    """Whether a parameter's gradient is not zero everywhere; its first number is often enough."""
    grad = param.grad
    if grad is None:
        return False
    return (is_plain(grad) and _first(grad) != 0) or bool(nonzero([param]))


def is_plain(grad: Tensor) -> bool:
    """Whether a gradient is a dense tensor that is whole in this process."""
    import torch

    return grad.layout is torch.strided and grad.numel() > 0 and not hasattr(grad, "to_local")


def _first(grad: Tensor) -> float:
    # After a training step the processor's caches hold none of this: each call into torch is slow.
    number: float = grad.as_strided((), ()).item()
    return number


def any_holds(params: Iterable[Tensor]) -> bool:
    """Whether any of the parameters has a gradient that is not zero everywhere."""
    return bool(nonzero(holding(params)))


def norms(params: Sequence[Tensor]) -> list[float]:
    """The norm of each gradient; that of a gradient with no numbers in it is 0."""
    import torch

    with torch.no_grad():
        grads = [plain(param.grad) for param in params if param.grad is not None]
        return numbers(torch._foreach_norm(grads)) if grads else []


def numbers(tensors: Sequence[Tensor]) -> list[Any]:
    """The numbers in tensors that hold one each; those of a device at once, because each transfer waits for it."""
    import torch

    alike: dict[object, list[int]] = {}
    for at, one in enumerate(tensors):
        alike.setdefault((one.device, one.dtype), []).append(at)
    found = [0] * len(tensors)
    for places in alike.values():
        fetched = torch.stack([tensors[at] for at in places]).tolist()
        for at, value in zip(places, fetched, strict=True):
            found[at] = value
    return found


def plain(grad: Tensor) -> Tensor:
    """The gradient as a tensor that norms can be taken of: what this process holds of it."""
    if hasattr(grad, "to_local"):
        grad = grad.to_local()
    grad = grad.detach()
    if grad.is_sparse:
        # Entries of one place may cancel only when they are added up.
        grad = grad.coalesce().values()
    if grad.is_complex():
        import torch

        grad = torch.view_as_real(grad.resolve_conj())
    return grad


def copies(params: Sequence[Tensor]) -> dict[int, Tensor]:
    """Copies of what this process holds of gradients, by the identity of their parameters.

    There are none if they would be too large, or if there is no memory for them.
    """
    grads = {id(param): plain(param.grad) for param in params if param.grad is not None}
    if sum(grad.numel() * grad.element_size() for grad in grads.values()) > MOST_BYTES:
        return {}
    with Tolerating(RuntimeError):
        return {key: grad.clone() for key, grad in grads.items()}
    return {}


def is_sharded(param: Tensor) -> bool:
    """Whether a parameter is distributed over ranks, as under FSDP2 and FSDP1."""
    return hasattr(param, "device_mesh") or is_flattened(param)


def any_is_sharded(params: Sequence[Tensor]) -> bool:
    """The same of several parameters."""
    names = ("device_mesh", "_fsdp_flattened")
    return any(any(map(hasattr, params, repeat(name))) for name in names)


def is_flattened(param: Tensor) -> bool:
    """Whether FSDP1 keeps a parameter in a flat one, or it is a flat one."""
    return hasattr(param, "_fsdp_flattened")


def itself(grad: Tensor) -> object:
    """What a gradient is known by."""
    return grad


def storage(grad: Tensor) -> object:
    """What a gradient is known by where FSDP1 makes new views of the same memory."""
    return grad.untyped_storage()


def version(grad: Tensor) -> int:
    """How often a gradient was written to; of a distributed one, what this process holds of it."""
    # FSDP2 writes to the tensor inside, and the version of the one outside does not change.
    inside = getattr(grad, "_local_tensor", None)
    return grad._version if inside is None else grad._version + int(inside._version)

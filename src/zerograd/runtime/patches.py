"""Patches torch so that a listener is called for every backward, step, clear, clip and scaler call.

It is the only module that changes torch, and it puts everything back. Every patch calls the original
and returns or raises what that does. An error of the listener never reaches the program.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import math
from collections.abc import Callable, Iterable
from types import CodeType, FunctionType, ModuleType
from typing import Any, Protocol

from zerograd.runtime.ranks import collectives

OLDEST = (2, 4)


class Unsupported(RuntimeError):
    """There is no torch to watch, or it is too old. The message says what to do."""


class Listener(Protocol):
    """What is called when something happens to gradients."""

    @property
    def sync(self) -> collectives.Listener:
        """What is called when torch.distributed is used."""
        ...

    def backward_begins(self, outputs: Any, gradients: Any) -> Any:
        """A backward that accumulates is about to run. None: `backward_ended` is not called for it."""
        ...

    def backward_ended(self, token: Any, failed: bool) -> None:
        """It has run; the token is the result of `backward_begins`."""
        ...

    def step_begins(self, optimizer: Any) -> None:
        """An optimizer is about to step."""
        ...

    def step_ended(self, optimizer: Any) -> None:
        """It has stepped."""
        ...

    def zeroed(self, optimizer: Any, to_none: bool) -> None:
        """The `zero_grad` of torch has run on an optimizer."""
        ...

    def module_zeroed(self, module: Any, to_none: bool) -> None:
        """The `zero_grad` of torch has run on a module."""
        ...

    def clipped(self, params: list[Any]) -> None:
        """Gradients are about to be clipped."""
        ...

    def scaled(self, scaler: Any, outputs: Any) -> None:
        """A scaler has multiplied a loss."""
        ...

    def unscaling(self, scaler: Any, optimizer: Any) -> None:
        """A scaler is about to divide the gradients of an optimizer."""
        ...

    def scaler_step_begins(self, scaler: Any, optimizer: Any) -> None:
        """A scaler is about to step an optimizer."""
        ...

    def scaler_step_ended(self, optimizer: Any, failed: bool) -> None:
        """It has stepped it, or has skipped the step."""
        ...

    def updated(self) -> None:
        """A scaler has updated its scale."""
        ...

    def grouped(self, optimizer: Any) -> bool:
        """An optimizer got parameters. The result: whether some of them are under FSDP2."""
        ...

    def fault(self, error: Exception) -> None:
        """The listener has raised an error."""
        ...


def load_torch() -> ModuleType:
    """Import torch. Raises `Unsupported` if it cannot be watched."""
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        raise Unsupported(f"torch cannot be imported ({error}): pip install torch") from None
    version = str(torch.__version__)
    with contextlib.suppress(ValueError):
        if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
            raise Unsupported(
                f"torch {version} is too old to be watched: 2.4 or newer is needed"
            ) from None
    return torch


class Hooks:
    """The patches; `remove` puts everything back as it was."""

    def __init__(self, torch: ModuleType, listener: Listener) -> None:
        self._torch = torch
        self._listener = listener
        self._undo: list[Callable[[], object]] = []
        self._hears_shards = False

    def install(self) -> None:
        """Begin to listen."""
        try:
            self._backward()
            self._steps()
            self._clears()
            self._clips()
            self._scalers()
            self._ranks()
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        """Stop listening."""
        while self._undo:
            self._undo.pop()()

    def _set(self, owner: Any, name: str, value: Any) -> None:
        before = (
            vars(owner)[name] if isinstance(owner, (type, ModuleType)) else getattr(owner, name)
        )
        setattr(owner, name, value)
        self._undo.append(lambda: setattr(owner, name, before))

    def _wrap_inside(self, decorated: Any, wrap: Callable[[Any], Any]) -> None:
        """Wrap the function inside a decorated one: that works however the program has imported it."""
        for cell in decorated.__closure__ or ():
            inner = cell.cell_contents
            if isinstance(inner, FunctionType) and inner.__name__ == decorated.__name__:
                self._set(cell, "cell_contents", wrap(inner))
                return
        raise Unsupported(f"{decorated.__qualname__} is built unlike any torch known here")

    def _backward(self) -> None:
        autograd = importlib.import_module("torch.autograd")
        graph = importlib.import_module("torch.autograd.graph")
        original = graph._engine_run_backward
        begins, ended, fault = (
            self._listener.backward_begins,
            self._listener.backward_ended,
            self._listener.fault,
        )

        def _engine_run_backward(t_outputs: Any, *args: Any, **kwargs: Any) -> Any:
            if not kwargs.get("accumulate_grad"):
                return original(t_outputs, *args, **kwargs)
            token = None
            try:
                token = begins(t_outputs, args[0] if args else ())
            except Exception as error:
                fault(error)
            try:
                result = original(t_outputs, *args, **kwargs)
            except BaseException:
                if token is not None:
                    _quietly(fault, ended, token, True)
                raise
            if token is not None:
                try:
                    ended(token, False)
                except Exception as error:
                    fault(error)
            return result

        for module in (graph, autograd):
            self._set(module, "_engine_run_backward", _engine_run_backward)

    def _steps(self) -> None:
        module = importlib.import_module("torch.optim.optimizer")
        begins, ended, fault = (
            self._listener.step_begins,
            self._listener.step_ended,
            self._listener.fault,
        )

        def before(optimizer: Any, args: Any, kwargs: Any) -> None:
            try:
                begins(optimizer)
            except Exception as error:
                fault(error)

        def after(optimizer: Any, args: Any, kwargs: Any) -> None:
            try:
                ended(optimizer)
            except Exception as error:
                fault(error)

        self._undo.append(module.register_optimizer_step_pre_hook(before).remove)
        self._undo.append(module.register_optimizer_step_post_hook(after).remove)
        add = module.Optimizer.add_param_group

        def add_param_group(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            result = add(optimizer, *args, **kwargs)
            _quietly(fault, self._grouped, optimizer)
            return result

        self._set(module.Optimizer, "add_param_group", _as(add, add_param_group))

    def _grouped(self, optimizer: Any) -> None:
        if self._listener.grouped(optimizer):
            self._hear_shards()

    def _clears(self) -> None:
        module = importlib.import_module("torch.optim.optimizer")
        zeroed, fault = self._listener.zeroed, self._listener.fault

        def wrap(inner: Any) -> Any:
            def zero_grad(self: Any, set_to_none: bool = True) -> Any:
                result = inner(self, set_to_none)
                try:
                    zeroed(self, set_to_none)
                except Exception as error:
                    fault(error)
                return result

            return _as(inner, zero_grad)

        zero = module.Optimizer.zero_grad
        if zero.__closure__:
            self._wrap_inside(zero, wrap)
        else:
            # Two functions of ours, so that there are as many frames as with the decorator.
            self._set(module.Optimizer, "zero_grad", _as(zero, _calling(wrap(zero))))

        module_zeroed = self._listener.module_zeroed
        of_module = self._torch.nn.Module.zero_grad

        def zero_grad(self: Any, set_to_none: bool = True) -> Any:
            result = of_module(self, set_to_none)
            try:
                module_zeroed(self, set_to_none)
            except Exception as error:
                fault(error)
            return result

        self._set(self._torch.nn.Module, "zero_grad", _as(of_module, zero_grad))

    def _clips(self) -> None:
        module = importlib.import_module("torch.nn.utils.clip_grad")
        by_norm = getattr(module, "_clip_grads_with_norm_", None) or module.clip_grad_norm_
        for decorated in (by_norm, module.clip_grad_value_):
            self._wrap_inside(decorated, self._clip)

    def _clip(self, inner: Any) -> Any:
        clipped, fault = self._listener.clipped, self._listener.fault
        tensor = self._torch.Tensor

        def clip(parameters: Any, limit: Any, *args: Any, **kwargs: Any) -> Any:
            if not isinstance(parameters, tensor):
                parameters = list(parameters)
            if not (isinstance(limit, float) and math.isinf(limit)):
                # A clip without a limit only computes the norm.
                params = [parameters] if isinstance(parameters, tensor) else parameters
                _quietly(fault, clipped, params)
            return inner(parameters, limit, *args, **kwargs)

        def by_name(*args: Any, **kwargs: Any) -> Any:
            bound = inspect.signature(inner).bind(*args, **kwargs).arguments
            parameters = bound.pop("parameters")
            limit = bound.pop("max_norm" if "max_norm" in bound else "clip_value")
            return clip(parameters, limit, **bound)

        def either(*args: Any, **kwargs: Any) -> Any:
            return (clip if len(args) >= 2 else by_name)(*args, **kwargs)

        return _as(inner, either)

    def _scalers(self) -> None:
        scaler_class = importlib.import_module("torch.amp.grad_scaler").GradScaler
        listener, fault = self._listener, self._listener.fault
        scale, unscale_ = scaler_class.scale, scaler_class.unscale_
        step, update = scaler_class.step, scaler_class.update

        def scaled(self: Any, outputs: Any) -> Any:
            result = scale(self, outputs)
            if self._enabled:
                _quietly(fault, listener.scaled, self, result)
            return result

        def unscaled(self: Any, optimizer: Any) -> Any:
            if self._enabled:
                _quietly(fault, listener.unscaling, self, optimizer)
            return unscale_(self, optimizer)

        def stepped(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._enabled:
                return step(self, optimizer, *args, **kwargs)
            _quietly(fault, listener.scaler_step_begins, self, optimizer)
            try:
                result = step(self, optimizer, *args, **kwargs)
            except BaseException:
                _quietly(fault, listener.scaler_step_ended, optimizer, True)
                raise
            _quietly(fault, listener.scaler_step_ended, optimizer, False)
            return result

        def updated(self: Any, new_scale: Any = None) -> Any:
            result = update(self, new_scale)
            if self._enabled:
                _quietly(fault, listener.updated)
            return result

        self._set(scaler_class, "scale", _as(scale, scaled))
        self._set(scaler_class, "unscale_", _as(unscale_, unscaled))
        self._set(scaler_class, "step", _as(step, stepped))
        self._set(scaler_class, "update", _as(update, updated))

    def _ranks(self) -> None:
        sync = self._listener.sync
        collectives.listen(self._set, self._wrap_inside, sync)
        sync.look_for_wrappers()
        self._hear_shards()

    def _hear_shards(self) -> None:
        """Begin to listen to FSDP2 if the program has imported it."""
        if self._undo and not self._hears_shards:
            self._hears_shards = collectives.listen_to_shards(self._set, self._listener.sync)


def _as(original: Any, wrapper: Any) -> Any:
    """The wrapper, with the name and the docstring of the original."""
    for attribute in ("__module__", "__name__", "__qualname__", "__doc__"):
        with contextlib.suppress(AttributeError):
            setattr(wrapper, attribute, getattr(original, attribute))
    return wrapper


def _calling(function: Any) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


def _quietly(fault: Callable[[Exception], None], call: Callable[..., object], *args: Any) -> None:
    try:
        call(*args)
    except Exception as error:
        fault(error)


def hide_from_compiler(codes: Iterable[CodeType]) -> None:
    """Keep torch.compile, which traces whatever runs below it, from tracing this code."""
    try:
        compiler = importlib.import_module("torch._C._dynamo.eval_frame")
    except ImportError:
        return
    skip = getattr(compiler, "skip_code", None) or _skipping(compiler)
    for code in codes:
        skip(code)


def _skipping(compiler: Any) -> Callable[[CodeType], None]:
    """What `skip_code` does, for versions of torch that do not have it."""
    action = compiler._FrameAction
    strategy = compiler._FrameExecStrategy(action.SKIP, action.DEFAULT)
    return lambda code: compiler.set_code_exec_strategy(code, strategy)


def code_of(module: ModuleType) -> Iterable[CodeType]:
    """The code of every function, method and property of a module, and of the functions in them."""
    found: list[CodeType] = []
    for value in vars(module).values():
        members = vars(value).values() if isinstance(value, type) else (value,)
        for member in members:
            if isinstance(member, property):
                member = member.fget
            elif isinstance(member, (staticmethod, classmethod)):
                member = member.__func__
            if isinstance(member, FunctionType) and member.__module__ == module.__name__:
                found.append(member.__code__)
    for code in found:
        yield code
        found += [inner for inner in code.co_consts if isinstance(inner, CodeType)]

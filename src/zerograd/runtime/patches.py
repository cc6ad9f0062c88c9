"""Patches torch so that a watcher is called for every backward, step, clear, clip and scaler call.

It is the only module that changes torch, and it puts everything back. Every patch calls the original
and returns or raises what that does. What the watcher does is not noticed (`unnoticed`), nor are the
patches (`disguise`).
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import math
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from operator import attrgetter, methodcaller
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from zerograd.runtime.call_sites import Bottom, no_frame
from zerograd.runtime.disguise import UNSEEN, compile_instead, disguised
from zerograd.runtime.ranks import collectives
from zerograd.runtime.unnoticed import is_ours

if TYPE_CHECKING:
    from zerograd.runtime.lanes import Here
    from zerograd.runtime.ranks.sync import RankSync
    from zerograd.runtime.steady_loop import SteadyLoop
    from zerograd.runtime.watcher import Watcher

OLDEST = (2, 4)
_FLAT = "torch.distributed.fsdp.fully_sharded_data_parallel"
_MORE_SCALERS = [("torch.distributed.fsdp.sharded_grad_scaler", "ShardedGradScaler")]
_OPTIONAL = (_FLAT, *(module for module, _ in _MORE_SCALERS), *collectives.MODULES)
ABOVE_TORCH = 2
"""How far above a patch the user can be: some of torch is between."""
ABOVE_PATCH = 1
"""The same where nothing is between."""


class Unsupported(RuntimeError):
    """There is no torch to watch, or it is too old. The message says what to do."""


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


class NoLoop:
    """The loop of no thread."""

    thread = 0


NO_LOOP = NoLoop()


class Ear:
    """The patches reach the current listener through it; None while nobody listens."""

    def __init__(self) -> None:
        self.listener: Watcher | None = None
        self._here: Here | None = None
        self.loop: SteadyLoop | NoLoop = NO_LOOP
        """The loop of the main thread, if the listener was begun there: to ask `_here` in each call makes a steady step
        cost a third more."""

    def listen(self, listener: Watcher | None) -> None:
        """From now on this one listens."""
        self.listener, self._here, self.loop = None, None, NO_LOOP
        if listener is not None:
            self.listener, self._here = listener, listener.here
            if threading.current_thread() is threading.main_thread():
                self.loop = listener.here.loop

    def loop_here(self) -> SteadyLoop | None:
        """The loop of the current thread; None while nobody listens."""
        return None if self._here is None else self._here.loop

    def fault(self, error: BaseException) -> bool:
        """A patch has raised an error; False if it has to reach the program."""
        return is_ours(error) if self.listener is None else self.listener.fault(error)

    def backward_ended(self, token: Any, failed: bool) -> None:
        """A backward that a loop had expected has run, but not as expected."""
        if self.listener is not None:
            self.listener.heard(self.listener.backward_ended, token, failed)

    def sync(self) -> RankSync | None:
        """Who listens to torch.distributed."""
        return None if self.listener is None else self.listener.sync


class Patch:
    """A new value for an attribute of torch."""

    def __init__(self, owner: Any, name: str, value: Any) -> None:
        self.value = value
        # The attribute of a class itself, not what its bases have.
        fixed = isinstance(owner, (type, ModuleType))
        read = vars(owner).__getitem__ if fixed else owner.__getattribute__
        self.now: Callable[[], Any] = partial(read, name)
        """What the attribute is."""
        self.before = self.now()
        self.put: Callable[[], None] = partial(setattr, owner, name, value)
        self.put_back: Callable[[], None] = partial(setattr, owner, name, self.before)


_VALUE, _BEFORE, _NOW = attrgetter("value"), attrgetter("before"), methodcaller("now")
"""To compare all patches with these takes no step of Python for each of them."""


class Hooks:
    """The patches; `remove` puts everything back as it was.

    They are made once. Who listens is asked at each call, so that the next watch puts the same ones there.
    """

    def __init__(self, torch: ModuleType) -> None:
        self.torch = torch
        self._version = torch.__version__
        self._ear = Ear()
        self._modes = torch._C._len_torch_function_stack
        """A loop reads gradients, which a TorchFunctionMode of the program would see."""
        self._patches: list[Patch] = []
        self._step_hooks: list[tuple[Callable[[Any], Any], Any]] = []
        """Functions of torch that register a hook for all steps, each with its hook."""
        self._handles: list[Any] = []
        """The step hooks that are registered now."""
        self._imported = _imported()
        self._hears_ranks = False
        self._hears_shards = False
        self._hears_flat = False
        self._scaler_classes: set[Any] = set()
        """The classes of scalers that were seen."""

    def fit(self) -> bool:
        """Whether they can be used again: torch has not changed since they were made, or were installed."""
        there = list(map(_VALUE if self._handles else _BEFORE, self._patches))
        return (
            bool(there)
            and sys.modules.get("torch") is self.torch
            and self.torch.__version__ is self._version
            and self._imported == _imported()
            and list(map(_NOW, self._patches)) == there
        )

    def install(self, listener: Watcher) -> None:
        """Begin to listen."""
        self._ear.listen(listener)
        try:
            if self._handles:
                pass  # they rest
            elif self._patches:
                for patch in self._patches:
                    patch.put()
            else:
                self._backward()
                self._steps()
                self._groups()
                self._clears()
                self._module_clears()
                self._clips()
                self._scalers()
                collectives.listen(self._wrap_inside, self._ear.sync, self._hear_ranks)
            if not self._handles:
                self._handles = [register(hook) for register, hook in self._step_hooks]
            if collectives.have_met():
                self._hear_ranks()
                listener.sync.look_for_wrappers()
            self._hear_shards()
        except BaseException:
            self.remove()
            raise

    def rest(self) -> None:
        """Stop listening, but leave the patches where they are."""
        self._ear.listen(None)

    def remove(self) -> None:
        """Stop listening, and put everything back."""
        self.rest()
        while self._handles:
            self._handles.pop().remove()
        for patch in self._patches:
            if patch.now() is patch.value:  # else the program has replaced it, and its value stays
                patch.put_back()

    def _set(self, owner: Any, name: str, value: Any) -> None:
        patch = Patch(owner, name, value)
        self._patches.append(patch)
        patch.put()

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
        ear, modes = self._ear, self._modes
        frame_at, above, bottom, nothing_above = sys._getframe, ABOVE_TORCH, Bottom, no_frame
        ident, method = threading.get_ident, self.torch.Tensor.backward.__code__
        ordinary = _ordinary_backward(ear, original)

        def _engine_run_backward(*args: Any, **kwargs: Any) -> Any:
            if not kwargs.get("accumulate_grad"):
                return original(*args, **kwargs)
            try:
                frame: Any = frame_at(above)
            except ValueError as error:
                frame = nothing_above(error)
            if frame.f_code is method:
                frame = frame.f_back or bottom
            loop: Any = ear.loop
            expected = None
            try:
                loop = loop if loop.thread == ident() else ear.loop_here()
                if loop is not None and not modes():
                    # The usual call is compared here, as in zero_grad() and in the hook before a step: that takes a quarter
                    # less than to call `backward_begins`. After a backward and a step it would save nothing.
                    call, count = loop.expected, loop.count
                    if (
                        call.backward_at == frame.f_lasti
                        and call.code is frame.f_code
                        and count.backwards < count.next_look
                    ):
                        call.grad = grad = call.param.grad
                        call.version = -1 if grad is None else grad._version
                        count.backwards += 1
                        if loop.expected is call:
                            loop.expected = call.running
                        expected = call
                    else:
                        expected = loop.backward_begins(frame)
            except BaseException as error:
                if not ear.fault(error):
                    raise
            if expected is None:
                return ordinary(frame, args, kwargs)
            try:
                result = original(*args, **kwargs)
            except BaseException:
                ear.backward_ended(expected, True)
                raise
            try:
                if loop.backward_ends(expected):
                    return result
            except BaseException as error:
                if not ear.fault(error):
                    raise
            ear.backward_ended(expected, False)
            return result

        patch = disguised(original, _engine_run_backward)
        self._set(graph, "_engine_run_backward", patch)
        self._set(autograd, "_engine_run_backward", patch)

    def _steps(self) -> None:
        module = importlib.import_module("torch.optim.optimizer")
        before, after = _before_step(self._ear), _after_step(self._ear, self._modes)
        compile_instead(before, _compiled_step_begins)
        compile_instead(after, _compiled_step_ended)
        self._step_hooks = [
            (module.register_optimizer_step_pre_hook, before),
            (module.register_optimizer_step_post_hook, after),
        ]

    def _groups(self) -> None:
        module = importlib.import_module("torch.optim.optimizer")
        ear, grouped, add = self._ear, self._grouped, module.Optimizer.add_param_group

        def add_param_group(*args: Any, **kwargs: Any) -> Any:
            result = add(*args, **kwargs)
            if ear.listener is not None:
                ear.listener.heard(grouped, args[0] if args else kwargs["self"])
            return result

        self._set(module.Optimizer, "add_param_group", disguised(add, add_param_group))

    def _grouped(self, optimizer: Any) -> None:
        listener = self._ear.listener
        if listener is None:
            return
        if listener.grouped(optimizer):
            self._hear_shards()
        if not self._hears_flat and _FLAT in sys.modules:
            self._clips_of_flat()

    def _clears(self) -> None:
        module = importlib.import_module("torch.optim.optimizer")
        zero = module.Optimizer.zero_grad
        ear = self._ear
        frame_at, far_above, bottom = sys._getframe, ABOVE_TORCH, Bottom
        profiled, nothing_above, ident = zero.__code__, no_frame, threading.get_ident

        def wrap(inner: Any) -> Any:
            def zero_grad(self: Any, set_to_none: bool = True) -> Any:
                result = inner(self, set_to_none)
                try:
                    frame: Any = frame_at(far_above)
                except ValueError as error:
                    frame = nothing_above(error)
                if frame.f_code is profiled:
                    frame = frame.f_back or bottom
                loop: Any = ear.loop
                try:
                    if loop.thread != ident() and (loop := ear.loop_here()) is None:
                        return result
                    call = loop.expected
                    if (
                        call.of_clear == id(self)
                        and call.instruction == frame.f_lasti
                        and call.code is frame.f_code
                        and call.to_none is set_to_none
                    ):
                        loop.expected = call.next
                        return result
                    if loop.clears(frame, id(self), set_to_none):
                        return result
                except BaseException as error:
                    if not ear.fault(error):
                        raise
                listener = ear.listener
                if listener is not None:
                    listener.heard(listener.zeroed, frame, self, set_to_none)
                return result

            return disguised(inner, zero_grad)

        if zero.__closure__:
            self._wrap_inside(zero, wrap)
        else:
            # Two functions of ours, so that there are as many frames as with the decorator.
            self._set(module.Optimizer, "zero_grad", disguised(zero, _calling(wrap(zero))))

    def _module_clears(self) -> None:
        of_module = self.torch.nn.Module.zero_grad
        ear, ref = self._ear, weakref.ref
        frame_at, above, nothing_above = sys._getframe, ABOVE_PATCH, no_frame
        ident = threading.get_ident

        def zero_grad(self: Any, set_to_none: bool = True) -> Any:
            result = of_module(self, set_to_none)
            try:
                frame: Any = frame_at(above)
            except ValueError as error:
                frame = nothing_above(error)
            loop: Any = ear.loop
            try:
                if loop.thread != ident() and (loop := ear.loop_here()) is None:
                    return result
                if loop.clears(frame, ref(self), set_to_none):
                    return result
            except BaseException as error:
                if not ear.fault(error):
                    raise
            listener = ear.listener
            if listener is not None:
                listener.heard(listener.module_zeroed, frame, self, set_to_none)
            return result

        self._set(self.torch.nn.Module, "zero_grad", disguised(of_module, zero_grad))

    def _clips(self) -> None:
        module = importlib.import_module("torch.nn.utils.clip_grad")
        by_norm = getattr(module, "_clip_grads_with_norm_", None) or module.clip_grad_norm_
        self._wrap_inside(by_norm, lambda inner: self._clip(inner, "max_norm"))
        self._wrap_inside(module.clip_grad_value_, lambda inner: self._clip(inner, "clip_value"))
        if _FLAT in sys.modules:
            self._clips_of_flat()

    def _clips_of_flat(self) -> None:
        """Listen to FSDP1, whose modules clip their gradients themselves."""
        self._hears_flat = True
        flat = sys.modules[_FLAT].FullyShardedDataParallel
        ear, isinf = self._ear, math.isinf

        def wrap(inner: Any) -> Any:
            def clip_grad_norm_(*args: Any, **kwargs: Any) -> Any:
                limit = args[1] if len(args) > 1 else kwargs.get("max_norm")
                listener = ear.listener
                if listener is not None and args and isinstance(args[0], flat):
                    if not (isinstance(limit, float) and isinf(limit)):
                        listener.heard(listener.clipped, args[0].parameters())
                return inner(*args, **kwargs)

            return disguised(inner, clip_grad_norm_)

        self._wrap_inside(flat.clip_grad_norm_, wrap)

    def _clip(self, inner: Any, limit_name: str) -> Any:
        ear = self._ear

        def clip(*args: Any, **kwargs: Any) -> Any:
            listener = ear.listener
            if listener is None:
                return inner(*args, **kwargs)
            parameters = args[0] if args else kwargs.get("parameters")
            if isinstance(parameters, iterator):
                # It can be read only once.
                parameters = list(parameters)
                if args:
                    args = (parameters, *args[1:])
                else:
                    kwargs["parameters"] = parameters
            limit = args[1] if len(args) > 1 else kwargs.get(limit_name)
            if not (isinstance(limit, float) and isinf(limit)):
                # A clip without a limit only computes the norm.
                listener.heard(listener.clipped, parameters)
            return inner(*args, **kwargs)

        iterator, isinf = Iterator, math.isinf
        return disguised(inner, clip)

    def _scalers(self) -> None:
        self._hear_scaler(importlib.import_module("torch.amp.grad_scaler").GradScaler)
        for module, name in _MORE_SCALERS:
            if module in sys.modules:
                self._hear_scaler(getattr(sys.modules[module], name))

    def _hear_scaler(self, scaler_class: Any) -> None:
        """Begin to listen to a scaler of torch: to the methods that its class has itself."""
        self._scaler_classes.add(scaler_class)
        ear, known = self._ear, self._scaler_classes
        own = vars(scaler_class)
        original_scale, original_unscale = own.get("scale"), own.get("unscale_")
        original_step, original_update = own.get("step"), own.get("update")

        def scale(self: Any, outputs: Any) -> Any:
            result = original_scale(self, outputs)
            listener = ear.listener
            if listener is not None and self._enabled:
                listener.heard(listener.scaled, self, result)
            return result

        def unscale_(self: Any, optimizer: Any) -> Any:
            listener = ear.listener
            if listener is not None and self._enabled:
                listener.heard(listener.unscaling, self, optimizer)
            return original_unscale(self, optimizer)

        def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            listener = ear.listener
            if listener is None or not self._enabled:
                return original_step(self, optimizer, *args, **kwargs)
            if self.__class__ not in known:
                listener.heard(hear_late, self.__class__)
            listener.heard(listener.scaler_step_begins, self, optimizer)
            try:
                result = original_step(self, optimizer, *args, **kwargs)
            except BaseException:
                listener.heard(listener.scaler_step_ended, optimizer, True)
                raise
            listener.heard(listener.scaler_step_ended, optimizer, False)
            return result

        def update(self: Any, new_scale: Any = None) -> Any:
            result = original_update(self, new_scale)
            listener = ear.listener
            if listener is not None and self._enabled:
                listener.heard(listener.updated)
            return result

        hear_late = self._hear_late
        for original, patch in (
            (original_scale, scale),
            (original_unscale, unscale_),
            (original_step, step),
            (original_update, update),
        ):
            if original is not None:
                self._set(scaler_class, patch.__name__, disguised(original, patch))

    def _hear_late(self, scaler_class: Any) -> None:
        """Listen to a class of scalers that the program has imported late, if it is one of torch's."""
        self._scaler_classes.add(scaler_class)
        if self._handles and (scaler_class.__module__, scaler_class.__name__) in _MORE_SCALERS:
            self._hear_scaler(scaler_class)

    def _hear_ranks(self) -> None:
        """Begin to listen to what ranks share."""
        if not self._hears_ranks:
            self._hears_ranks = True
            collectives.listen_to_ranks(self._set, self._wrap_inside, self._ear.sync)

    def _hear_shards(self) -> None:
        """Begin to listen to FSDP2 if the program has imported it."""
        if not self._hears_shards:
            self._hears_shards = collectives.listen_to_shards(self._set, self._ear.sync)


def _imported() -> list[bool]:
    """Which of the optional modules of torch the program has imported."""
    return list(map(sys.modules.__contains__, _OPTIONAL))


def _compiled_step_begins(optimizer: Any, args: Any, kwargs: Any) -> None:
    pass


def _compiled_step_ended(optimizer: Any, args: Any, kwargs: Any) -> None:
    UNSEEN.stepped = True


def _before_step(ear: Ear) -> Callable[[Any, Any, Any], None]:
    """The hook that is called before each step."""
    ident = threading.get_ident

    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        loop: Any = ear.loop
        try:
            if loop.thread != ident() and (loop := ear.loop_here()) is None:
                return
            call = loop.expected
            if call.of_step == id(optimizer):
                groups = optimizer.param_groups
                if (
                    groups is call.groups
                    and len(groups) == call.groups_number
                    and groups[-1]["params"] is call.params
                    and loop.expected is call
                ):
                    loop.expected = call.running
                    return
            loop.leave()
        except BaseException as error:
            if not ear.fault(error):
                raise
        listener = ear.listener
        if listener is not None:
            listener.heard(listener.step_begins, optimizer)

    return before


def _after_step(ear: Ear, modes: Callable[[], int]) -> Callable[[Any, Any, Any], None]:
    """The hook that is called after each step."""
    frame_at, ident = sys._getframe, threading.get_ident

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        try:
            frame: Any = frame_at(ABOVE_TORCH)
        except ValueError as error:
            frame = no_frame(error)
        loop: Any = ear.loop
        try:
            if loop.thread != ident() and (loop := ear.loop_here()) is None:
                return
            if not modes() and loop.step_ends(frame, optimizer):
                return
        except BaseException as error:
            if not ear.fault(error):
                raise
        listener = ear.listener
        if listener is not None:
            listener.heard(listener.step_ended, frame, optimizer)

    return after


def _ordinary_backward(ear: Ear, original: Any) -> Callable[[Any, Any, Any], Any]:
    """The function that runs a backward which no loop has expected."""

    def ordinary(frame: Any, args: Any, kwargs: Any) -> Any:
        listener = ear.listener
        if listener is None:
            return original(*args, **kwargs)
        outputs = args[0] if args else kwargs["t_outputs"]
        gradients = args[1] if len(args) > 1 else ()
        token = listener.heard(listener.backward_begins, frame, outputs, gradients)
        try:
            result = original(*args, **kwargs)
        except BaseException:
            if token is not None:
                listener.heard(listener.backward_ended, token, True)
            raise
        if token is not None:
            listener.heard(listener.backward_ended, token, False)
        return result

    return ordinary


def _calling(function: Any) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


def hide_from_compiler(codes: Iterable[CodeType]) -> None:
    """Keep torch.compile, which traces whatever runs below it, from tracing this code."""
    try:
        compiler = importlib.import_module("torch._C")._dynamo.eval_frame
    except (ImportError, AttributeError):
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
        if getattr(value, "__module__", None) == module.__name__:
            for member in vars(value).values() if isinstance(value, type) else (value,):
                # What a cache or a static method wraps counts, too.
                outer: Any = member.fget if isinstance(member, property) else member
                inner = inspect.unwrap(outer)
                if isinstance(inner, FunctionType):
                    found.append(inner.__code__)
    for code in found:
        yield code
        found += [inner for inner in code.co_consts if isinstance(inner, CodeType)]

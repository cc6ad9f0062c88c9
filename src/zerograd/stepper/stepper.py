"""The stepper: windows opened, filled and closed, and every gradient of them accounted for.

NOTE [The gradient of a window]
It is Σ wᵢ·∇meanᵢ / Σ wᵢ, and Σ wᵢ is known when the window ends. So a batch's loss is
back-propagated with the factor wᵢ/c (a summed loss with 1/c), and the sum is multiplied once, at
the end, by c·R/Σ wᵢ: R ranks average their gradients, and Σ runs over them all. c is a power of
two, the same on all ranks, near the weight expected of a window: w/c rounds nothing, and is about
one over the window's length, as people divide by hand, so that fp16 does not overflow. Where c·R is
Σ wᵢ there is nothing to multiply.

NOTE [Whose is .grad]
A stepper clears its parameters when its window opens. While its loop runs, no other stepper's
backward leaves anything in them: they are frozen meanwhile. Where two share parameters, or FSDP2
keeps them in its own way, whoever runs puts the other's gradients aside, and each puts its own back
before it goes on.

NOTE [A loop that is left]
A window belongs to one loop. A loop that ends closes it; one that is left drops it, at once where
Python closes the generator, and when the next loop begins where something still holds it.
"""

from __future__ import annotations

import math
import sys
import weakref
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from zerograd.stepper import validate
from zerograd.stepper.batches import Loop, together
from zerograd.stepper.close_window import Finish
from zerograd.stepper.gradients import Gradients
from zerograd.stepper.in_backward import InBackward
from zerograd.stepper.sharing import Ranks, ranks_of
from zerograd.stepper.step_record import Step
from zerograd.stepper.weights import Amount, amount, divided, power_of_two
from zerograd.stepper.window import Window

T = TypeVar("T")

_running: weakref.WeakSet[Stepper] = weakref.WeakSet()
"""The steppers in a loop. See NOTE [Whose is .grad]."""
_scalers: weakref.WeakKeyDictionary[Any, weakref.ref[Stepper]] = weakref.WeakKeyDictionary()
"""Which stepper uses which scaler."""


class Stepper:
    """Two lines in a training loop instead of zero, scale, accumulate, unscale, clip, step, update.

        stepper = Stepper(model, optimizer, accumulate=8, clip_norm=1.0)
        for batch in stepper(loader):
            loss = loss_fn(model(batch.x), batch.y)
            stepper.backward(loss, weight=len(batch.y))

    `weight` is how many samples or tokens the mean was taken over. Every step uses the gradient of
    the mean over its whole window, whatever the window's length and on however many ranks.

    modules, optimizers: one or several; the optimizers' parameters are disjoint.
    accumulate, accumulate_weight: batches in a window, or close it when it weighs at least so much
        (over all ranks). The loader's end closes it too.
    clip_norm, clip_value: clip the window's gradient.
    scaler: a torch.amp.GradScaler of its own.
    scheduler: one or several, stepped when the optimizer has stepped.
    reduction: "mean", or "sum" for losses that were added up.
    skip_nonfinite: drop a window with inf or nan in its gradient, on all ranks alike.
    accumulate_dtype: add up in this dtype, for bf16 parameters.
    free_gradients: step inside backward and free each gradient at once, to save memory.
    sync: "last" batch of a window, or "every" one, which saves memory under FSDP2.
    group: the ranks over which gradients are averaged, where it cannot be seen (a mesh with TP).

    `last_step` says what became of the last window, `history` of the last thousand. A norm is there
    where something needs it: clip_norm, scaler or skip_nonfinite.
    """

    def __init__(
        self,
        modules: nn.Module | Iterable[nn.Module],
        optimizers: Optimizer | Iterable[Optimizer],
        *,
        accumulate: int | None = None,
        accumulate_weight: float | None = None,
        clip_norm: float | None = None,
        clip_value: float | None = None,
        scaler: torch.amp.GradScaler | None = None,
        scheduler: Any = None,
        reduction: Literal["mean", "sum"] = "mean",
        skip_nonfinite: bool = False,
        accumulate_dtype: torch.dtype | None = None,
        free_gradients: bool = False,
        sync: Literal["last", "every"] = "last",
        group: Any = None,
    ) -> None:
        self._modules = validate.listed(modules, nn.Module, "modules")
        self._optimizers = validate.listed(optimizers, Optimizer, "optimizers")
        self._scaler = scaler if scaler is not None and scaler.is_enabled() else None
        validate.unfit(self._modules, self._optimizers, self._scaler)
        validate.windows(accumulate, accumulate_weight)
        validate.clips(clip_norm, clip_value)
        validate.other_words("reduction", reduction, "mean", "sum")
        validate.other_words("sync", sync, "last", "every")
        self._accumulate = None if accumulate_weight is not None else accumulate or 1
        self._enough = accumulate_weight
        self._schedulers = validate.demanding(scheduler)
        self._summed = reduction == "sum"
        self._sync_every = sync == "every"
        params = validate.parameters(self._optimizers)
        self._ranks = ranks_of(self._modules, params, group)
        shards = self._ranks.shards
        if accumulate_dtype is not None:
            validate.together(
                "accumulate_dtype",
                {
                    "scaler": (self._scaler is not None, "a scaler is for fp16, this for bf16"),
                    "FSDP2": (
                        shards,
                        "say MixedPrecisionPolicy(reduce_dtype=...) to fully_shard()",
                    ),
                },
            )
        self._in_backward: InBackward | None = None
        if free_gradients:
            whole = "it needs all gradients of a window at once"
            validate.together(
                "free_gradients",
                {
                    "accumulate": (self._accumulate != 1, "a longer window keeps the gradients"),
                    "clip_norm": (clip_norm is not None, whole),
                    "scaler": (self._scaler is not None, whole),
                    "skip_nonfinite": (skip_nonfinite, whole),
                    "accumulate_dtype": (accumulate_dtype is not None, "nothing is accumulated"),
                    "DDP": (self._ranks.size > 1 and not shards, "it averages after the backward"),
                    "FSDP2": (shards, "it averages after the backward"),
                },
            )
            self._in_backward = InBackward(self._optimizers, clip_value)

        self._finish = Finish(
            self._optimizers,
            self._scaler,
            self._ranks,
            clip_norm=clip_norm,
            clip_value=clip_value,
            skip_nonfinite=skip_nonfinite,
        )
        self._gradients = Gradients(accumulate_dtype)
        self._window = Window()
        self._loop: object = None
        """The loop that is running; a loop that finds another one here has been left."""
        self._awaiting = False
        """A batch was given out, and its backward has not come."""
        self._syncing = True
        """The backward of this batch synchronises."""
        self._final = False
        """This batch is the last of the loop, on all ranks."""
        self._resumed = False
        self._left_inside = False
        """Dropped gradients that FSDP2 still holds."""
        self._usual: Amount | None = None
        """The mean weight of a batch in the window before, on all ranks."""
        self._last_seed: tuple[Any, Tensor] | None = None
        self._warm = not self._ranks.first_syncs_all
        """DDP has learned a static graph."""

        self.padding = False
        """Whether this batch is a repetition that only keeps the ranks together."""
        self.last_step: Step | None = None
        self.history: deque[Step] = deque(maxlen=1000)
        self.steps = 0
        """Windows that were stepped."""
        self.skipped = 0
        """Windows that were not."""

    # The loop

    def __call__(self, loader: Iterable[T]) -> Loop[T]:
        """The loader's batches; its windows open and close as they are used."""
        return Loop(self, loader)

    def _batches(self, loader: Iterable[T]) -> Generator[T, None, None]:
        loop = object()
        if not self._resumed:
            self._drop()
            self._gradients.of(validate.parameters(self._optimizers))
        self._resumed = False
        self._loop = loop
        _running.add(self)
        try:
            if isinstance(self._ranks, Ranks):
                if max(self._ranks.each(self._left_inside)):
                    self._purge()
                for batch, padding, final in together(loader, self, self._ranks):
                    self._final = final
                    self._give_out(loop, self._syncs(final), padding)
                    yield batch
                    self._taken_back(loop)
            else:
                for batch in loader:
                    self._give_out(loop, sync=True, padding=_is_padding(loader))
                    yield batch
                    self._taken_back(loop)
            self.flush()
        finally:
            if self._loop is loop:
                self._loop = None
                self._drop()
                _running.discard(self)
                self._ranks.sync(True)
                self.padding = False

    def _syncs(self, final: bool) -> bool:
        """Whether the batch to come closes the window, as far as it can be known before its forward."""
        if self._sync_every or not self._warm or final:
            return True
        if self._enough is None:
            return self._window.count + 1 == self._accumulate
        usual = self._usual if self._usual is not None else 0.0
        return float(self._window.whole + usual * self._ranks.size) >= self._enough

    def _give_out(self, loop: object, sync: bool, padding: bool) -> None:
        if self._loop is not loop:
            raise RuntimeError("this loop was left when another one of the same stepper began")
        if self._left_inside and not self._window.count:
            self._purge()
        self._ranks.sync(sync)
        self._syncing = sync
        self._awaiting = True
        self.padding = padding

    def _taken_back(self, loop: object) -> None:
        """The loop's body has come to its end."""
        if self._loop is not loop:
            raise RuntimeError("this loop was left when another one of the same stepper began")
        if self._awaiting and self._ranks.size > 1:
            raise RuntimeError(
                "a batch had no backward(): the other ranks wait for it. To leave a batch out, do"
                " not `continue`: call backward(loss, weight=0)"
            )
        self._awaiting = False

    # A batch

    def backward(self, loss: Tensor, weight: object = 1, *, retain_graph: bool = False) -> None:
        """Back-propagate a batch's loss, and step if that closes the window.

        `weight` is how many samples or tokens the loss was taken over: a number, or a tensor on
        the loss's device. With weight 0 the batch counts for nothing.
        """
        value = self._checked(loss, weight)
        self._awaiting = False
        try:
            self._enter(value)
            window = self._window
            last = window.count == self._accumulate
            total = self._ranks.start_sum(window.weight) if last else None
            if isinstance(value, Tensor) or value != 0 or isinstance(self._ranks, Ranks):
                self._run(loss, self._factor(value), retain_graph)
            window.unsynced = not self._syncing
            if total is not None:
                self._close(total())
            elif self._enough is not None and self._heavy_enough(self._enough):
                self._close(window.whole)
        except BaseException:
            self._drop()
            raise

    def _checked(self, loss: Tensor, weight: object) -> Amount:
        if not isinstance(loss, Tensor):
            raise TypeError(f"the loss is a tensor, not {type(loss).__name__}")
        if loss.numel() != 1:
            raise ValueError(
                f"the loss is one number, not a tensor of shape {tuple(loss.shape)}: take its mean()"
                ' (or its sum(), with reduction="sum")'
            )
        if not loss.requires_grad:
            raise RuntimeError(
                "the loss has no graph to go back through: it was detached, computed under"
                " no_grad(), or nothing it depends on requires a gradient"
            )
        value = amount(weight)
        if self._loop is None:
            raise RuntimeError(
                "backward() belongs into a loop over stepper(loader): only there is it known which"
                " window the gradient is for"
            )
        if not self._awaiting:
            raise RuntimeError(
                "this batch has had its backward(): add its losses up and call it once"
            )
        return 0.0 if self.padding else value

    def _enter(self, value: Amount) -> None:
        """Open a window if none is open, and take a batch of this weight into it."""
        if self._window.count == 0:
            self._own_scaler()
            self._gradients.of(validate.parameters(self._optimizers))
            _set_aside(self)
            if self._gradients.dirty():
                self._clear()
            self._window.unit = self._new_unit(value)
        else:
            _set_aside(self)
        self._gradients.put_back()
        self._window.add(value, self.padding)

    def _new_unit(self, first: Amount) -> Amount:
        """See NOTE [The gradient of a window]."""
        if self._enough is not None:
            return power_of_two(self._enough / self._ranks.size)
        assert self._accumulate is not None
        if self._accumulate == 1 and self._ranks.size == 1 and not isinstance(first, Tensor):
            return first or 1.0  # nothing to add up: the factor is 1, and so is the multiplier
        if self._usual is None:
            self._usual = self._ranks.largest(first)
        return power_of_two(self._usual * self._accumulate)

    def _factor(self, value: Amount) -> Amount:
        if self._in_backward is not None:  # there is no later: this is the window's gradient
            return divided(1.0 if self._summed else value, value)
        if self._summed and (isinstance(value, Tensor) or value != 0):
            return 1.0 / self._window.unit
        return value / self._window.unit

    def _run(self, loss: Tensor, factor: Amount, retain_graph: bool) -> None:
        if self._scaler is not None:
            loss = self._scaler.scale(loss)
        if self._syncing and isinstance(self._ranks, Ranks):
            self._gradients.lay_open()
        seed = self._seed(loss, factor)
        if self._in_backward is None and not _others(self):
            torch.autograd.backward(loss, seed, retain_graph=retain_graph)
        else:
            with self._in_backward or nullcontext(), _closed_to(self):
                torch.autograd.backward(loss, seed, retain_graph=retain_graph)
        self._gradients.add_up()

    def _seed(self, loss: Tensor, factor: Amount) -> Tensor | None:
        """What a loss is back-propagated with; mostly the same as for the batch before."""
        if isinstance(factor, Tensor):
            return factor.to(loss).reshape(loss.shape)
        if factor == 1.0:
            return None
        key = factor, loss.dtype, loss.device, loss.shape
        if self._last_seed is None or self._last_seed[0] != key:
            self._last_seed = key, torch.full_like(loss, factor, requires_grad=False)
        return self._last_seed[1]

    def _heavy_enough(self, enough: float) -> bool:
        """Whether the window is full; where it is and has not been synchronised, it is due."""
        window = self._window
        window.whole = self._ranks.start_sum(window.weight)()
        if window.due:
            return True
        self._usual = window.whole / (window.count * self._ranks.size)
        full = float(window.whole) >= enough
        window.due = full and window.unsynced
        return full and not window.due

    # A window's end

    def flush(self) -> None:
        """Close the open window now and step on what is in it; nothing happens where none is open.

        Under DDP and FSDP2 every rank must call it, and the last forward is run once more, with
        weight 0, to synchronise.
        """
        if not self._window.count:
            return
        try:
            _set_aside(self)
            self._gradients.put_back()
            if self._window.unsynced:
                self._gradients.lay_open()
                if not self._ranks.rerun():
                    raise RuntimeError(
                        "nothing was run since the window was loaded, so nothing can synchronise"
                        " it: flush() after a batch"
                    )
                self._gradients.add_up()
            self._close()
        except BaseException:
            self._drop()
            raise

    def _close(self, weight: Amount | None = None) -> None:
        """Normalise, unscale, clip, step, update, clear: in this order, once."""
        _set_aside(self)
        self._gradients.put_back()
        window = self._window
        if weight is None:
            weight = self._ranks.start_sum(window.weight)()
        nothing = not isinstance(weight, Tensor) and weight == 0
        if not nothing:
            self._usual = weight / (window.count * self._ranks.size)
        groups = [group for one in self._optimizers for group in one.param_groups]
        rates = tuple(group.get("lr", math.nan) for group in groups)
        scale = self._finish.scale(self._gradients.params[0].device)
        norm, reason = None, ""
        try:
            if nothing:
                reason = "no weight"
            elif self._in_backward is not None:
                pass  # it has stepped
            elif not self._gradients.present():
                reason = "no gradient"
            else:
                with _meant():
                    norm, reason = self._finish(self._gradients, window.unit, weight)
        finally:
            self._clear()
            self._forget()
            self._ranks.forget_inputs()
            self._warm = True
        index = self.steps + self.skipped
        if reason:
            self.skipped += 1
        else:
            self.steps += 1
            for scheduler in self._schedulers:
                scheduler.step()
        self.last_step = Step(index, reason, window.length, rates, weight, norm, scale)
        self.history.append(self.last_step)

    def _clear(self) -> None:
        with _meant():
            for optimizer in self._optimizers:
                optimizer.zero_grad(set_to_none=True)
        self._gradients.forget()

    def _forget(self) -> None:
        """No window is open."""
        self._window = Window()
        if self._loop is None:
            _running.discard(self)

    def _drop(self) -> None:
        """Forget the open window."""
        if self._window.count:
            _set_aside(self, or_else=False)
            self._left_inside |= self._ranks.shards and not self._sync_every
            self._clear()
            self._forget()
        self._awaiting = False
        self._resumed = False

    def _purge(self) -> None:
        """FSDP2 keeps what was never synchronised, and would add it to the next window."""
        self._ranks.rerun()
        self._clear()
        self._ranks.forget_inputs()
        self._left_inside = False

    def _own_scaler(self) -> None:
        if self._scaler is None:
            return
        owner = _scalers.get(self._scaler, lambda: None)()
        if owner is not None and owner is not self:
            raise ValueError(
                "two steppers share a GradScaler, but it keeps one scale and is updated by each:"
                " give each stepper a scaler of its own"
            )
        _scalers[self._scaler] = weakref.ref(self)

    # Checkpoints

    def state_dict(self) -> dict[str, Any]:
        """All of an open window and the counts; optimizers, scaler and model save themselves."""
        window = None
        if self._window.count:
            if self._ranks.shards and not self._sync_every:
                raise RuntimeError(
                    "under FSDP2 the gradients of an open window cannot be saved: call"
                    " stepper.flush() first, on every rank, or save between windows"
                )
            window = {**self._window.state(), "gradients": self._gradients.copies()}
        return {
            "version": 1,
            "steps": self.steps,
            "skipped": self.skipped,
            "usual": None if self._usual is None else float(self._usual),
            "window": window,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict()` was called: the next loop continues its window."""
        if state.get("version") != 1:
            raise ValueError(
                f"this is no state of a Stepper: its version is {state.get('version')!r}"
            )
        if self._loop is not None:
            raise RuntimeError("load_state_dict() belongs before the loop, not into it")
        window = state["window"]
        params = validate.parameters(self._optimizers)
        if window is not None:
            held = window["gradients"]
            shapes = [None if one is None else one.shape for one in held]
            if len(held) != len(params) or any(
                shape not in (None, param.shape)
                for shape, param in zip(shapes, params, strict=True)
            ):
                raise ValueError("the saved window holds the gradients of other parameters")
        self._drop()
        self._clear()
        self.steps, self.skipped, self._usual = state["steps"], state["skipped"], state["usual"]
        if window is not None:
            numbers = {name: value for name, value in window.items() if name != "gradients"}
            self._window = Window(**numbers)
            self._gradients.restore(params, window["gradients"])
            self._resumed = True
            _running.add(self)


def _others(stepper: Stepper) -> list[Stepper]:
    """The other steppers in a loop."""
    if not _running or (len(_running) == 1 and stepper in _running):
        return []
    return [other for other in _running if other is not stepper]


def _set_aside(stepper: Stepper, or_else: bool = True) -> None:
    """Have `.grad` of our own parameters for ourselves. See NOTE [Whose is .grad]."""
    for other in _others(stepper):
        if other._ranks.shards and other._window.unsynced and or_else:
            raise RuntimeError(
                "another stepper's window is open, and FSDP2 holds its gradients where they"
                ' cannot be set aside: make that stepper with sync="every"'
            )
        if other._ranks.shards or other._gradients.ids & stepper._gradients.ids:
            other._gradients.put_aside(copy=other._ranks.views)


@contextmanager
def _closed_to(stepper: Stepper) -> Iterator[None]:
    """While our backward runs, it leaves nothing in the others' parameters."""
    frozen = [
        param
        for other in _others(stepper)
        if not other._ranks.shards
        for param in other._gradients.params
        if param.requires_grad and id(param) not in stepper._gradients.ids
    ]
    try:
        for param in frozen:
            param.requires_grad_(False)  # and autograd passes it by
        yield
    finally:
        for param in frozen:
            param.requires_grad_(True)


def _meant() -> AbstractContextManager[None]:
    """If a run is watched: how long windows are, and what is dropped of them, is meant so."""
    watch = sys.modules.get("zerograd.runtime.watch")
    return nullcontext() if watch is None else watch.allow("ZG3", "zero-in-window")


def _is_padding(loader: object) -> bool:
    """Whether another stepper's loop has just given out a repetition."""
    return isinstance(loader, Loop) and loader.stepper.padding
